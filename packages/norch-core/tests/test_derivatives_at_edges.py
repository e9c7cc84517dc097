"""Derivatives where a formula breaks down, at zeros, ties, bounds, infinities and NaN: what PyTorch gives there."""

from __future__ import annotations

import math
from typing import Any

import pytest

import norch

INF, NAN = math.inf, math.nan


def differs(reason: str) -> pytest.MarkDecorator:
    return pytest.mark.xfail(strict=True, reason=f"differs from PyTorch: {reason}")


# An expression, the values of x, and the gradient of its sum, from PyTorch 2.13.
CASES: list[Any] = [
    ("x ** 0", [0, 2], [0, 0]),
    ("x ** 1", [0, -2], [1, 1]),
    ("x ** 2", [0, -3], [0, -6]),
    ("x ** 0.5", [0, 4], [INF, 0.25]),
    ("x ** -1", [0, 2], [-INF, -0.25]),
    ("x ** tensor([0., 1., 2., 0.])", [0, 0, 0, 3], [0, 1, 0, 0]),
    pytest.param(
        "0 ** x",
        [0, 1, 2],
        [0, 0, 0],
        marks=differs("the rule of a number to a power takes b > 0 where that of a tensor takes b >= 0"),
    ),
    ("2 ** x", [0, 3], [0.69314718056, 5.54517744448]),
    ("tensor([0., 0., 0., 2.]) ** x", [0, 1, 2, 0], [0, 0, 0, 0.69314718056]),
    ("1 ** x", [0, 3], [0, 0]),
    ("x.abs()", [0, -0, 2, -2], [0, 0, 1, -1]),
    ("x.sign()", [0, 2], [0, 0]),
    ("x.sqrt()", [0, 4], [INF, 0.25]),
    ("x.rsqrt()", [0, 4], [-INF, -0.0625]),
    ("x.relu()", [0, -1, 1], [0, 0, 1]),
    ("x.clamp(-1, 1)", [-1, 1, 0, 2, -3], [1, 1, 1, 0, 0]),
    ("x.clamp(min=0)", [0, 1, -1], [1, 1, 0]),
    ("maximum(x, tensor([1., 1., 1.]))", [0, 1, 2], [0, 0.5, 1]),
    ("minimum(x, tensor([1., 1., 1.]))", [0, 1, 2], [1, 0.5, 0]),
    ("maximum(x, x)", [1], [1]),
    ("x.max()", [1, 3, 3], [0, 0.5, 0.5]),
    ("x.amax(0)", [1, 3, 3], [0, 0.5, 0.5]),
    ("x.max(0)[0]", [1, 3, 3], [0, 1, 0]),
    ("x.min()", [1, 1, 3], [0.5, 0.5, 0]),
    ("x.amin(0)", [1, 1, 3], [0.5, 0.5, 0]),
    pytest.param("x.median()", [2, 2, 3], [0.5, 0.5, 0], marks=differs("ties do not share")),
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
    pytest.param("atan2(x, tensor([0., 1.]))", [0, 0], [0, 1], marks=differs("0 / 0 at the origin")),
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
    pytest.param("x.logit()", [0, 1], [INF, INF], marks=differs("inf - inf at 0 and 1")),
    ("x.lgamma()", [0, 1], [-INF, -0.577215664902]),
    ("x.expm1() + x.log1p()", [0, -1], [2, INF]),
    ("logaddexp(x, tensor([-INF, 0.]))", [-INF, 0], [NAN, 0.5]),
    ("x.nansum()", [NAN, 1], [0, 1]),
    ("x.masked_fill(x.isnan(), 0.)", [NAN, 1], [0, 1]),
    ("x.nan_to_num()", [NAN, INF, 1], [0, 0, 1]),
    ("x.fmod(2)", [3, -3], [1, 1]),
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
    y = eval(expression, {**vars(norch), "x": x, "tensor": tensor, "INF": INF})
    y.sum().backward()
    assert x.grad.tolist() == pytest.approx(expected, rel=1e-9, abs=0, nan_ok=True)


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
