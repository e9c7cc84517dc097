"""Windows of images as columns, and back."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import norch

RNG = np.random.default_rng(0)
WINDOWS = [
    ((3, 3), (1, 1), (1, 1), (1, 1)),
    ((2, 3), (2, 1), (0, 2), (1, 2)),
    ((4, 1), (1, 3), (3, 0), (3, 1)),
    ((1, 5), (1, 1), (0, 4), (1, 7)),
    ((2, 2), (1, 1), (0, 0), (2, 2)),
]
TOLERANCE = {norch.float64: 1e-12, norch.float32: 1e-5, norch.float16: 1e-2, norch.bfloat16: 6e-2}


def columns(values, kernel, dilation, padding, stride):
    """By NumPy, a place of the windows at a time."""
    padded = np.pad(values, ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))
    count = [(n - d * (k - 1) - 1) // s + 1 for n, k, d, s in zip(padded.shape[2:], kernel, dilation, stride)]
    found = np.empty((*values.shape[:2], *kernel, *count), values.dtype)
    for i, j in itertools.product(*map(range, kernel)):
        rows, across = (k * d for k, d in zip((i, j), dilation))
        found[:, :, i, j] = padded[:, :, rows :: stride[0], across :: stride[1]][:, :, : count[0], : count[1]]
    return found.reshape(values.shape[0], -1, count[0] * count[1])


def places(shape, windows):
    """For each element of the columns of images which element of the images it is, -1 for none."""
    return columns(np.arange(1, np.prod(shape) + 1).reshape(shape), *windows) - 1


@pytest.mark.parametrize(
    "dtype", [norch.float32, norch.float64, norch.float16, norch.bfloat16, norch.int64, norch.bool]
)
@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("shape", [(2, 3, 8, 9), (1, 1, 7, 40), (3, 5, 5, 6)])
def test_columns(cuda, shape, windows, dtype):
    values = RNG.integers(-9, 9, shape).astype(bool if dtype is norch.bool else np.float64)
    x = norch.tensor(values, dtype=dtype, device=cuda)
    last = x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    for given in (x, last):
        found = norch.im2col(given, *windows)
        assert found.dtype is dtype
        np.testing.assert_array_equal(found.cpu().to(norch.float64).numpy(), columns(values, *windows))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("shape", [(2, 3, 8, 9), (1, 1, 7, 40), (3, 5, 5, 6)])
def test_sums_of_columns(cuda, shape, windows, dtype):
    at = places(shape, windows)
    x = norch.tensor(RNG.standard_normal(at.shape), dtype=dtype, device=cuda)
    wanted = np.zeros(np.prod(shape) + 1)
    np.add.at(wanted, at.reshape(-1), x.cpu().double().numpy().reshape(-1))
    turned = x.transpose(1, 2).contiguous().transpose(1, 2)
    for given in (x, turned):
        found = norch.col2im(given, shape[2:], *windows)
        assert found.dtype is dtype
        near = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
        np.testing.assert_allclose(found.cpu().double().numpy(), wanted[:-1].reshape(shape), **near)
        assert norch.equal(norch.col2im(given, shape[2:], *windows), found)


def test_each_is_the_gradient_of_the_other(cuda):
    x = norch.tensor(RNG.standard_normal((2, 3, 5, 6)), device=cuda).requires_grad_()
    found = norch.im2col(x, *WINDOWS[0])
    grad = norch.tensor(RNG.standard_normal(tuple(found.shape)), device=cuda)
    found.backward(grad)
    assert norch.equal(x.grad, norch.col2im(grad, (5, 6), *WINDOWS[0]))
    y = grad.clone().requires_grad_()
    norch.col2im(y, (5, 6), *WINDOWS[0]).backward(x.detach())
    assert norch.equal(y.grad, norch.im2col(x.detach(), *WINDOWS[0]))


def test_no_images(cuda):
    assert norch.im2col(norch.ones(0, 3, 4, 4, device=cuda), *WINDOWS[0]).shape == (0, 27, 16)
    assert norch.col2im(norch.ones(0, 27, 16, device=cuda), (4, 4), *WINDOWS[0]).shape == (0, 3, 4, 4)


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
