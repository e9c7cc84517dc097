"""The regularised incomplete gamma functions."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..dtype import float64
from ..ops import abs as absolute
from ..ops import eq, exp, expm1, full_like, lgamma, log, log1p, lt, maximum, minimum, sqrt, where, xlogy
from ..ops.elementwise.gamma import _NEAR_TWO, _ONE_MINUS_EULER
from .derivatives import differentiable

if TYPE_CHECKING:
    from ..tensor import Tensor

_LARGE = 100.0
"""The size of the first operand from which on quadrature takes the place of series and fractions."""
_STEPS = 120
_NODES = 64

_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)


def _excess(t: Tensor) -> Tensor:
    """t - log(1 + t), by its series where the two all but cancel."""
    small = (t > -0.1) & (t < 0.1)
    s = where(small, t, 0.0)
    series = full_like(s, 1 / 18)
    for k in range(17, 1, -1):
        series = 1 / k - series * s
    return where(small, series * s * s, t - log1p(where(small, 0.0, t)))


def _log_of_correction(a: Tensor) -> Tensor:
    """log gamma(a) less its first terms (a - 1/2) log a - a + log(2 pi) / 2, for a of at least 10."""
    y = 1 / (a * a)
    out = full_like(a, _STIRLING[-1])
    for c in _STIRLING[-2::-1]:
        out = out * y + c
    return out / a


def _density(a: Tensor, x: Tensor) -> Tensor:
    """x**a exp(-x) / gamma(a). Its exponents are large, and near a their sum is small."""
    large = a > 10
    b = where(large, a, 10.0)
    power = exp(-b * _excess((where(large, x, 10.0) - b) / b) - _log_of_correction(b)) * sqrt(b / (2 * math.pi))
    s, y = where(large, 1.0, a), where(large, 1.0, x)
    return where(large, power, exp(s * log(y) - y - lgamma(s + 1)) * s)


def _series(a: Tensor, x: Tensor) -> Tensor:
    """The sum of x**n / ((a + 1) ... (a + n)): 6.5.29 of Abramowitz and Stegun."""
    out = full_like(a, 1.0)
    for n in range(_STEPS, 0, -1):
        out = out * (x / (a + n)) + 1
    return out


def _fraction(a: Tensor, x: Tensor) -> Tensor:
    """The continued fraction 6.5.31, contracted to its even part."""
    base = x - a
    out = base + (2 * _STEPS + 1)
    for n in range(_STEPS, 0, -1):
        out = base + (2 * n - 1) - (n - a) * n / out
    return 1 / out


@cache  # which are found as eigenvalues
def _nodes() -> Any:
    """Of the quadrature of Gauss, and their weights."""
    return np.polynomial.legendre.leggauss(_NODES)


def _tail(a: Tensor, x: Tensor, upper: Any) -> Tensor:
    """The integral of the density over what lies beyond x, above or below it, by the quadrature of Gauss."""
    points, weights = _nodes()
    width = sqrt(a)
    b = a - 1
    end = where(upper, maximum(a + 12 * width, x + 8 * width), maximum(minimum(a - 12 * width, x - 8 * width), 0.0))
    # Far out the density falls within less than that, and ever faster than at x.
    most = 50 / maximum(absolute(b / x - 1), 1e-3 / width)
    half = maximum(minimum(end - x, most), -most) * 0.5
    total: Any = 0.0
    for p, w in zip(points.tolist(), weights.tolist(), strict=True):
        t = x + half * (1 + p)
        total = total + exp(-b * _excess((t - b) / b)) * w
    # exp(-t) t**(a - 1) is that times exp(-b) b**b, and gamma(a) is b gamma(b).
    scale = exp(-_log_of_correction(b)) / sqrt(2 * math.pi * b)
    found: Tensor = total * absolute(half) * scale
    return found


def _complement_for_small(a: Tensor, x: Tensor) -> Tensor:
    """The upper one where a is below 1 and x small: 1 less the lower one, without cancellation."""
    series = full_like(a, _NEAR_TWO[-1])
    for c in (*reversed(_NEAR_TWO[:-1]), _ONE_MINUS_EULER):
        series = series * a + c
    # That of a + 1, whose rounding counts where a is small.
    log_gamma = where(a < 0.5, series * a - log1p(a), lgamma(a + 1))
    logarithm = a * log(x) - log_gamma
    out = full_like(a, 0.0)
    for n in range(24, 0, -1):
        out = (1 / (a + n) - out) * x * (1 / n)
    # The sum of (-1)**(n + 1) x**n / (n! (a + n)).
    return exp(logarithm) * a * out - expm1(logarithm)


def _both(a: Tensor, x: Tensor, upper: bool) -> Tensor:
    dtype = a.dtype
    a, x = a.to(float64), x.to(float64)
    inside = (a > 0) & (x > 0) & (a < math.inf) & (x < math.inf)
    s, y = where(inside, a, 1.0), where(inside, x, 1.0)
    large = s > _LARGE
    b, t = where(large, s, 200.0), where(large, y, 200.0)
    above = t > b
    tail = _tail(b, t, above)
    s, y = where(large, 1.0, s), where(large, 1.0, y)
    low = y < s + 1
    lower = _series(where(low, s, 1.0), where(low, y, 1.0)) / where(low, s, 1.0)
    beyond = _fraction(where(low, 1.0, s), where(low, 3.0, y))
    density = _density(s, y)
    lower, beyond = lower * density, beyond * density
    small = (s < 1) & (y < 1.5)
    near = _complement_for_small(where(small, s, 0.5), where(small, y, 0.5))
    if upper:
        found = where(small, near, where(low, 1 - lower, beyond))
        found = where(large, where(above, tail, 1 - tail), found)
    else:
        found = where(low, lower, where(small, 1 - near, 1 - beyond))
        found = where(large, where(above, 1 - tail, tail), found)
    first = 1.0 if upper else 0.0
    wrong = lt(a, 0) | lt(x, 0) | (eq(a, 0) & eq(x, 0)) | (eq(a, math.inf) & eq(x, math.inf))
    found = where(eq(x, 0) | eq(a, math.inf), first, where(eq(a, 0) | eq(x, math.inf), 1 - first, found))
    return where(wrong, math.nan, where(eq(a, a) & eq(x, x), found, math.nan)).to(dtype)


def _slope(a: Tensor, x: Tensor) -> Tensor:
    return exp(xlogy(a - 1, x) - x - lgamma(a))


gammainc: Any = differentiable("gammainc", lambda a, x: _both(a, x, False), None, _slope)
gammaincc: Any = differentiable("gammaincc", lambda a, x: _both(a, x, True), None, lambda a, x: -_slope(a, x))
