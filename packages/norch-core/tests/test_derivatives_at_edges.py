"""Derivatives where a formula breaks down, at zeros, ties, bounds, infinities and NaN: what PyTorch gives there."""

from __future__ import annotations

import math
from typing import Any

import pytest

import norch

INF, NAN = math.inf, math.nan


# An expression, the values of x, and the gradient of its sum, from PyTorch 2.13.
CASES: list[Any] = [
    ("x ** 0", [0, 2], [0, 0]),
    ("x ** 1", [0, -2], [1, 1]),
    ("x ** True", [0, -2], [1, 1]),
    ("True ** x", [0, 3], [0, 0]),
    ("x ** 2", [0, -3], [0, -6]),
    ("x ** 0.5", [0, 4], [INF, 0.25]),
    ("x ** -1", [0, 2], [-INF, -0.25]),
    ("x ** tensor([0., 1., 2., 0.])", [0, 0, 0, 3], [0, 1, 0, 0]),
    ("0 ** x", [0, 1, 2], [0, 0, 0]),
    ("2 ** x", [0, 3], [0.69314718056, 5.54517744448]),
    ("tensor([0., 0., 0., 2., 0.]) ** x", [0, 1, 2, 0, -1], [0, 0, 0, 0.69314718056, -INF]),
    ("1 ** x", [0, 3], [0, 0]),
    ("x.abs()", [0, -0, 2, -2], [0, 0, 1, -1]),
    ("x.logcumsumexp(0)", [-INF, 0, 0], [NAN, 1.5, 0.5]),
    ("x.logcumsumexp(0)", [1, INF, 2], [1, NAN, 0]),
    ("x.sign()", [0, 2], [0, 0]),
    ("x.sqrt()", [0, 4], [INF, 0.25]),
    ("x.rsqrt()", [0, 4], [-INF, -0.0625]),
    ("x.relu()", [0, -1, 1], [0, 0, 1]),
    ("x.clamp(-1, 1)", [-1, 1, 0, 2, -3], [1, 1, 1, 0, 0]),
    ("x.clamp(min=0)", [0, 1, -1], [1, 1, 0]),
    ("maximum(x, tensor([1., 1., 1.]))", [0, 1, 2], [0, 0.5, 1]),
    ("minimum(x, tensor([1., 1., 1.]))", [0, 1, 2], [1, 0.5, 0]),
    ("maximum(x, x)", [1], [1]),
    ("maximum(x, tensor([NAN, 0.]))", [1, NAN], [1, 1]),
    ("minimum(x, tensor([NAN, 0.]))", [1, NAN], [1, 1]),
    ("fmax(x, tensor([1., 1., 1., NAN]))", [1, 0, NAN, 0], [1, 0, 0, 1]),
    ("fmin(x, tensor([1., 1., 1., NAN]))", [1, 0, NAN, 0], [1, 1, 0, 1]),
    # At a bound the gradient is x's; where the bounds have crossed it is the upper one's.
    ("clamp(x, tensor([1., 1., 2.]), tensor([2., 2., 1.]))", [1, 2, 1], [1, 1, 0]),
    ("clamp(tensor([1., 0., 3., 0.]), x, tensor([2., 2., 2., -1.]))", [1, 1, 1, 0], [0, 1, 0, 0]),
    ("clamp(tensor([2., 0., 3., 0.]), tensor([1., 1., 1., 1.]), x)", [2, 2, 2, 0], [0, 0, 1, 1]),
    ("clamp(x, min=tensor([1., 1., 1.]))", [1, 0, NAN], [1, 0, 0]),
    ("x.copysign(-1)", [2, -2, 0], [-1, 1, 0]),
    ("tensor([2., 3.]).copysign(x)", [-1, 1], [0, 0]),
    ("x.max()", [1, 3, 3], [0, 0.5, 0.5]),
    ("x.amax(0)", [1, 3, 3], [0, 0.5, 0.5]),
    ("x.max(0)[0]", [1, 3, 3], [0, 1, 0]),
    ("x.min()", [1, 1, 3], [0.5, 0.5, 0]),
    ("x.amin(0)", [1, 1, 3], [0.5, 0.5, 0]),
    ("x.median()", [2, 2, 3], [0.5, 0.5, 0]),
    ("x.median()", [NAN, 2, NAN], [0.5, 0, 0.5]),
    ("x.nanmedian()", [NAN, 2, 2, 3], [0, 0.5, 0.5, 0]),
    ("x.prod()", [0, 2, 3], [6, 0, 0]),
    ("x.prod()", [0, 0, 3], [0, 0, 0]),
    ("x.cumprod(0)", [2, 0, 3], [1, 8, 0]),
    ("x.norm()", [0, 0], [0, 0]),
    ("x.norm(1)", [0, -2], [0, -1]),
    ("x.norm(INF)", [3, -3, 1], [0.5, -0.5, 0]),
    ("x.norm(3)", [0, 0], [0, 0]),
    ("x.std()", [2, 2], [0, 0]),
    ("x.var()", [2, 2], [0, 0]),
    ("x.logsumexp(0)", [-INF, 0], [0, 1]),
    ("x.logsumexp(0)", [INF, 0], [NAN, 0]),
    ("x.softmax(0)[1]", [-INF, 0, 0], [-0, 0.25, -0.25]),
    ("x.log_softmax(0)[1]", [-INF, 0, 0], [0, 0.5, -0.5]),
    ("x.cummax(0)[0]", [1, 3, 3, 2], [1, 1, 2, 0]),
    ("x.sort()[0][0]", [2, 1, 1], [0, 1, 0]),
    ("xlogy(x, tensor([0., 2.]))", [0, 0], [0, 0.69314718056]),
    ("special.xlog1py(x, tensor([-1., 1.]))", [0, 0], [0, 0.69314718056]),
    ("special.entr(x)", [0, 1], [INF, -1]),
    ("atan2(x, tensor([0., 1.]))", [0, 0], [0, 1]),
    ("hypot(x, tensor([0., 3.]))", [-2, 4], [-1, 0.8]),
    ("where(tensor([True, False]), x, x * INF)", [1, 1], [NAN, INF]),
    ("x / 0", [1, -1], [INF, INF]),
    ("1 / x", [0, 2], [-INF, -0.25]),
    ("x.log()", [0, 1], [INF, 1]),
    ("x % 2", [3, -3, 4], [1, 1, 1]),
    ("x.floor() + x.ceil() + x.round() + x.trunc()", [1.5, 2], [0, 0]),
    ("x.sigmoid()", [-1000, 1000], [0, 0]),
    ("x.tanh()", [-1000, 0], [0, 1]),
    ("x.acos()", [1, 0], [-INF, -1]),
    ("x.asin()", [1, 0], [INF, 1]),
    ("x.erfinv()", [1, 0], [INF, 0.886226925453]),
    ("x.sinc()", [0], [0]),
    ("x.logit()", [0, 1, 0.5, 2], [INF, INF, 4, NAN]),
    ("x.logit(0.25)", [0, 0.25, 0.5, 1], [0, 16 / 3, 4, 0]),
    ("x.lgamma()", [0, 1], [-INF, -0.577215664902]),
    ("x.expm1() + x.log1p()", [0, -1], [2, INF]),
    ("logaddexp(x, tensor([-INF, 0.]))", [-INF, 0], [NAN, 0.5]),
    ("x.nansum()", [NAN, 1], [0, 1]),
    ("x.quantile(0.2)", [1, NAN, 3, 2], [0, 1, 0, 0]),
    ("x.quantile(0.2, interpolation='nearest')", [1, NAN, 3], [0, 1, 0]),
    ("x.nanquantile(0.25)", [1, NAN, 3, 2], [0.5, 0, 0, 0.5]),
    ("x.masked_fill(x.isnan(), 0.)", [NAN, 1], [0, 1]),
    ("x.nan_to_num()", [NAN, INF, 1], [0, 0, 1]),
    ("x.fmod(2)", [3, -3, 0], [1, 1, 1]),
    ("tensor([0., 3., -3., 5.]).fmod(x)", [2, 2, 2, -2], [0, -1, 1, 2]),
    ("div(tensor([3., 3.]), x, rounding_mode='trunc')", [0, 2], [0, 0]),
    ("div(x, tensor([0., 2.]), rounding_mode='trunc')", [3, 2], [0, 0]),
    ("x.cumsum(0)", [1, INF], [2, 1]),
    ("x.frac()", [1.5, -1.5], [1, 1]),
    ("x.lerp(x, 0.5)", [1], [1]),
    ("x.dist(tensor([1., 1.]))", [1, 1], [0, 0]),
]


def tensor(values: Any) -> norch.Tensor:
    """Float64, or bool."""
    return norch.tensor(values, dtype=None if values[0] is True else norch.float64)


@pytest.mark.parametrize(("expression", "values", "expected"), CASES, ids=str)
def test_derivative(expression: str, values: list[float], expected: list[float]) -> None:
    x = tensor(values).requires_grad_()
    known = {**vars(norch), "special": norch.special, "x": x, "tensor": tensor, "INF": INF, "NAN": NAN}
    y = eval(expression, known)
    y.sum().backward()
    assert x.grad.tolist() == pytest.approx(expected, rel=1e-9, abs=0, nan_ok=True)


# A dtype, an expression, the values of x, and the gradient of its sum by the formula in exact arithmetic. Squares of
# these values, or what else lies between, are more or less than the dtype holds.
EXTREMES: list[Any] = [
    ("float16", "1 / x", [300, 1000], [-1 / 300**2, -1e-6]),
    ("float16", "tensor([2.0**-14, 2.0**-14]) / x", [2.0**-10, 2.0**-12], [-(2.0**6), -(2.0**10)]),
    ("float32", "1 / x", [1e18, 1e-18], [-1e-36, -1e36]),
    ("float32", "tensor([1e20, 1e-23]) / x", [1e20, 1e-23], [-1e-20, -1e23]),
    ("float16", "softsign(x)", [300, -1000], [1 / 301**2, 1 / 1001**2]),
    ("float16", "normalize(x, dim=0)[0]", [300, 400], [0.00128, -0.00096]),
    ("float16", "atan(x)", [300, 2], [1 / 90001, 0.2]),
    ("float16", "asinh(x)", [300, 0], [1 / 300, 1]),
    ("float32", "asinh(x)", [1e20, -1e30, INF], [1e-20, 1e-30, 0]),
    ("float16", "acosh(x)", [300, 1.5], [1 / 300, 1.25**-0.5]),
    ("float16", "atan2(x, tensor([400., 0.25]))", [300, 0], [0.0016, 4]),
    ("float32", "atan2(x, tensor([4e20, 4e-30]))", [3e20, 3e-30], [1.6e-21, 1.6e29]),
    ("float32", "hypot(x, tensor([4e30, 4e-30]))", [3e30, 3e-30], [0.6, 0.6]),
    ("float16", "log10(x)", [60000, 0.0001], [1 / (60000 * math.log(10)), 1e4 / math.log(10)]),
    ("float16", "sinc(x)", [1e-4, 0.25], [-(math.pi**2) * 1e-4 / 3, -0.77254]),
    ("float32", "sinc(x)", [1e-30, 1e-4], [-(math.pi**2) * 1e-30 / 3, -(math.pi**2) * 1e-4 / 3]),
    ("float32", "logaddexp2(x, tensor([0., 100.]))", [30, 0], [1 / (1 + 2.0**-30), 2.0**-100]),
    ("float16", "renorm(x.reshape(1, 2), 2, 0, 1.0)[:, 0]", [1e-5, 1e-5], [1, 0]),
    # Bounds that 16 bits would round, and values beside them.
    ("bfloat16", "hardtanh(x, -0.7, 0.7)", [0.69921875, 0.703125, 2, -2], [1, 0, 0, 0]),
    ("float16", "hardtanh(x, -0.1, 0.3)", [-1, 1, 0.25], [0, 0, 1]),
    ("bfloat16", "threshold(x, 0.7, 0.0)", [0.69921875, 0.703125], [0, 1]),
    ("float16", "hardsigmoid(x)", [2.998046875, 3, -3], [1 / 6, 0, 0]),
    ("float16", "hardswish(x)", [2.998046875, 3, -3], [1.5, 1, 0]),
]


@pytest.mark.parametrize(("dtype", "expression", "values", "expected"), EXTREMES, ids=str)
def test_derivative_where_squares_do_not_fit(
    dtype: str, expression: str, values: list[float], expected: list[float]
) -> None:
    kind = getattr(norch, dtype)
    x = norch.tensor(values, dtype=kind).requires_grad_()
    y = eval(expression, {**vars(norch), "x": x, "tensor": lambda v: norch.tensor(v, dtype=kind)})
    y.sum().backward()
    eps = norch.finfo(kind).eps
    assert x.grad.tolist() == pytest.approx(expected, rel=8 * eps, abs=norch.finfo(kind).tiny * eps)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("x.std()", [NAN]),
        ("x.var()", [NAN]),
        ("x.std(correction=0)", [0]),
        ("x.sum()", [1]),
        ("x.prod()", [1]),
        ("x.softmax(0).sum()", [0]),
        ("x.logsumexp(0)", [1]),
    ],
)
def test_derivative_of_one_element(expression: str, expected: list[float]) -> None:
    x = tensor([2.0]).requires_grad_()
    eval(expression, {"x": x}).backward()
    assert x.grad.tolist() == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    "expression", ["x.sum()", "x.prod()", "x.norm()", "x.mean()", "x.logsumexp(0)", "(x * 2).sum()"]
)
def test_derivative_of_no_elements(expression: str) -> None:
    x = norch.zeros(0, requires_grad=True)
    eval(expression, {"x": x}).backward()
    assert x.grad.shape == (0,)


def test_derivative_by_the_log_of_no_exponentials() -> None:
    x = norch.zeros(0, requires_grad=True)
    y = x.logsumexp(0)
    assert y.item() == -INF
    (grad,) = norch.autograd.grad(y * y, x, create_graph=True)
    assert norch.autograd.grad(grad.sum(), y)[0].item() == 0


@pytest.mark.parametrize(
    ("expression", "first", "second"),
    [
        ("logaddexp(x, tensor([1.0]))", 0.5, 0.25),
        ("logaddexp2(x, tensor([1.0]))", 0.5, 0.25 * math.log(2)),
        ("logaddexp2(x, tensor([-2000.0]))", 1, 0),
        ("x.reshape(1, 1).expand(1, 2).logcumsumexp(1)[0, 1]", 1, 0),
    ],
)
def test_second_derivative_at_a_tie(expression: str, first: float, second: float) -> None:
    x = tensor([1.0]).requires_grad_()
    y = eval(expression, {**vars(norch), "x": x, "tensor": tensor})
    slope = norch.autograd.grad(y.sum(), x, create_graph=True)[0]
    assert slope.item() == pytest.approx(first)
    assert norch.autograd.grad(slope, x)[0].item() == pytest.approx(second)


def test_mixed_derivative_of_xlogy_at_zero() -> None:
    x, y = tensor([0.0, 1.0]).requires_grad_(), tensor([-1.0, 2.0]).requires_grad_()
    (slope,) = norch.autograd.grad(norch.xlogy(x, y).sum(), y, create_graph=True)
    assert slope.tolist() == [0, 0.5]
    assert norch.autograd.grad(slope.sum(), x)[0].tolist() == [-1, 0.5]


def test_the_derivative_by_a_number_beside_many_is_in_its_dtype() -> None:
    x = norch.tensor([0.1, 0.2, -0.7], dtype=norch.float64)
    for function, slope in ((norch.special.xlog1py, 1 / (1 + 1.7)), (norch.xlogy, 1 / 1.7)):
        y = norch.tensor(1.7, dtype=norch.float64, requires_grad=True)
        function(x, y).sum().backward()
        assert y.grad.item() == pytest.approx((0.1 + 0.2 - 0.7) * slope, rel=1e-14)


def test_mixed_derivative_of_xlog1py_at_zero() -> None:
    x, y = tensor([0.0, 1.0]).requires_grad_(), tensor([-2.0, 1.0]).requires_grad_()
    (slope,) = norch.autograd.grad(norch.special.xlog1py(x, y).sum(), y, create_graph=True)
    assert slope.tolist() == [0, 0.5]
    assert norch.autograd.grad(slope.sum(), x)[0].tolist() == [-1, 0.5]
