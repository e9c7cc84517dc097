"""The logarithm of the gamma function and its derivatives. Computed in float64, whatever the dtype."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...dtype import float64
from ..families import composite
from ..registry import public
from .arithmetic import abs as absolute
from .arithmetic import eq, log, lt, sin, tan, where
from .arithmetic import round as rounded
from .special import as_floating, infer_unary

if TYPE_CHECKING:
    from ...tensor import Tensor

# Stirling's series: Bernoulli's numbers B2, B4, ... over what each function divides them by. From 10 on it is exact to
# rounding; smaller input is brought there by the recurrence.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
_SHIFT = 10


def _series(x: Tensor, coefficients: list[float]) -> Tensor:
    """c0 + c1 / x**2 + c2 / x**4 + ..."""
    y = 1 / (x * x)
    out = y * coefficients[-1] + coefficients[-2]
    for c in reversed(coefficients[:-2]):
        out = out * y + c
    return out


def _off_integer(x: Tensor) -> Tensor:
    """x less the nearest integer, which neither the sine's size nor the tangent of pi times x needs; -0 stays."""
    return where(eq(x, 0), x, x - rounded(x))


def _positive_lgamma(x: Tensor) -> Tensor:
    product = x
    for k in range(1, _SHIFT):
        product = product * (x + k)
    small = x < _SHIFT
    z = where(small, x + _SHIFT, x)
    series = _series(z, [b / (2 * n * (2 * n - 1)) for n, b in enumerate(_BERNOULLI, 1)]) / z
    out = (z - 0.5) * log(z) - z + 0.5 * math.log(2 * math.pi) + series
    out = out - log(where(small, product, 1.0))
    return where(eq(x, math.inf), math.inf, where(eq(x, 1) | eq(x, 2), 0.0, out))


def _positive_digamma(x: Tensor) -> Tensor:
    small = x < _SHIFT
    safe = where(small, x, 1.0)
    steps = 1 / safe
    for k in range(1, _SHIFT):
        steps = steps + 1 / (safe + k)
    z = where(small, x + _SHIFT, x)
    series = _series(z, [b / (2 * n) for n, b in enumerate(_BERNOULLI, 1)]) / (z * z)
    return log(z) - 0.5 / z - series - where(small, steps, 0.0)


def _trigamma(x: Tensor) -> Tensor:
    below = lt(x, 0.5)
    z = where(below, 1 - x, x)
    steps = 1 / (z * z)
    for k in range(1, _SHIFT):
        steps = steps + 1 / ((z + k) * (z + k))
    far = z + _SHIFT
    series = _series(far, list(_BERNOULLI)) / (far * far * far)
    out = steps + 1 / far + 0.5 / (far * far) + series
    reflection = math.pi / sin(where(below, _off_integer(x), 0.5) * math.pi)
    return where(below, reflection * reflection - out, out)


def _lgamma_rule(g: Tensor, input: Tensor) -> Tensor:
    return g * digamma(input)


@composite(infer_unary("lgamma"), _lgamma_rule, name="lgamma")
def _lgamma(input: Tensor) -> Tensor:
    x = input.to(float64)
    below = lt(x, 0.5)
    # Euler's reflection; at 0 and negative integers the sine is 0 and the result infinite.
    size = absolute(sin(_off_integer(x) * math.pi))
    out = _positive_lgamma(where(below, 1 - x, x))
    reflected = math.log(math.pi) - log(where(below, size, 1.0)) - out
    reflected = where(eq(x, -math.inf), math.inf, reflected)
    return where(below, reflected, out).to(input.spec.dtype)


@public(inplace=True)
def lgamma(input: Tensor) -> Tensor:
    """log |gamma(input)|; infinite at 0 and negative integers. Integers and bools give the default dtype.

    By Stirling's series after the recurrence up to 10, and Euler's reflection formula below 1/2.
    """
    return _lgamma(as_floating(input))


def _digamma_rule(g: Tensor, input: Tensor) -> Tensor:
    return g * polygamma(1, input)


@composite(infer_unary("digamma"), _digamma_rule, name="digamma")
def _digamma(input: Tensor) -> Tensor:
    x = input.to(float64)
    below = lt(x, 0.5)
    out = _positive_digamma(where(below, 1 - x, x))
    reflection = math.pi / tan(where(below, _off_integer(x), 0.5) * math.pi)
    out = where(below, out - reflection, out)
    return where(lt(x, 0) & eq(x, rounded(x)), math.nan, out).to(input.spec.dtype)


@public(inplace=True)
def digamma(input: Tensor) -> Tensor:
    """The derivative of `lgamma`, by the same series; -inf at 0, NaN at negative integers. Integers give floats."""
    return _digamma(as_floating(input))


@public(method=False)
def polygamma(n: int, input: Tensor) -> Tensor:
    """The n-th derivative of `digamma`, for n 0 and 1. Raises ValueError for other n."""
    x = as_floating(input)
    if n == 0:
        return digamma(x)
    if n != 1:
        raise ValueError(f"polygamma(): norch has n 0 and 1, got {n}")
    return _trigamma(x.to(float64)).to(x.spec.dtype)
