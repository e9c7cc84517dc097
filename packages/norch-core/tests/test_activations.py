"""Activations and softmax, against math."""

from __future__ import annotations

import math

import numpy as np
import pytest
from composite_harness import assert_close, check, const, draw, layouts, sigmoid, softmax_rows, softplus

import norch


def phi(v):
    return 0.5 * (1 + math.erf(v / math.sqrt(2)))


def tanh_gelu(v):
    return 0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)))


SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805

ACTIVATIONS = {
    "relu": (norch.relu, {}, lambda v: max(v, 0.0)),
    "leaky_relu": (norch.leaky_relu, {}, lambda v: v if v > 0 else 0.01 * v),
    "leaky_relu_slope": (norch.leaky_relu, {"negative_slope": -0.3}, lambda v: v if v > 0 else -0.3 * v),
    "elu": (norch.elu, {"alpha": 0.7}, lambda v: v if v > 0 else 0.7 * math.expm1(v)),
    "selu": (norch.selu, {}, lambda v: SELU_SCALE * (v if v > 0 else SELU_ALPHA * math.expm1(v))),
    "celu": (norch.celu, {"alpha": 1.7}, lambda v: v if v > 0 else 1.7 * math.expm1(v / 1.7)),
    "relu6": (norch.relu6, {}, lambda v: min(max(v, 0.0), 6.0)),
    "hardtanh": (norch.hardtanh, {"min_val": -1.5, "max_val": 0.5}, lambda v: min(max(v, -1.5), 0.5)),
    "hardsigmoid": (norch.hardsigmoid, {}, lambda v: min(max(v + 3, 0.0), 6.0) / 6),
    "hardswish": (norch.hardswish, {}, lambda v: v * min(max(v + 3, 0.0), 6.0) / 6),
    "gelu": (norch.gelu, {}, lambda v: v * phi(v)),
    "gelu_tanh": (norch.gelu, {"approximate": "tanh"}, tanh_gelu),
    "silu": (norch.silu, {}, lambda v: v * sigmoid(v)),
    "mish": (norch.mish, {}, lambda v: v * math.tanh(softplus(v))),
    "softplus": (norch.softplus, {}, softplus),
    "softplus_beta": (norch.softplus, {"beta": 2.0, "threshold": 3.1}, lambda v: softplus(v, 2.0, 3.1)),
    "hardshrink": (norch.hardshrink, {"lambd": 0.7}, lambda v: v if abs(v) > 0.7 else 0.0),
    "softshrink": (norch.softshrink, {"lambd": 0.7}, lambda v: v - max(min(v, 0.7), -0.7)),
    "softsign": (norch.softsign, {}, lambda v: v / (1 + abs(v))),
    "logsigmoid": (norch.logsigmoid, {}, lambda v: -softplus(-v, threshold=700)),
}
each_activation = pytest.mark.parametrize("name", ACTIVATIONS)


@each_activation
def test_activation_values_in_every_layout(name):
    function, args, oracle = ACTIVATIONS[name]
    values = np.concatenate([draw(2, 3, 4, low=-4, high=8), np.full((2, 3, 1), 30.0), np.full((2, 3, 1), -30.0)], -1)
    expected = np.vectorize(oracle)(values)
    for x in layouts(values):
        assert_close(function(x, **args), expected)
    assert_close(function(const(1.25), **args), oracle(1.25))
    assert tuple(function(norch.zeros(0, 3), **args).shape) == (0, 3)


@each_activation
def test_activation_gradients(name):
    function, args, _ = ACTIVATIONS[name]
    values = draw(3, 4, low=-4, high=4)
    check(lambda x: function(x, **args), values)
    check(lambda x: function(x.transpose(0, 1)[1:, ::2], **args), values, second=False)


@each_activation
@pytest.mark.parametrize(("dtype", "bound"), [(norch.float16, 4e-3), (norch.bfloat16, 4e-2), (norch.float32, 1e-5)])
def test_activation_keeps_its_dtype(name, dtype, bound):
    function, args, oracle = ACTIVATIONS[name]
    x = const(draw(20, low=-4, high=4)).to(dtype).requires_grad_()
    out = function(x, **args)
    assert out.dtype is dtype
    assert_close(out, np.vectorize(oracle)(x.detach().double().numpy()), bound)
    out.sum().backward()
    assert x.grad.dtype is dtype


@each_activation
def test_activation_far_from_zero_has_finite_gradients(name):
    function, args, _ = ACTIVATIONS[name]
    x = norch.tensor([-800.0, -90.0, 90.0, 800.0], requires_grad=True)
    function(x, **args).sum().backward()
    assert bool(norch.isfinite(x.grad).all())


@pytest.mark.parametrize("name", sorted(set(ACTIVATIONS) - {"relu", "relu6", "hardtanh", "softsign"}))
def test_floating_activations_refuse_integers(name):
    function, args, _ = ACTIVATIONS[name]
    with pytest.raises(norch.DTypeError):
        function(norch.tensor([1, 2]), **args)


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("relu", (), [0, 2, 9]),
        ("relu6", (), [0, 2, 6]),
        ("hardtanh", (-0.5, 3.9), [0, 2, 3]),
        ("threshold", (2.5, 7.9), [7, 7, 9]),
        ("softsign", (), [-0.75, 2 / 3, 0.9]),
    ],
)
def test_some_take_integers_but_not_bools(name, args, expected):
    x = norch.tensor([-3, 2, 9])
    found = getattr(norch, name)(x, *args)
    assert found.dtype is (norch.float32 if name == "softsign" else norch.int64)
    assert found.tolist() == pytest.approx(expected)
    with pytest.raises(norch.DTypeError, match=r"\(\): "):
        getattr(norch, name)(x > 0, *args)


def test_the_gradient_of_glu_is_finite_where_gradient_times_input_is_not():
    for dtype in (norch.float32, norch.float16):
        largest = norch.finfo(dtype).max
        x = norch.tensor([[-largest, 3.0, 0.0, 0.0]], dtype=dtype, requires_grad=True)
        norch.glu(x).backward(norch.tensor([[2.0, 2.0]], dtype=dtype))
        assert x.grad.tolist() == [[1, 1, -largest / 2, 1.5]]


def test_glu():
    a = draw(3, 4)
    expected = a[:, :2] * np.vectorize(sigmoid)(a[:, 2:])
    assert_close(norch.glu(const(a)), expected)
    assert_close(norch.glu(const(a.T), 0), expected.T)
    check(norch.glu, a)
    with pytest.raises(norch.ShapeError, match=r"glu\(\).*\(3, 3\)"):
        norch.glu(norch.zeros(3, 3))


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax(dim):
    a = draw(2, 3, 4) * 50
    expected = softmax_rows(a, dim)
    for x in layouts(a):
        assert_close(norch.softmax(x, dim), expected)
        assert_close(norch.log_softmax(x, dim).exp(), expected)
        assert_close(norch.softmin(-x, dim), expected)
    small = draw(2, 3, 4)
    check(lambda x: norch.softmax(x, dim), small)
    check(lambda x: norch.log_softmax(x.transpose(0, 2), dim), small)


def test_softmax_of_a_layout_with_a_dim_of_size_1_keeps_its_gradient():
    # Softmax saves its result: that must lie in memory as the rule will read it.
    check(lambda x: norch.softmax(x.transpose(1, 2), 0), draw(1, 3, 4))
    check(lambda x: norch.softmax(x.transpose(1, 2), 0) * 1, draw(1, 3, 4))
    check(lambda x: norch.log_softmax(x.expand(3, 4), 1), draw(1, 4))


@pytest.mark.parametrize("function", [norch.softmax, norch.log_softmax, norch.softmin])
def test_softmax_of_no_elements_and_of_0d(function):
    x = norch.zeros(3, 0, requires_grad=True)
    out = function(x, 1)
    assert tuple(out.shape) == (3, 0)
    out.sum().backward()
    assert tuple(x.grad.shape) == (3, 0)
    assert function(norch.tensor(2.0), 0).item() in (0.0, 1.0)
    with pytest.raises(norch.IndexError):
        function(norch.zeros(2), 1)
    with pytest.raises(norch.DTypeError):
        function(norch.tensor([1]), 0)
    assert function(norch.tensor([1]), 0, dtype=norch.float64).dtype is norch.float64


@pytest.mark.parametrize("function", [norch.softmax, norch.log_softmax])
def test_second_gradients_of_16_bits_do_not_overflow_on_the_way(function):
    """Their sums and products are float32's, as those of the first gradient: float16 ends at 65504."""
    results = []
    for dtype in (norch.float16, norch.float32):
        x = norch.tensor([[0.0, -0.0], [-1.5, 0.0], [-0.25, -2.875], [0.0, 1.0]], dtype=dtype, requires_grad=True)
        y = function(x, 0)
        scale = norch.arange(8.0).reshape(4, 2).to(dtype) * 4
        (first,) = norch.autograd.grad((y * y * scale).sum(), x, create_graph=True)
        (second,) = norch.autograd.grad((first * first).sum(), x)
        results.append(second.float())
    assert results[0].isfinite().all()
    norch.testing.assert_close(results[0], results[1], rtol=0.02, atol=results[1].abs().max().item() / 100)


@pytest.mark.parametrize("slope", [0.25, 0, 1, 2.5, -0.5])
def test_leaky_relu_and_what_it_keeps(slope):
    x = norch.tensor([-2.0, -0.0, 0.0, 1.5, float("nan")], dtype=norch.float64, requires_grad=True)
    kept = []
    with norch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.data_ptr()) or t, lambda t: t):
        y = norch.leaky_relu(x * 1, slope)
    factor = norch.tensor([slope, slope, slope, 1.0, slope], dtype=norch.float64)
    norch.testing.assert_close(y.detach(), x.detach() * factor, rtol=0, atol=0, equal_nan=True)
    assert (y.data_ptr() in kept) == (slope >= 0)
    (first,) = norch.autograd.grad((y[:4] ** 3).sum(), x, create_graph=True)
    norch.testing.assert_close(first.detach()[:4], (3 * x**2 * factor**3).detach()[:4], rtol=1e-12, atol=0)
    (second,) = norch.autograd.grad(first[:4].sum(), x)
    norch.testing.assert_close(second[:4], (6 * x * factor**3).detach()[:4], rtol=1e-12, atol=0)
    with pytest.raises(norch.DTypeError, match="floating"):
        norch.leaky_relu(norch.tensor([1]), slope)
