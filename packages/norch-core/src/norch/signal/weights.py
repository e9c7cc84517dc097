"""What window functions are made of: weights of the points of a stretch of a signal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..dtype import as_dtype, float64, get_default_dtype
from ..errors import DTypeError
from ..ops import arange, cos, ones, sqrt, square, zeros_like
from ..special_functions.bessel import i0

if TYPE_CHECKING:
    from ..tensor import Tensor

    Weight = Callable[[Tensor, int], Tensor]

HANN = (0.5, 0.5)
BLACKMAN = (0.42, 0.5, 0.08)
NUTTALL = (0.3635819, 0.4891775, 0.1365995, 0.0106411)


def window(
    op: str,
    M: int,
    sym: bool,
    dtype: Any,
    device: Any,
    weight: Weight,
    requires_grad: bool = False,
) -> Tensor:
    """`weight` of the points 0, 1, ... and of the place of the last, in float64; 1 for a window of 1 point."""
    chosen = get_default_dtype() if dtype is None else as_dtype(dtype, op)
    if not chosen.is_floating_point:
        raise DTypeError(f"{op}(): expected a floating dtype, got {chosen}")
    if M < 0:
        raise ValueError(f"{op}(): a window cannot have {M} points")
    if M < 2:
        return ones(M, dtype=chosen, device=device, requires_grad=requires_grad)
    found = weight(arange(M, dtype=float64, device=device), M - 1 if sym else M).to(chosen)
    return found.requires_grad_() if requires_grad else found


def cosines(factors: Sequence[float]) -> Weight:
    """factors[0] - factors[1] cos(x) + factors[2] cos(2 x) - ..., x from 0 to 2 pi."""

    def weight(n: Tensor, last: int) -> Tensor:
        found = zeros_like(n)
        for i, factor in enumerate(factors):
            found = found + cos(n * (2 * math.pi * i / last)) * (factor * (-1) ** i)
        return found

    return weight


def triangle(n: Tensor, last: int) -> Tensor:
    """1 in the middle of 0 to `last`, 0 at the ends."""
    return 1 - (n * (2 / last) - 1).abs()


def of_kaiser(beta: float) -> Weight:
    """I0(beta sqrt(1 - x**2)) / I0(beta), x from -1 to 1."""

    def weight(n: Tensor, last: int) -> Tensor:
        found: Tensor = i0(sqrt((1 - square(n * (2 / last) - 1)).clamp(min=0)) * beta) / i0(n.new_tensor(beta))
        return found

    return weight
