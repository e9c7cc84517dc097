"""Windows of images as columns, and back, on a device: what the tests of both native packages check."""

from __future__ import annotations

import itertools

import numpy as np

import norch

RNG = np.random.default_rng(0)
WINDOWS = [
    ((3, 3), (1, 1), (1, 1), (1, 1)),
    ((2, 3), (2, 1), (0, 2), (1, 2)),
    ((4, 1), (1, 3), (3, 0), (3, 1)),
    ((1, 5), (1, 1), (0, 4), (1, 7)),
    ((2, 2), (1, 1), (0, 0), (2, 2)),
]
"""Kernel, dilation, padding and stride."""
SHAPES = [(2, 3, 8, 9), (1, 1, 7, 40), (3, 5, 5, 6)]
DTYPES = [norch.float32, norch.float64, norch.float16, norch.bfloat16, norch.int64, norch.bool]
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


def check_columns(device, shape, windows, dtype):
    values = RNG.integers(-9, 9, shape).astype(bool if dtype is norch.bool else np.float64)
    x = norch.tensor(values, dtype=dtype, device=device)
    last = x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    for given in (x, last):
        found = norch.im2col(given, *windows)
        assert found.dtype is dtype
        np.testing.assert_array_equal(found.cpu().to(norch.float64).numpy(), columns(values, *windows))


def check_sums_of_columns(device, shape, windows, dtype):
    at = places(shape, windows)
    x = norch.tensor(RNG.standard_normal(at.shape), dtype=dtype, device=device)
    wanted = np.zeros(np.prod(shape) + 1)
    np.add.at(wanted, at.reshape(-1), x.cpu().double().numpy().reshape(-1))
    turned = x.transpose(1, 2).contiguous().transpose(1, 2)
    for given in (x, turned):
        found = norch.col2im(given, shape[2:], *windows)
        assert found.dtype is dtype
        near = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
        np.testing.assert_allclose(found.cpu().double().numpy(), wanted[:-1].reshape(shape), **near)
        assert norch.equal(norch.col2im(given, shape[2:], *windows), found)


def check_each_is_the_gradient_of_the_other(device):
    x = norch.tensor(RNG.standard_normal((2, 3, 5, 6)), device=device).requires_grad_()
    found = norch.im2col(x, *WINDOWS[0])
    grad = norch.tensor(RNG.standard_normal(tuple(found.shape)), device=device)
    found.backward(grad)
    assert norch.equal(x.grad, norch.col2im(grad, (5, 6), *WINDOWS[0]))
    y = grad.clone().requires_grad_()
    norch.col2im(y, (5, 6), *WINDOWS[0]).backward(x.detach())
    assert norch.equal(y.grad, norch.im2col(x.detach(), *WINDOWS[0]))


def check_no_images(device):
    assert norch.im2col(norch.ones(0, 3, 4, 4, device=device), *WINDOWS[0]).shape == (0, 27, 16)
    assert norch.col2im(norch.ones(0, 27, 16, device=device), (4, 4), *WINDOWS[0]).shape == (0, 3, 4, 4)
