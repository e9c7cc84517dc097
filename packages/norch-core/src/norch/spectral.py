"""Short-time Fourier transforms: those of windows that move over a signal."""

from __future__ import annotations

from inspect import signature
from typing import Any

from .compat.complex_numbers import ComplexPair, joined
from .dispatch.arguments import check_functions, describe
from .dtype import promote_types
from .errors import ShapeError
from .ops import cat, ones, pad
from .ops.matrix.dft import check_real, dft
from .ops.shape.strided import sum_windows
from .tensor import Tensor


def _window(op: str, input: Tensor, n_fft: int, hop: Any, length: Any, window: Tensor | None) -> tuple[int, Tensor]:
    """The hop, and the window of n_fft weights, with zeros around a shorter one."""
    hop = n_fft // 4 if hop is None else hop
    length = n_fft if length is None else length
    if n_fft < 1 or hop < 1 or not 0 < length <= n_fft:
        raise ShapeError(f"{op}(): n_fft {n_fft}, hop_length {hop} and win_length {length} do not fit")
    if window is None:
        window = ones(length, dtype=input.dtype, device=input.device)
    if tuple(window.shape) != (length,):
        raise ShapeError(f"{op}(): expected a window of win_length {length}, got shape {tuple(window.shape)}")
    before = (n_fft - length) // 2
    return hop, pad(window, (before, n_fft - length - before)) if length < n_fft else window


def _of_one_dtype(op: str, x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    real = check_real(op, x)
    common = promote_types(real.dtype, weights.dtype)
    return real.to(common), weights.to(common)


def _stft_of_complex(*args: Any, **kwargs: Any) -> Any:
    """`stft` where the signal or the window is complex, in both of which it is linear."""
    given = signature(stft).bind(*args, **kwargs).arguments
    input, window = given["input"], given.get("window")
    if given.get("onesided"):
        raise ValueError("stft(): complex numbers have all frequencies; onesided must be False")

    def of(signal: Tensor, weights: Any) -> Any:
        return stft(**{**given, "input": signal, "window": weights, "onesided": False, "return_complex": True})

    re: Any = input.real if isinstance(input, ComplexPair) else input
    im: Any = input.imag if isinstance(input, ComplexPair) else None
    if isinstance(window, ComplexPair):
        found = of(re, window.real) + of(re, window.imag) * 1j
        found = found if im is None else found + of(im, window.real) * 1j - of(im, window.imag)
    else:
        found = of(re, window) + of(im, window) * 1j
    return found.pair if given.get("return_complex") is False else found


def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
) -> Any:
    """The Fourier transforms of windows of n_fft elements, `hop_length` (n_fft // 4) apart: (time) or (batch, time).

    return_complex: False gives the real and imaginary parts, (..., frequencies, frames, 2); True a ComplexPair of
    (..., frequencies, frames). window: `win_length` weights, ones by default. center: frame t is around element
    t * hop_length, the signal being padded as `pad_mode` says. normalized: divided by sqrt(n_fft). onesided: only the
    frequencies 0 to n_fft // 2, the default. A complex signal or window has all. Raises ShapeError for sizes that do
    not fit, RuntimeError unless `return_complex` is said, as PyTorch does, ValueError for `onesided` complex numbers.
    """
    if return_complex is None:
        raise RuntimeError("stft(): say return_complex=False for real and imaginary parts, True for a ComplexPair")
    if input.ndim not in (1, 2):
        raise ShapeError(f"stft(): expected 1 or 2 dims, got shape {tuple(input.shape)}")
    hop, weights = _window("stft", input, n_fft, hop_length, win_length, window)
    x = input if input.ndim == 2 else input.unsqueeze(0)
    if center:
        x = pad(x.unsqueeze(1), (n_fft // 2, n_fft // 2), pad_mode).squeeze(1)
    if x.shape[1] < n_fft:
        raise ShapeError(f"stft(): n_fft {n_fft} is more than the {x.shape[1]} elements of {tuple(input.shape)}")
    x, weights = _of_one_dtype("stft", x, weights)
    count = n_fft if onesided is False else n_fft // 2 + 1
    scale = n_fft**-0.5 if normalized else 1.0
    pair = dft(x.unfold(1, n_fft, hop).unsqueeze(2), weights, n_fft, -1, 2, count, scale, False).permute(0, 3, 1, 2)
    pair = pair if input.ndim == 2 else pair.squeeze(0)
    return ComplexPair(pair) if return_complex else pair


def istft(
    input: Any,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Any:
    """Undoes `stft` of the same arguments: windows are added where they lie, and divided by the weights' squares there.

    input: a ComplexPair of (..., frequencies, frames), or its parts (..., frequencies, frames, 2). length: of the
    signal. return_complex: the signal is complex, and all frequencies are there. Raises ShapeError for sizes that do
    not fit, and where the windows leave elements out.
    """
    pair = input.pair if isinstance(input, ComplexPair) else input
    if not isinstance(pair, Tensor) or pair.ndim not in (3, 4) or pair.shape[-1] != 2:
        raise ShapeError(f"istft(): expected (..., frequencies, frames, 2) or a ComplexPair, got {describe(input)}")
    if return_complex:
        if onesided or pair.shape[-3] != n_fft:
            raise ShapeError(f"istft(): a complex signal has n_fft {n_fft} frequencies, got shape {tuple(pair.shape)}")
        numbers: Any = ComplexPair(pair)
        # The spectra of real signals, of which the other half is the conjugate.
        mirrored: Any = ComplexPair(cat([pair[..., :1, :, :], pair[..., 1:, :, :].flip(-3)], -3)).conj()
        options = hop_length, win_length, window, center, normalized, False, length
        return joined(
            istft((numbers + mirrored) * 0.5, n_fft, *options), istft((numbers - mirrored) * -0.5j, n_fft, *options)
        )
    hop, weights = _window("istft", pair, n_fft, hop_length, win_length, window)
    z = (pair if pair.ndim == 4 else pair.unsqueeze(0)).permute(0, 2, 3, 1)
    _, count, _, frequencies = z.shape
    whole_given = frequencies == n_fft if onesided is None else not onesided
    if not count or frequencies != (n_fft if whole_given else n_fft // 2 + 1):
        raise ShapeError(f"istft(): {frequencies} frequencies of {count} frames do not fit n_fft {n_fft}")
    z, weights = _of_one_dtype("istft", z, weights)
    scale = n_fft**-0.5 if normalized else 1 / n_fft
    z = z[..., : n_fft // 2 + 1]  # the other half is taken to be its conjugate, as in PyTorch
    frames = dft(z, weights, n_fft, 1, 1, n_fft, scale, True).squeeze(2)
    total = n_fft + (count - 1) * hop
    out = sum_windows(frames, 1, hop, total)
    covered = sum_windows((weights * weights).expand(1, count, n_fft), 1, hop, total)
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else total - n_fft // 2 if center else total
    out, covered = out[:, start : min(end, total)], covered[:, start : min(end, total)]
    if not out.numel() or covered.abs().min().item() < 1e-11:
        raise ShapeError("istft(): the windows leave elements of the signal out: use smaller hops, or another window")
    out = out / covered
    if length is not None and out.shape[1] < length:
        out = pad(out, (0, length - out.shape[1]))
    return out if pair.ndim == 4 else out.squeeze(0)


check_functions(globals())
