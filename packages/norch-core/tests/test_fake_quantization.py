"""Rounding to the numbers of quantized weights, against NumPy and values of PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import norch

X = np.random.default_rng(4).standard_normal((6, 3)).astype(np.float32) * 2


def rounded(x, scale, zero_point, low, high):
    levels = np.rint(x * (np.float32(1) / np.float32(scale))) + zero_point
    return (np.clip(levels, low, high) - zero_point) * np.float32(scale), (levels >= low) & (levels <= high)


@pytest.mark.parametrize("dtype", [norch.float32, norch.float64])
@pytest.mark.parametrize(
    ("scale", "zero_point", "low", "high"), [(0.1, 0, -10, 10), (0.03, 5, 0, 255), (0.7, -1, -8, 7)]
)
def test_per_tensor(dtype, scale, zero_point, low, high):
    x = norch.tensor(X).to(dtype).requires_grad_()
    found = norch.fake_quantize_per_tensor_affine(x, scale, zero_point, low, high)
    found.sum().backward()
    value, passed = rounded(X, scale, zero_point, low, high)
    assert found.dtype is dtype
    np.testing.assert_array_equal(found.detach().numpy(), value)
    np.testing.assert_array_equal(x.grad.numpy(), passed)


def test_halves_are_rounded_to_even_before_the_zero_point():
    x = norch.tensor([0.05, 0.15, 0.25, -0.05, -0.15, 0.35, 3.0, -3.0])
    expected = norch.tensor([0.0, 0.2, 0.2, 0.0, -0.2, 0.4, 0.9, -1.1])  # PyTorch 2.13's
    norch.testing.assert_close(norch.fake_quantize_per_tensor_affine(x, 0.1, 1, -10, 10), expected)


def test_per_channel():
    scale, zero_point = [0.1, 0.2, 0.3], [0, 1, -2]
    x = norch.tensor(X, requires_grad=True)
    given = norch.tensor(scale), norch.tensor(zero_point, dtype=norch.int32)
    found = norch.fake_quantize_per_channel_affine(x, *given, -1, -5, 5)
    found.sum().backward()
    for i, one in enumerate(zip(scale, zero_point, strict=True)):
        value, passed = rounded(X[:, i], *one, -5, 5)
        np.testing.assert_array_equal(found[:, i].detach().numpy(), value)
        np.testing.assert_array_equal(x.grad[:, i].numpy(), passed)


def test_what_does_not_fit():
    x = norch.tensor(X)
    with pytest.raises(ValueError, match="larger than quant_max"):
        norch.fake_quantize_per_tensor_affine(x, 0.1, 0, 10, -10)
    with pytest.raises(norch.DTypeError, match="floating"):
        norch.fake_quantize_per_tensor_affine(x.long(), 0.1, 0, 0, 10)
    with pytest.raises(norch.ShapeError, match="one element for each of the 3"):
        norch.fake_quantize_per_channel_affine(x, norch.ones(2), norch.zeros(2), 1, 0, 10)
