"""Hurwitz's zeta function."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..dtype import float64
from ..ops import eq, floor, lt, remainder, where
from .derivatives import differentiable

if TYPE_CHECKING:
    from ..tensor import Tensor

_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)
_STEPS = 12


def _positive(x: Tensor, q: Tensor) -> Tensor:
    """For x > 1 and q > 0 by Euler's and Maclaurin's formula (23.2.9 of Abramowitz and Stegun has that of q = 1)."""
    total = q**-x
    for k in range(1, _STEPS):
        total = total + (q + k) ** -x
    far = q + _STEPS
    finite = where(eq(x, math.inf), 2.0, x)  # then the sum is all
    over = 1 / (far * far)
    factor = finite / far
    tail = far / (finite - 1) + 0.5
    for k, b in enumerate(_BERNOULLI, 1):
        tail = tail + factor * (b / math.factorial(2 * k))
        factor = factor * (finite + (2 * k - 1)) * (finite + 2 * k) * over
    rest = far**-finite
    return where(eq(x, math.inf) | eq(rest, 0), total, total + tail * rest)


def _zeta(x: Tensor, q: Tensor) -> Tensor:
    wide, at = x.to(float64), q.to(float64)
    good = (wide > 1) & (at == at)
    s = where(good, wide, 2.0)
    whole = eq(s, floor(s)) & (s < math.inf)
    below = lt(at, 0) & whole & good
    pole = (at <= 0) & eq(at, floor(at))
    a = where(good & (at > 0) & (at < math.inf), at, 1.0)
    # Below 0 the sum over all integers, which has period 1, less what lies on its other side.
    negative = where(below & ~pole, at, -0.5)
    part = negative - floor(negative)
    sign = where(eq(remainder(s, 2.0), 0), 1.0, -1.0)
    reflected = _positive(s, part) + sign * (_positive(s, 1 - part) - _positive(s, 1 - negative))
    found = where(below, reflected, _positive(s, a))
    found = where(lt(at, 0) & ~whole | eq(at, math.inf) | ~good, math.nan, found)
    found = where(pole & (wide > 1), math.inf, found)
    return where(eq(wide, 1), math.inf, found).to(x.dtype)


zeta: Any = differentiable("zeta", _zeta, None, lambda x, q: -x * zeta(x + 1, q))
