"""Windows of images as columns, and back."""

from __future__ import annotations

import numpy as np
import pytest
from folding_harness import (
    DTYPES,
    SHAPES,
    TOLERANCE,
    WINDOWS,
    check_columns,
    check_each_is_the_gradient_of_the_other,
    check_no_images,
    check_sums_of_columns,
)

import norch

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("shape", SHAPES)
def test_columns(cuda, shape, windows, dtype):
    check_columns(cuda, shape, windows, dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("shape", SHAPES)
def test_sums_of_columns(cuda, shape, windows, dtype):
    check_sums_of_columns(cuda, shape, windows, dtype)


def test_each_is_the_gradient_of_the_other(cuda):
    check_each_is_the_gradient_of_the_other(cuda)


def test_no_images(cuda):
    check_no_images(cuda)


# --- Elements that are moved ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_mask", [False, True])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("windows", WINDOWS[:4])
@pytest.mark.parametrize("shape", [(2, 6, 8, 9), (1, 2, 7, 33), (1, 22, 5, 6)])
def test_columns_of_moved_elements(cuda, shape, windows, parts, has_mask):
    kernel, dilation, padding, stride = windows
    taps = kernel[0] * kernel[1]
    size = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, d, p, s in zip(shape[2:], *windows, strict=True)]
    image = norch.tensor(RNG.standard_normal(shape))
    offset = norch.tensor(RNG.uniform(-6, 6, (shape[0], 2 * parts * taps, *size)).astype(np.float32)).double()
    offset[..., 0] = offset[..., 0].round()  # whole places too
    mask = norch.tensor(RNG.uniform(0, 2, (shape[0], parts * taps, *size))) if has_mask else None
    how = (kernel, stride, padding, dilation)
    wanted = norch.deform_columns(image, offset, mask, *how).numpy()
    for dtype, tolerance in ((norch.float64, 1e-10), (norch.float32, 1e-4), (norch.float16, 2e-2)):
        moves = offset.to(cuda, norch.float32 if dtype is norch.float16 else dtype)
        given = image.to(cuda, dtype), moves, None if mask is None else mask.to(cuda, dtype)
        found = norch.deform_columns(*given, *how)
        assert found.dtype is dtype
        np.testing.assert_allclose(found.cpu().double().numpy(), wanted, rtol=tolerance, atol=tolerance)

    def last(t):
        return None if t is None else t.to(cuda).permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)

    found = norch.deform_columns(last(image), last(offset), last(mask), *how)
    np.testing.assert_allclose(found.cpu().numpy(), wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("has_mask", [False, True])
@pytest.mark.parametrize(("channels", "parts"), [(3, 1), (20, 2), (6, 3)])
def test_gradients_of_moved_windows(cuda, channels, parts, has_mask):
    image, grad = RNG.standard_normal((2, channels, 9, 8)), RNG.standard_normal((2, channels * 6, 30))
    offset = RNG.uniform(-4, 4, (2, 2 * parts * 6, 5, 6)).astype(np.float32).astype(np.float64)
    offset[..., 0], offset[..., 1] = offset[..., 0].round(), 0  # whole places too
    values = image, offset, RNG.uniform(0, 2, (2, parts * 6, 5, 6)) if has_mask else None
    how = (3, 2), (2, 1), (1, 0), (1, 2)

    def gradients(device, dtype, turn):
        given = [None if v is None else turn(norch.tensor(v, dtype=dtype, device=device)) for v in values]
        leaves = [x.requires_grad_() for x in given if x is not None]
        out = norch.deform_columns(*given, *how)
        return norch.autograd.grad(out, leaves, turn(norch.tensor(grad, dtype=dtype, device=device)))

    def turned(t):
        return t.transpose(0, -1).contiguous().transpose(0, -1)

    wanted = gradients("cpu", norch.float64, lambda t: t)
    for dtype, tolerance in ((norch.float64, 1e-10), (norch.float32, 2e-4)):
        for turn in (lambda t: t, turned):
            for one, other in zip(gradients(cuda, dtype, turn), wanted, strict=True):
                np.testing.assert_allclose(one.cpu().double().numpy(), other.numpy(), rtol=tolerance, atol=tolerance)


def test_moved_beyond_all_edges_and_nowhere(cuda):
    image = norch.full((1, 1, 3, 3), 2.0, device=cuda)
    offset = norch.zeros(1, 2, 3, 3, device=cuda)
    offset[0, :, 0, 0] = 1.5
    offset[0, 0, 0, 1], offset[0, 0, 0, 2] = float("nan"), float("inf")
    offset[0, 1, 1, 0], offset[0, 0, 1, 2], offset[0, 0, 2, 1] = -1e30, 1e9, 0.5
    found = norch.deform_columns(image, offset, None, (1, 1), (1, 1), (0, 0), (1, 1)).cpu().reshape(3, 3)
    assert found.tolist() == [[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [2.0, 1.0, 2.0]]
