"""Modified Bessel functions of the second kind, of the orders 0 and 1, and these over exp(-x)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..dtype import float64
from ..ops import eq, exp, log, lt, sqrt, where, zeros_like
from .bessel import _EULER, _powers, _sum
from .derivatives import differentiable

if TYPE_CHECKING:
    from ..tensor import Tensor

_NEAR = 1.0
_STEP, _NODES = 0.2, 32


def _near(x: Tensor, order: int) -> Tensor:
    """By the power series (9.6.10, 9.6.11 and 9.6.13 of Abramowitz and Stegun)."""
    z, count = x * x * 0.25, 16
    sums = [0.0]
    for k in range(1, count + 1):
        sums.append(sums[-1] + 1 / k)
    powers = _powers(order, count, 1)
    if order:
        digammas = [sums[k] + sums[k + 1] - 2 * _EULER for k in range(count)]
        rest = _sum(z, [c * d for c, d in zip(powers, digammas, strict=True)])
        return 1 / x + log(x * 0.5) * _sum(z, powers) * (x * 0.5) - rest * (x * 0.25)
    return _sum(z, [c * (sums[k] - _EULER) for k, c in enumerate(powers)]) - log(x * 0.5) * _sum(z, powers)


def _far(x: Tensor, order: int) -> Tensor:
    """exp(x) times the function: the integral 9.6.24, after w = sqrt(2 x) sinh(t / 2), by the trapezoidal rule."""
    total = zeros_like(x)
    for i in range(_NODES):
        w = (i * _STEP) ** 2
        term = math.exp(-w) / sqrt(x * 2 + w) * (2 * _STEP if i else _STEP)
        total = total + (term * (1 + w / x) if order else term)
    return total


def _modified_second(x: Tensor, order: int, scaled: bool) -> Tensor:
    wide = x.to(float64)
    near = wide < _NEAR
    small, large = where(near & (wide > 0), wide, _NEAR), where(near, _NEAR, wide)
    series, tail = _near(small, order), _far(large, order)
    found = where(near, series * exp(small), tail) if scaled else where(near, series, tail * exp(-large))
    found = where(eq(wide, math.inf), 0.0, where(eq(wide, 0), math.inf, found))
    return where(eq(wide, wide), where(lt(wide, 0), math.nan, found), wide).to(x.dtype)


k0: Any = differentiable("modified_bessel_k0", lambda x: _modified_second(x, 0, False), lambda x: -k1(x))
k1: Any = differentiable("modified_bessel_k1", lambda x: _modified_second(x, 1, False), lambda x: -k0(x) - k1(x) / x)
k0e: Any = differentiable(
    "scaled_modified_bessel_k0", lambda x: _modified_second(x, 0, True), lambda x: k0e(x) - k1e(x)
)
k1e: Any = differentiable(
    "scaled_modified_bessel_k1", lambda x: _modified_second(x, 1, True), lambda x: k1e(x) - k0e(x) - k1e(x) / x
)
