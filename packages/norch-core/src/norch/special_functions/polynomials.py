"""Orthogonal polynomials, by their recurrences (22.7 of Abramowitz and Stegun, 1964)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..dispatch.arguments import describe
from ..dtype import bool_, float64
from ..errors import DTypeError
from ..ops import broadcast_tensors, eq, ones_like, trunc, where
from ..ops.elementwise.special import floating_pair

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..tensor import Tensor

    Step = Callable[[int, Tensor, Tensor, Tensor], Tensor]


MOST = 10_000
"""A degree is at most this: each takes a step."""


class Family(NamedTuple):
    """`first(x)` is the polynomial of degree 1, `step(k, x, p, q)` that of k + 1 by those of k and k - 1."""

    first: Callable[[Tensor], Tensor]
    step: Step


def _twice(k: int, x: Tensor, p: Tensor, q: Tensor) -> Tensor:
    return x * p * 2 - q


CHEBYSHEV_T = Family(lambda x: x, _twice)
CHEBYSHEV_U = Family(lambda x: x * 2, _twice)
CHEBYSHEV_V = Family(lambda x: x * 2 - 1, _twice)
CHEBYSHEV_W = Family(lambda x: x * 2 + 1, _twice)
HERMITE_H = Family(lambda x: x * 2, lambda k, x, p, q: x * p * 2 - q * (2 * k))
HERMITE_HE = Family(lambda x: x, lambda k, x, p, q: x * p - q * k)
LAGUERRE_L = Family(lambda x: 1 - x, lambda k, x, p, q: ((2 * k + 1 - x) * p - q * k) / (k + 1))
LEGENDRE_P = Family(lambda x: x, lambda k, x, p, q: (x * p * (2 * k + 1) - q * k) / (k + 1))


def polynomial(name: str, family: Family, input: Any, n: Any, shifted: bool = False) -> Tensor:
    """That of degree n at input, or with `shifted` at 2 * input - 1, in float64; of a negative degree it is 0."""
    if not (hasattr(input, "spec") or hasattr(n, "spec")):
        raise DTypeError(f"{name}(): input or n must be a Tensor, got {describe(input)} and {describe(n)}")
    x, degree = broadcast_tensors(*floating_pair(name, input, n))
    one_degree = isinstance(n, int | float)
    degree = trunc(degree.detach())
    highest = int(n) if one_degree else int(degree.max().item()) if degree.numel() else -1
    if highest > MOST:
        raise ValueError(f"{name}(): a degree is at most {MOST}, got {highest}")
    wide = x.to(float64)
    if shifted:
        wide = wide * 2 - 1
    always = ones_like(wide, dtype=bool_)
    found, at = where(always, 0.0, wide), where(always, 1.0, wide)
    following = family.first(wide)
    for k in range(highest + 1):
        found = at if one_degree else where(eq(degree, k), at, found)
        if k < highest:
            at, following = following, family.step(k + 1, wide, following, at)
    return found.to(x.dtype)
