"""Fourier transforms and complex numbers."""

from __future__ import annotations

from typing import Any

from .inputs import Op, sources


def rows(op: Op, lib: Any, device: str) -> None:
    normal, _, _ = sources(lib, device)
    op("fft 1M", lambda x: lib.fft.fft(x), lambda: normal(1 << 20), grad=False)
    op("rfft rows 1024", lambda x: lib.view_as_real(lib.fft.rfft(x)), lambda: normal(4096, 1024))
    op("fft2 256", lambda x: lib.view_as_real(lib.fft.rfft2(x)), lambda: normal(64, 256, 256))
    op("fft2 32 (fno)", lambda x: lib.fft.irfft2(lib.fft.rfft2(x)), lambda: normal(16, 32, 64, 64))
    op("fft 1000", lambda x: lib.view_as_real(lib.fft.rfft(x)), lambda: normal(4096, 1000))
    op("fftconv 16384", lambda x: lib.fft.irfft(lib.fft.rfft(x, 16384) * 2, 16384), lambda: normal(64, 8192))
    op(
        "stft 1024",
        lambda x, w: lib.stft(x, 1024, 256, window=w.detach(), return_complex=True).abs(),
        lambda: normal(16, 64000),
        lambda: lib.hann_window(1024, device=device),
    )
    op(
        "istft",
        lambda s, w: lib.istft(s, 1024, 256, window=w),
        lambda: lib.stft(
            normal(16, 64000), 1024, 256, window=lib.hann_window(1024, device=device), return_complex=True
        ),
        lambda: lib.hann_window(1024, device=device),
        grad=False,
    )
    op(
        "complex mul",
        lambda a, b: a * b,
        lambda: lib.complex(normal(1 << 20), normal(1 << 20)),
        lambda: lib.complex(normal(1 << 20), normal(1 << 20)),
        grad=False,
    )
    op(
        "complex matmul",
        lambda a, b: a @ b,
        lambda: lib.complex(normal(512, 512), normal(512, 512)),
        lambda: lib.complex(normal(512, 512), normal(512, 512)),
        grad=False,
    )
