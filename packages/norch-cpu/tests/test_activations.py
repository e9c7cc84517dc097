"""Activations and the gradients of elementwise ops, against Python's math."""

from __future__ import annotations

import math

import numpy as np
import pytest
from rows_harness import FLOATS, LAYOUTS, assert_close, draw, exact, gradient, numbers_close, tensor

import norch


def sigmoid(v):
    return 1 / (1 + math.exp(-v)) if v > 0 else math.exp(v) / (1 + math.exp(v))


def normal(v):
    return math.erfc(-v / math.sqrt(2)) / 2


def gate(v):
    return math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))


def gate_slope(v):
    return (1 - gate(v) ** 2) * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * v * v)


# name: function, its oracle, the oracle's derivative
ACTIVATIONS = {
    "relu": (norch.relu, lambda v: max(v, 0.0), lambda v: float(v > 0)),
    "leaky_relu": (
        lambda x: norch.leaky_relu(x, 0.2),
        lambda v: v if v > 0 else 0.2 * v,
        lambda v: 1 if v > 0 else 0.2,
    ),
    "elu": (
        lambda x: norch.elu(x, 0.7),
        lambda v: v if v > 0 else 0.7 * math.expm1(v),
        lambda v: 1 if v > 0 else 0.7 * math.exp(v),
    ),
    "celu": (
        lambda x: norch.celu(x, 0.5),
        lambda v: v if v > 0 else 0.5 * math.expm1(2 * v),
        lambda v: 1 if v > 0 else math.exp(2 * v),
    ),
    "hardtanh": (
        lambda x: norch.hardtanh(x, -1.5, 0.5),
        lambda v: min(max(v, -1.5), 0.5),
        lambda v: float(-1.5 < v < 0.5),
    ),
    "hardsigmoid": (
        norch.hardsigmoid,
        lambda v: min(max(v + 3, 0.0), 6.0) / 6,
        lambda v: float(-3 < v < 3) / 6,
    ),
    "hardswish": (
        norch.hardswish,
        lambda v: v * min(max(v + 3, 0.0), 6.0) / 6,
        lambda v: 0 if v <= -3 else 1 if v >= 3 else v / 3 + 0.5,
    ),
    "threshold": (
        lambda x: norch.threshold(x, 0.25, -2.0),
        lambda v: v if v > 0.25 else -2.0,
        lambda v: float(v > 0.25),
    ),
    "gelu": (
        norch.gelu,
        lambda v: v * normal(v),
        lambda v: normal(v) + v * math.exp(-v * v / 2) / math.sqrt(2 * math.pi),
    ),
    "gelu_tanh": (
        lambda x: norch.gelu(x, "tanh"),
        lambda v: v * (1 + gate(v)) / 2,
        lambda v: (1 + gate(v)) / 2 + v * gate_slope(v) / 2,
    ),
    "silu": (norch.silu, lambda v: v * sigmoid(v), lambda v: sigmoid(v) * (1 + v * (1 - sigmoid(v)))),
    "softplus": (
        lambda x: norch.softplus(x, 2.0, 4.0),
        lambda v: v if 2 * v > 4 else math.log1p(math.exp(2 * v)) / 2,
        lambda v: 1 if 2 * v > 4 else sigmoid(2 * v),
    ),
    "tanh": (norch.tanh, math.tanh, lambda v: 1 - math.tanh(v) ** 2),
    "sigmoid": (norch.sigmoid, sigmoid, lambda v: sigmoid(v) * (1 - sigmoid(v))),
}
every = pytest.mark.parametrize("name", ACTIVATIONS)


def by_element(function, v):
    return np.vectorize(function, otypes=[np.float64])(v) if v.size else v


def check(name, x, dtype=norch.float32, layout="plain"):
    function, oracle, derivative = ACTIVATIONS[name]
    v = exact(x)
    assert_close(function(x), by_element(oracle, v), dtype, 4)
    g = tensor(draw(*v.shape, low=-1, high=1, seed=1), dtype, layout)
    # A rule that works on the rounded result of a 16-bit dtype has that rounding in its gradient.
    assert_close(gradient(function, x, g), exact(g) * by_element(derivative, v), dtype, 6)


@every
@pytest.mark.parametrize("n", [0, 1, 3, 17, 100, 4099])
def test_sizes(name, n):
    check(name, tensor(draw(n, low=-6, high=6)))


@every
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_and_dtypes(name, layout):
    for dtype in FLOATS:
        check(name, tensor(draw(5, 7, 9, seed=2), dtype, layout), dtype, layout)


@every
def test_gradients_of_mixed_layouts(name):
    function, _, derivative = ACTIVATIONS[name]
    x, g = tensor(draw(40, 30), layout="transposed"), tensor(draw(40, 30, seed=1))
    slopes = by_element(derivative, exact(x))
    assert_close(gradient(function, x, g), exact(g) * slopes, loose=6)
    assert_close(gradient(function, x, norch.tensor(2.0).expand(40, 30)), 2 * slopes, loose=6)
    assert_close(gradient(function, x, norch.tensor([[1.0], [3.0]]).expand(2, 20).reshape(40, 1).expand(40, 30)),
                 np.repeat([1.0, 3.0], 20)[:, None] * slopes, loose=8)  # fmt: skip


def test_they_are_native():
    from norch_cpu.native import native

    forward = (
        "relu leaky_relu elu hardtanh hardsigmoid hardswish threshold gelu silu softplus softmax log_softmax nll_loss "
        "cross_entropy mse_loss".split()
    )
    assert {*forward, *(f"{name}_grad" for name in (*forward, "tanh", "sigmoid"))} <= set(native.ops())


def test_many_threads_worth():
    v = draw(300_000, low=-8, high=8)
    x, g = tensor(v), tensor(draw(300_000, seed=1))
    assert_close(norch.relu(x), np.maximum(exact(x), 0))
    assert_close(gradient(norch.relu, x, g), np.where(exact(x) > 0, exact(g), 0))
    t = np.tanh(np.sqrt(2 / np.pi) * (exact(x) + 0.044715 * exact(x) ** 3))
    assert_close(norch.gelu(x, "tanh"), exact(x) * (1 + t) / 2, loose=4)
    assert_close(norch.silu(x), exact(x) / (1 + np.exp(-exact(x))), loose=4)


@every
def test_special_values(name):
    function, oracle, _ = ACTIVATIONS[name]
    found = exact(function(norch.tensor([math.nan, math.inf, -math.inf, 0.0, 100.0, -100.0, 1e-30] * 5)))
    far = {math.inf: oracle(1000.0) if name != "gelu_tanh" else 1000.0, -math.inf: 0.0}
    assert np.isnan(found[0])
    assert np.isinf(found[1]) if abs(far[math.inf]) >= 1000 else found[1] == pytest.approx(far[math.inf])
    numbers_close(found[3:7], by_element(oracle, np.array([0.0, 100.0, -100.0, 1e-30])))
    np.testing.assert_array_equal(found[:7], found[7:14])


@pytest.mark.parametrize("dtype", [norch.int64, norch.int32, norch.int16, norch.int8], ids=str)
def test_relu_of_integers(dtype):
    x = norch.tensor([[-3, 0, 5], [7, -128, 127]], dtype=dtype)
    assert norch.relu(x).tolist() == [[0, 0, 5], [7, 0, 127]]
    assert norch.relu(x.T).dtype is dtype
    assert norch.relu(norch.tensor([3, 255], dtype=norch.uint8)).tolist() == [3, 255]


def test_second_derivatives():
    from norch.testing.gradcheck import gradgradcheck

    for name, (function, _, _) in ACTIVATIONS.items():
        x = norch.tensor([-2.3, -0.7, 0.3, 1.1], dtype=norch.float64, requires_grad=True)
        assert gradgradcheck(function, [x], fast_mode=True), name


def test_gradient_of_another_dtype():
    x = norch.tensor([-1.0, 2.0], requires_grad=True)
    (found,) = norch.autograd.grad(norch.relu(x), x, norch.tensor([3.0, 4.0], dtype=norch.float64))
    assert found.dtype is norch.float32
    assert found.tolist() == [0, 4]


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_to_num(dtype):
    x = norch.tensor([math.nan, math.inf, -math.inf, -0.0, 1.5] * 7, dtype=dtype).requires_grad_()
    limits = norch.finfo(dtype)
    assert norch.nan_to_num(x).tolist() == [0.0, limits.max, limits.min, 0.0, 1.5] * 7
    y = norch.nan_to_num(x, 1.0, 2.0, -3.0)
    assert y.tolist() == [1.0, 2.0, -3.0, 0.0, 1.5] * 7
    y.sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.0, 1.0, 1.0] * 7
    assert norch.nan_to_num(x, math.inf).tolist()[0] == math.inf


@pytest.mark.parametrize("scale", [1, 1e-4, 1e-10])
def test_gradients_of_gelu_are_not_subnormal(scale):
    """Products with such numbers take Intel's processors many times as long."""
    x = norch.linspace(-20, -9, 4000).requires_grad_()
    norch.gelu(x).backward(norch.full_like(x, scale))
    size = np.abs(x.grad.numpy())
    assert ((size == 0) | (size >= np.finfo(np.float32).tiny)).all()
    np.testing.assert_allclose(size, 0, atol=1e-17 * scale)
