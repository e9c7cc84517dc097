"""Bessel functions of the orders 0 and 1."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..dtype import float64
from ..ops import abs as absolute
from ..ops import cos, eq, exp, full_like, log, lt, sign, sin, sqrt, where, zeros_like
from ..ops.elementwise.special import infer_unary
from ..ops.families import composite
from .derivatives import differentiable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..tensor import Tensor

_EULER = 0.57721566490153286


def _sum(z: Tensor, coefficients: Sequence[float]) -> Tensor:
    """c0 + c1 z + c2 z**2 + ..."""
    out = full_like(z, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        out = out * z + c
    return out


def _powers(order: int, count: int, sign: int) -> list[float]:
    """Those of (x / 2)**2, after (x / 2)**order, in the power series (9.1.10 and 9.6.10 of Abramowitz and Stegun)."""
    return [sign**k / (math.factorial(k) * math.factorial(k + order)) for k in range(count)]


def _hankel(order: int, count: int) -> list[float]:
    """Those of 1 / x in the asymptotic expansions (9.2.5 and 9.7.1), but for their signs."""
    found = [1.0]
    for k in range(1, count):
        found.append(found[-1] * (4 * order * order - (2 * k - 1) ** 2) / (8 * k))
    return found


# --- Modified ones ----------------------------------------------------------------------------------------------------

_FAR_MODIFIED = 25.0


def _modified(x: Tensor, order: int, scaled: bool) -> Tensor:
    wide = x.to(float64)
    size = absolute(wide)
    far = size > _FAR_MODIFIED
    near = where(far, 1.0, size)
    series = _sum(near * near * 0.25, _powers(order, 42, 1)) * (near * 0.5 if order else 1.0)
    large = where(far, size, _FAR_MODIFIED)
    tail = _sum(-1 / large, _hankel(order, 30)) / sqrt(large * (2 * math.pi))
    if scaled:
        series = series * exp(-near)
    else:
        half = exp(large * 0.5)  # its square may overflow where the result does not
        tail = tail * half * half
    found = where(far, tail, series)
    if scaled:
        found = where(eq(size, math.inf), 0.0, found)
    return (where(wide < 0, -found, where(eq(wide, 0), wide, found)) if order else found).to(x.dtype)


def _over(found: Tensor, x: Tensor) -> Tensor:
    """found / x, where found is a function of x that is x / 2 near 0."""
    zero = eq(x, 0)
    return where(zero, 0.5, found / where(zero, 1.0, x))


def _i0_rule(g: Tensor, input: Tensor) -> Tensor:
    return g * i1(input)


@composite(infer_unary("i0"), _i0_rule)
def i0(input: Tensor) -> Tensor:
    return _modified(input, 0, False)


def _i1_rule(g: Tensor, input: Tensor, y: Tensor) -> Tensor:
    return g * (i0(input) - _over(y, input))


@composite(infer_unary("i1"), _i1_rule)
def i1(input: Tensor) -> Tensor:
    return _modified(input, 1, False)


def _i0e_rule(g: Tensor, input: Tensor, y: Tensor) -> Tensor:
    return g * (i1e(input) - sign(input) * y)


@composite(infer_unary("i0e"), _i0e_rule)
def i0e(input: Tensor) -> Tensor:
    return _modified(input, 0, True)


def _i1e_rule(g: Tensor, input: Tensor, y: Tensor) -> Tensor:
    return g * (i0e(input) - _over(y, input) - sign(input) * y)


@composite(infer_unary("i1e"), _i1e_rule)
def i1e(input: Tensor) -> Tensor:
    return _modified(input, 1, True)


# --- The others -------------------------------------------------------------------------------------------------------

_FAR, _SMALL, _START = 25.0, 2.0, 72


def _small(x: Tensor, order: int, second: bool) -> Tensor:
    """By the power series (9.1.10, 9.1.11 and 9.1.13)."""
    z = x * x * 0.25
    first = _sum(z, _powers(order, 16, -1)) * (x * 0.5 if order else 1.0)
    if not second:
        return first
    sums = [0.0]
    for k in range(1, 18):
        sums.append(sums[-1] + 1 / k)
    digammas = [sums[k] + sums[k + order] - 2 * _EULER for k in range(16)]
    rest = _sum(z, [c * d for c, d in zip(_powers(order, 16, -1), digammas, strict=True)]) / math.pi
    if order:
        rest = rest * x * 0.5 + 2 / (x * math.pi)
    return log(x * 0.5) * first * (2 / math.pi) - rest


def _middle(x: Tensor, order: int, second: bool) -> Tensor:
    """By Miller's backward recurrence (9.12), the sum 9.1.46 and Neumann's series 9.1.89, and its derivative."""
    over = 2 / x
    above, here = zeros_like(x), full_like(x, 1e-150)
    total = zeros_like(x)
    series = zeros_like(x)
    for k in range(_START, 0, -1):  # `here` is J_k but for a factor, `above` J_(k + 1)
        below = here * over * k - above
        if k % 2 == 0:
            total = total + here * 2
            if second:
                term = below - above if order else here * 2
                series = series + term * ((-1) ** (k // 2) / (k // 2))
        above, here = here, below
    total = total + here
    j0, j1 = here / total, above / total
    first = j1 if order else j0
    if not second:
        return first
    logarithm = (log(x * 0.5) + _EULER) * first
    rest = series / total - j0 / x if order else -series / total
    return (logarithm + rest) * (2 / math.pi)


def _far(x: Tensor, order: int, second: bool) -> Tensor:
    """By Hankel's expansion (9.2.5 to 9.2.10)."""
    y = 1 / x
    terms = _hankel(order, 30)
    z = -y * y
    p, q = _sum(z, terms[0::2]), _sum(z, terms[1::2]) * y
    c, s = cos(x), sin(x)
    # Cosine and sine of x - pi / 4, or of x - 3 pi / 4, times the root of 2: no rounding of that difference counts.
    shifted_cos, shifted_sin = (s - c, -(s + c)) if order else (c + s, s - c)
    both = p * shifted_sin + q * shifted_cos if second else p * shifted_cos - q * shifted_sin
    return both / sqrt(x * math.pi)


def _bessel(x: Tensor, order: int, second: bool) -> Tensor:
    wide = x.to(float64)
    size = absolute(wide)
    small, far = size < _SMALL, size > _FAR
    found = where(
        small,
        _small(where(small, size, 1.0), order, second),
        where(far, _far(where(far, size, _FAR), order, second), _middle(where(small | far, 5.0, size), order, second)),
    )
    found = where(eq(size, size), found, size)
    if second:
        found = where(eq(size, 0), -math.inf, where(lt(wide, 0), math.nan, found))
    elif order:
        found = where(wide < 0, -found, where(eq(wide, 0), wide, found))
    return found.to(x.dtype)


bessel_j0: Any = differentiable("bessel_j0", lambda x: _bessel(x, 0, False), lambda x: -bessel_j1(x))
bessel_j1: Any = differentiable(
    "bessel_j1", lambda x: _bessel(x, 1, False), lambda x: bessel_j0(x) - _over(bessel_j1(x), x)
)
bessel_y0: Any = differentiable("bessel_y0", lambda x: _bessel(x, 0, True), lambda x: -bessel_y1(x))
bessel_y1: Any = differentiable("bessel_y1", lambda x: _bessel(x, 1, True), lambda x: bessel_y0(x) - bessel_y1(x) / x)
