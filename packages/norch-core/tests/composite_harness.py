"""What the tests of composites share: arrays, layouts, checks of derivatives, and oracles."""

from __future__ import annotations

import math

import numpy as np

import norch
from norch.testing.gradcheck import gradcheck, gradgradcheck

RNG = np.random.default_rng(7)


def draw(*shape, low=-2.0, high=2.0):
    """Numbers in a range, none within 0.05 of a kink of any op here (0, ±1, ±2, ±3)."""
    values = RNG.uniform(low, high, shape)
    near = np.abs(values - np.round(values)) < 0.05
    return np.where(near, values + 0.11, values)


def leaf(array):
    return norch.tensor(np.asarray(array, dtype=np.float64), dtype=norch.float64, requires_grad=True)


def const(array):
    array = np.asarray(array)
    return norch.tensor(array, dtype=norch.float64 if array.dtype.kind == "f" else None)


def assert_close(got, expected, bound=1e-10):
    expected = np.asarray(expected)
    assert tuple(got.shape) == expected.shape
    np.testing.assert_allclose(got.detach().double().numpy(), expected, bound, bound)


def check(function, *arrays, second=True):
    """First and second derivatives of `function` of float64 leaves."""
    assert gradcheck(function, [leaf(a) for a in arrays])
    if second:
        assert gradgradcheck(function, [leaf(a) for a in arrays], fast_mode=True)


def layouts(array):
    """The same values in memory that is contiguous, transposed, offset, and stepped over."""
    plain = const(array)
    yield plain
    if array.ndim > 1:
        yield const(np.ascontiguousarray(array.swapaxes(0, -1))).transpose(0, -1)
    yield norch.cat([plain[:1], plain])[1:]
    yield norch.stack([plain, plain + 9], -1)[..., 0]


def sigmoid(v):
    return 1 / (1 + math.exp(-v)) if v > -700 else 0.0


def softplus(v, beta=1.0, threshold=20.0):
    return v if v * beta > threshold else math.log1p(math.exp(v * beta)) / beta


def softmax_rows(a, axis):
    """The softmax along an axis, row by row."""
    out = np.empty_like(a)
    moved, view = np.moveaxis(a, axis, -1), np.moveaxis(out, axis, -1)
    for at in np.ndindex(moved.shape[:-1]):
        row = [math.exp(v - max(moved[at])) for v in moved[at]]
        view[at] = np.array(row) / sum(row)
    return out


def pair_for(*shape):
    """Two arrays of probabilities; neither they nor their difference come near a kink."""
    return draw(*shape, low=0.1, high=0.3), draw(*shape, low=0.4, high=0.85)
