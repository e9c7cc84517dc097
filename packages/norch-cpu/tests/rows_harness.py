"""What the tests of softmax, activations and losses share: layouts, tolerances, and gradients of both backends."""

from __future__ import annotations

import numpy as np

import norch

BOUNDS = {"float64": 1e-12, "float32": 3e-6, "float16": 3e-3, "bfloat16": 2.5e-2}
FLOATS = [norch.float64, norch.float32, norch.float16, norch.bfloat16]
LAYOUTS = ["plain", "transposed", "stepped", "offset", "expanded"]


def draw(*shape, low=-3.0, high=3.0, seed=0):
    return np.random.default_rng(seed).uniform(low, high, shape)


def tensor(values, dtype=norch.float32, layout="plain"):
    """A tensor of `values` in a layout; "expanded" repeats the first slice."""
    if layout == "transposed":
        return norch.tensor(np.ascontiguousarray(values.T), dtype=dtype).permute(*reversed(range(values.ndim)))
    if layout == "stepped":
        return norch.tensor(np.repeat(values, 2, -1), dtype=dtype)[..., ::2]
    if layout == "offset":
        return norch.tensor(np.concatenate([values[:1], values]), dtype=dtype)[1:]
    if layout == "expanded":
        return norch.tensor(values[:1], dtype=dtype).expand(*values.shape)
    return norch.tensor(values, dtype=dtype)


def exact(x):
    """The numbers that a tensor holds, in float64."""
    return x.detach().double().numpy()


def assert_close(got, expected, dtype=norch.float32, loose=1.0):
    bound = BOUNDS[dtype.name] * loose
    assert got.dtype is dtype
    assert tuple(got.shape) == np.shape(expected)
    np.testing.assert_allclose(exact(got), expected, bound, bound)


def gradient(function, x, g):
    """The gradient of `function` at x for the gradient g of its result."""
    x = x.detach().requires_grad_()
    return norch.autograd.grad(function(x), x, g)[0]


def numbers_close(a, b):
    np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
    np.testing.assert_allclose(a, b, 3e-6, 3e-6)
