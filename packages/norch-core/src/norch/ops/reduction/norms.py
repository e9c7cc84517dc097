"""Norms of the elements over dims; those of matrices are in norch.linalg."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ...errors import ShapeError
from ...spec import wrap_dims
from ..elementwise.arithmetic import abs as absolute
from ..elementwise.arithmetic import where
from ..families import accepts_axis
from ..registry import public
from ..upcast import in_float32
from .reductions import _count, _none_if_empty, amax, amin, sum, sum_of_squares
from .variance import _root

if TYPE_CHECKING:
    from ...tensor import Tensor


def matrix_norm(*args: Any) -> Tensor:
    """`norch.linalg.matrix_norm`, a layer above this one, which puts it here."""
    raise NotImplementedError


@public()
@accepts_axis
@in_float32
def norm(input: Tensor, p: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The `p`-norm of the elements over `dim` (None for all): p a number, inf, -inf, "fro" (which is 2) or "nuc".

    "nuc", the sum of the singular values, is of matrices: over two dims, or of a 2-D input. It is computed in `dtype`,
    if given. The gradient at 0 is 0, as PyTorch's. Raises IndexError for a dim out of range, ShapeError for a negative
    p of no elements.
    """
    if dtype is not None:
        input = input.to(dtype)
    if p == "nuc":
        return matrix_norm(input, p, (0, 1) if dim is None else dim, keepdim)
    order = 2.0 if p is None or p == "fro" else float(p)
    if order < 0 and 0 in [input.spec.shape[d] for d in wrap_dims(_none_if_empty(dim), input.spec.ndim, "norm")]:
        raise ShapeError(f"norm(): no elements for the {order}-norm, shape {tuple(input.spec.shape)}, dim {dim}")
    if order == 2 and _count(input, dim) != 1:
        return _root(sum_of_squares(input, _none_if_empty(dim), keepdim))
    size = absolute(input)
    if order == math.inf:
        return amax(size, dim, keepdim)
    if order == -math.inf:
        return amin(size, dim, keepdim)
    if order == 0:
        return sum(where(size < 0, input, (size != 0).to(size.dtype)), dim, keepdim)  # a count, with a gradient of 0
    if order == 1 or _count(input, dim) == 1:
        return sum(size, dim, keepdim)
    if order > 0 and input.spec.numel:
        # Powers of what is divided by the largest element neither overflow nor all vanish.
        largest = amax(size.detach(), _none_if_empty(dim), True)
        scale = where((largest == 0) | (largest == math.inf), 1.0, largest)
        out = _power_norm(size / scale, order, dim, keepdim)
        return out * (scale if keepdim else scale.reshape(out.spec.shape))
    return _power_norm(size, order, dim, keepdim)


def _power_norm(size: Tensor, order: float, dim: Any, keepdim: bool) -> Tensor:
    if not size.requires_grad:
        return sum(size**order, dim, keepdim) ** (1 / order)
    zero = size == 0  # here the derivative is infinite or 0 * inf; PyTorch takes 0
    total = sum(where(zero, 0.0**order if order > 0 else math.inf, where(zero, 1.0, size) ** order), dim, keepdim)
    none = (total == 0) | (total == math.inf)
    return where(none, total.detach() ** (1 / order), where(none, 1.0, total) ** (1 / order))
