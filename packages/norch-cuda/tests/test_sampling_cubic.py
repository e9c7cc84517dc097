"""Bicubic grid_sample and its gradients, beside their decompositions on the CPU."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import norch
from norch.ops.families import by_name
from norch.ops.nn.sampling import (
    grid_sample2d_bicubic,
    grid_sample2d_bicubic_grid_grad,
    grid_sample2d_bicubic_input_grad,
)
from norch.testing import assert_close

RNG = np.random.default_rng(0)
OPS = grid_sample2d_bicubic, grid_sample2d_bicubic_input_grad, grid_sample2d_bicubic_grid_grad
FORWARD, INPUT, GRID = (by_name()[op.__name__].decompose for op in OPS)
SETTINGS = [("bicubic", *rest) for rest in itertools.product(["zeros", "border", "reflection"], [False, True])]


def numbers(*shape):
    return norch.tensor(RNG.standard_normal(shape))


def places(*shape, spread=1.5):
    """Numbers of float32, away from where neighbours change by rounding."""
    grid = RNG.uniform(-spread, spread, shape)
    return norch.tensor(np.floor(grid * 4096) / 4096 + 1 / 9973, dtype=norch.float32).double()


def check(cuda, image, grid, settings, dtype, strided=False, wide=1.0):
    """`image` and `grid` are float64 on the CPU, and numbers of `dtype`; the tolerance is `wide` times the usual."""
    sample, input_grad, grid_grad = OPS
    tolerance = wide * (2e-4 if dtype is norch.float32 else 1e-10)

    def there(x):
        x = x.to(cuda, dtype)
        return x.transpose(1, 2).contiguous().transpose(1, 2) if strided else x

    close = {"rtol": tolerance, "atol": tolerance, "equal_nan": True}
    wanted = FORWARD(image, grid, *settings)
    assert_close(sample(there(image), there(grid), *settings).cpu().double(), wanted, **close)
    grad = norch.tensor(RNG.standard_normal(tuple(wanted.shape)), dtype=dtype).double()
    shape = tuple(image.shape)
    results = [input_grad(there(grad), there(grid), shape, *settings).cpu().double() for _ in range(2)]
    assert_close(results[0], INPUT(grad, grid, shape, *settings), **close)
    assert np.array_equal(results[0].numpy(), results[1].numpy(), equal_nan=True)
    found = grid_grad(there(grad), there(image), there(grid), *settings).cpu().double()
    assert_close(found, GRID(grad, image, grid, *settings), **close)


@pytest.mark.parametrize("dtype", [norch.float32, norch.float64])
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize(
    ("shape", "out"),
    [
        ((2, 3, 5, 7), (4, 6)),
        ((1, 19, 8, 4), (3, 40)),
        ((3, 8, 1, 6), (5, 1)),
        ((1, 2, 2, 1), (9, 8)),
        ((1, 1, 3, 2), (17, 30)),
        ((2, 1, 33, 20), (1, 300)),
    ],
)
def test_kernels_agree_with_the_decompositions(cuda, dtype, settings, shape, out):
    image, size = numbers(*shape).to(dtype).double(), (shape[0], *out, 2)
    check(cuda, image, places(*size), settings, dtype, wide=3)
    check(cuda, image, places(*size), settings, dtype, strided=True, wide=3)
    check(cuda, image, places(*size, spread=9), settings, dtype, wide=30)


@pytest.mark.parametrize("settings", SETTINGS)
def test_places_that_are_no_numbers_or_far_away(cuda, settings):
    grid = places(2, 4, 5, 2)
    grid[0, 0, :3] = norch.tensor([[float("nan"), 0.1], [0.1, float("nan")], [float("nan"), float("nan")]]).double()
    grid[0, 1, :4] = norch.tensor([[float("inf"), 0.1], [0.1, float("-inf")], [3e9, 0.1], [0.1, -7e18]]).double()
    if settings[1] == "reflection":
        grid[0, 1, :4] = 0.1  # where these fall depends on the dtype
    check(cuda, numbers(2, 3, 6, 5), grid, settings, norch.float64)


@pytest.mark.parametrize("settings", SETTINGS)
def test_many_places_in_few_cells(cuda, settings):
    grid = places(2, 40, 50, 2, spread=0.01)
    grid[1] = 4.0 + 1 / 9973  # all beyond a border
    check(cuda, numbers(2, 9, 3, 2), grid, settings, norch.float64)


@pytest.mark.parametrize(("shape", "out"), [((0, 3, 4, 4), (2, 2)), ((2, 0, 4, 4), (2, 2)), ((2, 3, 4, 4), (0, 2))])
def test_empty_ones(cuda, shape, out):
    image, grid = norch.ones(shape, device=cuda), norch.zeros(shape[0], *out, 2, device=cuda)
    sample, input_grad, grid_grad = OPS
    found = sample(image, grid, *SETTINGS[0])
    assert found.shape == (*shape[:2], *out)
    assert input_grad(found, grid, shape, *SETTINGS[0]).cpu().sum().item() == 0
    assert grid_grad(found, image, grid, *SETTINGS[0]).cpu().sum().item() == 0
