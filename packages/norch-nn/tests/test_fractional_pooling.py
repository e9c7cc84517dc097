"""Fractional max pooling and CrossMapLRN2d, beside loops that are written as their definitions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import norch
from norch import nn
from norch.nn import functional as F


def starts(u, n, count, kernel):
    if count == 1:
        return [n - kernel]
    step = np.float32((n - kernel) / (count - 1))
    first = int(np.float32(u) * step)
    return [int((np.float32(i) + np.float32(u)) * step) - first for i in range(count - 1)] + [n - kernel]


def by_loops(x, kernel, size, samples):
    dims = len(kernel)
    values = np.empty((*x.shape[:2], *size), x.dtype)
    places = np.empty(values.shape, np.int64)
    for n, c in itertools.product(*map(range, x.shape[:2])):
        u = samples[n, c][::-1] if dims == 2 else samples[n, c]
        begins = [starts(u[d], x.shape[2 + d], size[d], kernel[d]) for d in range(dims)]
        for out in itertools.product(*map(range, size)):
            lows = [begins[d][o] for d, o in enumerate(out)]
            windows = itertools.product(*[range(low, low + k) for low, k in zip(lows, kernel, strict=True)])
            best = max(windows, key=lambda at, n=n, c=c: x[(n, c, *at)])  # the first of equal ones
            values[(n, c, *out)] = x[(n, c, *best)]
            places[(n, c, *out)] = np.ravel_multi_index(best, x.shape[2:])
    return values, places


CASES = [
    ((2, 3, 7, 9), (2, 3), (3, 4)), ((1, 2, 8, 8), (2, 2), (5, 7)), ((1, 1, 4, 4), (3, 1), (1, 4)),
    ((2, 2, 5, 6, 7), (2, 2, 3), (3, 4, 2)), ((1, 2, 4, 4, 4), (1, 2, 2), (4, 1, 3)),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "kernel", "size"), CASES)
def test_values_places_and_gradients(shape, kernel, size):
    dims = len(kernel)
    rng = np.random.default_rng(7)
    x = rng.integers(0, 20, shape).astype(np.float32)
    samples = rng.random((*shape[:2], dims)).astype(np.float32)
    pool = getattr(F, f"fractional_max_pool{dims}d")
    leaf = norch.tensor(x, requires_grad=True)
    found, places = pool(leaf, kernel, size, return_indices=True, _random_samples=norch.tensor(samples))
    values, expected = by_loops(x, kernel, size, samples)
    np.testing.assert_array_equal(found.detach().cpu().numpy(), values)
    np.testing.assert_array_equal(places.cpu().numpy(), expected)
    weights = rng.normal(size=values.shape).astype(np.float32)
    (found * norch.tensor(weights)).sum().backward()
    grad = np.zeros((*shape[:2], np.prod(shape[2:])), np.float32)
    for n, c in itertools.product(*map(range, shape[:2])):
        np.add.at(grad[n, c], expected[n, c].ravel(), weights[n, c].ravel())
    np.testing.assert_allclose(leaf.grad.cpu().numpy(), grad.reshape(shape), rtol=1e-6, atol=1e-6)
    layer = getattr(nn, f"FractionalMaxPool{dims}d")(kernel, size, _random_samples=norch.tensor(samples))
    np.testing.assert_array_equal(layer(norch.tensor(x)).cpu().numpy(), values)


def test_what_is_drawn_ends_at_the_edges():
    x = norch.arange(81.0).reshape(1, 9, 9)
    norch.manual_seed(0)
    drawn = {tuple(F.fractional_max_pool2d(x, 2, output_ratio=0.5).flatten().tolist()) for _ in range(20)}
    assert len(drawn) > 3
    assert all(len(d) == 16 and d[-1] == 80 for d in drawn)
    nan = norch.tensor(float("nan"))
    assert norch.isnan(F.fractional_max_pool2d(x * nan, 2, 3)).all().item()
    values, _ = F.fractional_max_pool2d_with_indices(x, 3, (1, 7))
    assert tuple(values.shape) == (1, 1, 7)


def test_one_image_takes_the_samples_of_the_first():
    x = norch.arange(2.0 * 49).reshape(2, 7, 7).sin()
    samples = norch.rand(3, 2, 2)
    found = F.fractional_max_pool2d(x, 2, 3, _random_samples=samples)
    expected = F.fractional_max_pool2d(x.unsqueeze(0), 2, 3, _random_samples=samples[:1])
    np.testing.assert_array_equal(found.cpu().numpy(), expected[0].cpu().numpy())


def test_wrong_arguments_of_fractional_pooling():
    x = norch.ones(1, 1, 7, 7)
    for arguments in ({}, {"output_size": 2, "output_ratio": 0.5}, {"output_ratio": 1.5}):
        with pytest.raises(ValueError, match="output_"):
            nn.FractionalMaxPool2d(2, **arguments)
    with pytest.raises(ValueError, match="must be given"):
        F.fractional_max_pool2d(x, 2)
    with pytest.raises(norch.ShapeError, match="do not fit"):
        F.fractional_max_pool2d(x, 2, 7)
    with pytest.raises(norch.ShapeError, match="dims"):
        F.fractional_max_pool3d(x[0], 2, 2)
    with pytest.raises(norch.ShapeError, match="samples"):
        F.fractional_max_pool2d(x, 2, 2, _random_samples=norch.ones(1, 1, 3))


@pytest.mark.parametrize("size", [(7, 9), (5, 6, 7)])
def test_more_samples_than_images(size):
    """The first ones are taken, as in PyTorch: a last batch of few images."""
    dims, draw = len(size), np.random.default_rng(3)
    x, samples = draw.normal(size=(1, 3, *size)), draw.uniform(size=(4, 3, dims))
    values, _ = by_loops(x, (2,) * dims, (3,) * dims, samples)
    pool = F.fractional_max_pool2d if dims == 2 else F.fractional_max_pool3d
    found = pool(norch.tensor(x), 2, 3, _random_samples=norch.tensor(samples))
    np.testing.assert_array_equal(found.cpu().numpy(), values)
    with pytest.raises(norch.ShapeError, match="samples"):
        pool(norch.tensor(x), 2, 3, _random_samples=norch.tensor(samples[:0]))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 9])
def test_cross_map_normalization(size):
    x = np.random.default_rng(2).normal(size=(2, 6, 2, 3))
    squares, before = x**2, int((size - 1) / 2 + 1)
    scale = np.empty_like(x)  # a running sum over channels, as Torch wrote it
    scale[:, 0] = squares[:, : min(before, 6)].sum(1)
    for c in range(1, 6):
        scale[:, c] = scale[:, c - 1]
        if c < 6 - before + 1:
            scale[:, c] += squares[:, c + before - 1]
        if c > before:
            scale[:, c] -= squares[:, c - before]
    expected = x * (scale * (0.9 / size) + 1.5) ** -0.6
    layer = nn.CrossMapLRN2d(size, 0.9, 0.6, 1.5)
    leaf = norch.tensor(x, dtype=norch.float64, requires_grad=True)
    np.testing.assert_allclose(layer(leaf).detach().cpu().numpy(), expected, rtol=1e-12)
    assert norch.autograd.gradcheck(layer, (leaf,))
    assert repr(nn.CrossMapLRN2d(3)) == "CrossMapLRN2d(3, alpha=0.0001, beta=0.75, k=1)"
    with pytest.raises(norch.ShapeError, match="4 dims"):
        layer(norch.ones(3))
