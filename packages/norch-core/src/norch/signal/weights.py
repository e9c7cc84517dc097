"""What window functions are made of: weights of the points of a stretch of a signal."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from functools import update_wrapper
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


def window_of(weights: Callable[..., Weight]) -> Callable[..., Tensor]:
    """The window function that has its weights from `weights`, of its own options: M points, symmetric if `sym`."""
    knows_sym = "sym" in inspect.signature(weights).parameters

    def call(
        M: int,
        *,
        sym: bool = True,
        dtype: Any = None,
        layout: Any = None,
        device: Any = None,
        requires_grad: bool = False,
        **options: Any,
    ) -> Tensor:
        weight = weights(**options, sym=sym) if knows_sym else weights(**options)
        return _window(weights.__name__, M, sym, weight, dtype, device, requires_grad)

    return _shown_as(call, weights, after=1)


def older_window_of(weights: Callable[..., Weight]) -> Callable[..., Tensor]:
    """As `window_of`, with PyTorch's older arguments: the options come behind `periodic`, which is not symmetric."""

    def call(
        window_length: int,
        periodic: bool = True,
        *options: Any,
        dtype: Any = None,
        layout: Any = None,
        device: Any = None,
        pin_memory: bool = False,
        requires_grad: bool = False,
        **named: Any,
    ) -> Tensor:
        weight = weights(*options, **named)
        return _window(weights.__name__, window_length, not periodic, weight, dtype, device, requires_grad)

    return _shown_as(call, weights, after=2)


def _shown_as(call: Callable[..., Tensor], weights: Callable[..., Weight], after: int) -> Callable[..., Tensor]:
    """`call` under the name and text of `weights`, whose options stand behind the first `after` parameters."""
    shared = [p for p in inspect.signature(call).parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    own = [p for p in inspect.signature(weights).parameters.values() if p.name != "sym"]
    update_wrapper(call, weights)
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [*shared[:after], *own, *shared[after:]], return_annotation="Tensor"
    )
    return call


def _window(op: str, M: int, sym: bool, weight: Weight, dtype: Any, device: Any, requires_grad: bool) -> Tensor:
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
