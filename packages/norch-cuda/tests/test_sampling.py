"""grid_sample of images and volumes, and its gradients, beside their decompositions on the CPU."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import norch
from norch.ops.families import by_name
from norch.ops.nn.sampling import (
    grid_sample2d,
    grid_sample2d_grid_grad,
    grid_sample2d_input_grad,
    grid_sample3d,
    grid_sample3d_grid_grad,
    grid_sample3d_input_grad,
)
from norch.testing import assert_close

RNG = np.random.default_rng(0)
FORWARD, INPUT, GRID = (
    by_name()[name].decompose for name in ("grid_sample2d", "grid_sample2d_input_grad", "grid_sample2d_grid_grad")
)
OPS = {
    4: (grid_sample2d, grid_sample2d_input_grad, grid_sample2d_grid_grad),
    5: (grid_sample3d, grid_sample3d_input_grad, grid_sample3d_grid_grad),
}
SETTINGS = list(itertools.product(["bilinear", "nearest"], ["zeros", "border", "reflection"], [False, True]))


def numbers(*shape):
    return norch.tensor(RNG.standard_normal(shape))


def check(cuda, image, grid, settings, dtype, strided=False):
    """`image` and `grid` are float64 on the CPU, and numbers of `dtype`."""
    sample, input_grad, grid_grad = OPS[image.ndim]
    tolerance = 2e-4 if dtype is norch.float32 else 1e-10

    def there(x):
        x = x.to(cuda, dtype)
        return x.transpose(1, 2).contiguous().transpose(1, 2) if strided else x

    close = {"rtol": tolerance, "atol": tolerance}
    wanted = FORWARD(image, grid, *settings)
    assert_close(sample(there(image), there(grid), *settings).cpu().double(), wanted, **close)
    grad = norch.tensor(RNG.standard_normal(tuple(wanted.shape)), dtype=dtype).double()
    shape = tuple(image.shape)
    results = [input_grad(there(grad), there(grid), shape, *settings).cpu() for _ in range(2)]
    assert_close(results[0].double(), INPUT(grad, grid, shape, *settings), **close)
    assert norch.equal(*results)
    found = grid_grad(there(grad), there(image), there(grid), *settings).cpu().double()
    assert_close(found, GRID(grad, image, grid, *settings), **close)


def places(*shape, spread=1.5):
    """Numbers of float32, away from where neighbours or slopes change by rounding."""
    grid = RNG.uniform(-spread, spread, shape)
    return norch.tensor(np.floor(grid * 4096) / 4096 + 1 / 9973, dtype=norch.float32).double()


@pytest.mark.parametrize("dtype", [norch.float32, norch.float64])
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize(
    ("shape", "out"),
    [
        ((2, 3, 5, 7), (4, 6)),
        ((1, 19, 8, 4), (3, 40)),
        ((3, 8, 1, 6), (5, 1)),
        ((2, 1, 33, 20), (1, 300)),
        ((2, 3, 4, 5, 6), (3, 2, 5)),
        ((1, 9, 2, 7, 1), (1, 40, 3)),
        ((2, 1, 6, 3, 9), (5, 1, 20)),
    ],
)
def test_kernels_agree_with_the_decompositions(cuda, dtype, settings, shape, out):
    image, size = numbers(*shape).to(dtype).double(), (shape[0], *out, len(out))
    check(cuda, image, places(*size), settings, dtype)
    check(cuda, image, places(*size), settings, dtype, strided=True)


@pytest.mark.parametrize("settings", SETTINGS)
def test_places_that_are_no_numbers_or_far_away(cuda, settings):
    grid = places(2, 4, 5, 2)
    grid[0, 0, :3] = norch.tensor([[float("nan"), 0.1], [0.1, float("nan")], [float("nan"), float("nan")]]).double()
    grid[0, 1, :4] = norch.tensor([[float("inf"), 0.1], [0.1, float("-inf")], [3e9, 0.1], [0.1, -7e18]]).double()
    if settings[1] == "reflection":
        grid[0, 1, 2:4] = 0.1  # where these fall depends on the dtype
    check(cuda, numbers(2, 3, 6, 5), grid, settings, norch.float64)


@pytest.mark.parametrize("settings", SETTINGS)
def test_many_places_in_few_cells(cuda, settings):
    grid = places(2, 40, 50, 2, spread=0.01)
    grid[1] = 4.0 + 1 / 9973  # all at a border
    check(cuda, numbers(2, 9, 3, 2), grid, settings, norch.float64)
    grid = places(1, 5, 20, 30, 3, spread=0.01)
    check(cuda, numbers(1, 2, 2, 3, 2), grid, settings, norch.float64)


def test_what_lies_outside_is_not_read(cuda):
    image = norch.full((1, 1, 2, 2), float("nan"), device=cuda)
    image[0, 0, 1, 1] = 1.0
    grid = norch.tensor([[[[1.5, 1.5], [0.5, 0.5]]]], device=cuda)
    assert grid_sample2d(image, grid, "bilinear", "zeros", False).cpu().tolist() == [[[[0.0, 1.0]]]]


@pytest.mark.parametrize(("shape", "out"), [((0, 3, 4, 4), (2, 2)), ((2, 0, 4, 4), (2, 2)), ((2, 3, 4, 4), (0, 2))])
def test_empty_ones(cuda, shape, out):
    image, grid = norch.ones(shape, device=cuda), norch.zeros(shape[0], *out, 2, device=cuda)
    found = grid_sample2d(image, grid, "bilinear", "zeros", False)
    assert found.shape == (*shape[:2], *out)
    assert grid_sample2d_input_grad(found, grid, shape, "bilinear", "zeros", False).cpu().sum().item() == 0
    assert grid_sample2d_grid_grad(found, image, grid, "bilinear", "zeros", False).cpu().sum().item() == 0


def test_small_gradients_beside_large_ones_keep_their_digits(cuda):
    grid = norch.tensor([[[[-0.5, -0.5], [0.5, 0.5]]]], device=cuda)
    grad = norch.tensor([[[[1e30, 1e-30]]]], device=cuda)
    found = grid_sample2d_input_grad(grad, grid, (1, 1, 2, 2), "bilinear", "zeros", False).cpu()
    assert_close(found[0, 0, 1, 1], norch.tensor(1e-30), rtol=1e-6, atol=0)
