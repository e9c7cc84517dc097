"""Fourier transforms against NumPy in float64: sizes, layouts, windows, and that tf32 has no part in them."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch.ops.matrix.dft import dft
from norch.testing import assert_close

RNG = np.random.default_rng(3)
SIZES = [
    *range(1, 18), 49, 97, 100, 127, 128, 254, 400, 480, 509, 1000, 1024, 2048, 2310, 4096, 521, 1042, 4099, 6561,
    3000, 3840, 5000, 16384, 98304,
]  # fmt: skip
EPS = {"float32": 2.0**-23, "float64": 2.0**-52}


def expected_of(x, window, n, sign, outputs, count, scale, doubled):
    inputs, size = x.shape[-2:]
    z = x[..., 0, :] + 1j * x[..., 1, :] if inputs == 2 else x[..., 0, :] * window
    twice = np.full(n, 2.0 if doubled else 1.0)
    twice[0] = 1
    if n % 2 == 0:
        twice[n // 2] = 1
    if inputs == 2 and outputs == 1:
        z = z * twice[:size]
    found = np.fft.fft(z, n) if sign < 0 else np.fft.ifft(z, n) * n
    found = found[..., :count] * scale
    if outputs == 1:
        return (found.real * window)[..., None, :]
    found = found * twice[:count] if inputs == 1 else found
    return np.stack([found.real, found.imag], -2)


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize(
    ("inputs", "outputs", "sign", "doubled"), [(2, 2, -1, False), (2, 2, 1, False), (1, 2, -1, False), (1, 2, 1, True),
                                               (2, 1, 1, True), (2, 1, -1, False)],
)  # fmt: skip
def test_sizes(cuda, inputs, outputs, sign, doubled, dtype):
    before = norch.get_float32_matmul_precision()
    norch.set_float32_matmul_precision("high")
    try:
        for n in SIZES:
            half = n // 2 + 1
            size, count = (half, n) if outputs == 1 else (n, half) if inputs == 1 else (n, n)
            for rows, windowed in ((1, False), (7, inputs + outputs == 3)):
                x = RNG.standard_normal((rows, inputs, size)).astype(dtype)
                window = RNG.uniform(0, 1, size if inputs == 1 else count).astype(dtype)
                args = (n, sign, outputs, count, 0.5, doubled)
                weights = norch.tensor(window, device=cuda) if windowed else None
                found = dft(norch.tensor(x, device=cuda), weights, *args).cpu().numpy()
                wide = window.astype(np.float64) if windowed else 1.0
                expected = expected_of(x.astype(np.float64), wide, *args)
                most = 20 if any(n % p == 0 for p in (49, 97, 127, 509, 521, 4099)) else 6
                allowed = most * EPS[dtype] * (3 + np.log2(n)) * (1 + n) ** 0.5 * (2 if doubled else 1)
                assert np.abs(found - expected).max() <= allowed, (n, rows)
    finally:
        norch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("n", [1, 12, 64, 1024, 5000])
def test_along_other_dims(cuda, n):
    x = RNG.standard_normal((3, n, 5)) + 1j * RNG.standard_normal((3, n, 5))
    given = norch.tensor(np.stack([x.real, x.imag], -1), device=cuda)
    found = norch.fft.fft(norch.view_as_complex(given), dim=1)
    wanted = np.fft.fft(x, axis=1)
    assert_close(
        norch.view_as_real(found).cpu(), norch.tensor(np.stack([wanted.real, wanted.imag], -1)), rtol=1e-12, atol=1e-11
    )
    real = norch.tensor(x.real.copy(), device=cuda)
    for view in (lambda t: t, lambda t: t[1:, :, ::2]):
        given, wanted = view(real).transpose(1, 2), np.fft.rfft(view(x.real), axis=1).transpose(0, 2, 1)
        found = norch.view_as_real(norch.fft.rfft(given)).cpu()
        assert_close(found, norch.tensor(np.stack([wanted.real, wanted.imag], -1)), rtol=1e-12, atol=1e-11)
    assert_close(norch.fft.irfft(norch.fft.rfft(real, dim=1), n, dim=1).cpu(), real.cpu(), rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("n", [8, 16])
def test_more_rows_than_blocks_take_at_once(cuda, n):
    x = RNG.standard_normal((300001, n)).astype(np.float32)
    found = norch.view_as_real(norch.fft.rfft(norch.tensor(x, device=cuda))).cpu().numpy()
    wanted = np.fft.rfft(x.astype(np.float64))
    np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], wanted, rtol=0, atol=3e-5)
    both = norch.fft.fft(norch.complex(norch.tensor(x, device=cuda), norch.tensor(x[::-1].copy(), device=cuda)))
    wanted = np.fft.fft(x + 1j * x[::-1].astype(np.float64))
    found = norch.view_as_real(both).cpu().numpy()
    np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], wanted, rtol=0, atol=3e-5)


def test_stft_and_its_gradient_are_those_of_the_cpu(cuda):
    x, window = norch.randn(2, 3000, dtype=norch.float64), norch.hann_window(400, dtype=norch.float64)
    found = []
    for device in ("cpu", cuda):
        given, weights = (t.to(device).detach().requires_grad_() for t in (x, window))
        pair = norch.stft(given, 512, 128, 400, window=weights, return_complex=False)
        back = norch.istft(pair.detach(), 512, 128, 400, window=weights.detach(), length=3000)
        pair.square().sum().backward()
        found.append([t.cpu() for t in (pair.detach(), given.grad, weights.grad, back)])
    for a, b in zip(*found, strict=True):
        assert_close(a, b, rtol=1e-10, atol=1e-9)
