"""Several index tensors of one `x[i, :, j]` as one."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from ..dtype import int64
from ..errors import IndexError, ShapeError
from ..ops.flat_index import flat_index
from ..ops.indexing import INDEX, gather
from ..ops.shape.views import permute, reshape
from ..spec import broadcast_shapes

if TYPE_CHECKING:
    from . import Tensor


def as_one(index: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    """Index tensors of dims of these sizes as one of the dim that they are together."""
    places, size = index[0], sizes[0]
    try:
        for part, n in zip(index[1:], sizes[1:], strict=False):
            places, size = flat_index(places, part, (size, n)), size * n
    except ShapeError as error:
        raise IndexError(str(error)) from None
    return places


class IndexPlan:
    """Index tensors merged into one: the rows they choose of a tensor whose indexed dims come first, made into one."""

    def __init__(self, view: Tensor, chosen: dict[int, Tensor]) -> None:
        dims = sorted(chosen)
        shape = view.spec.shape
        try:
            self.shape = broadcast_shapes(*[chosen[d].spec.shape for d in dims], op="index")
        except ShapeError as error:
            raise IndexError(str(error)) from None
        rest = [d for d in range(view.spec.ndim) if d not in chosen]
        self.order = [*dims, *rest]
        self.rest = tuple(shape[d] for d in rest)
        self.size = prod(shape[d] for d in dims)
        self.count = prod(self.shape)
        self.at = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0
        rows = as_one([chosen[d] for d in dims], [shape[d] for d in dims]).reshape(-1)
        lead = [1] * len(rest)
        self.rows = reshape(rows, [self.count, *lead]).expand(self.count, *self.rest)

    def flat(self, view: Tensor) -> Tensor:
        """The tensor with its indexed dims first, made into one; a view where the strides allow."""
        return permute(view, self.order).reshape(self.size, *self.rest)

    def placed(self, result: Tensor) -> Tensor:
        """The chosen rows with the index's own dims, where NumPy and PyTorch put them."""
        out = reshape(result, [*self.shape, *self.rest])
        n, at = len(self.shape), self.at
        if at:
            dims = list(range(out.spec.ndim))
            out = permute(out, [*dims[n : n + at], *dims[:n], *dims[n + at :]])
        return out

    def unplaced(self, value: Tensor) -> Tensor:
        """The reverse of `placed`, for a value that broadcasts to the chosen elements."""
        n, at = len(self.shape), self.at
        expanded = value.expand([*self.rest[:at], *self.shape, *self.rest[at:]])
        if at:
            dims = list(range(expanded.spec.ndim))
            expanded = permute(expanded, [*dims[at : at + n], *dims[:at], *dims[at + n :]])
        return reshape(expanded, [self.count, *self.rest])


def gathered(view: Tensor, chosen: dict[int, Tensor]) -> Tensor:
    if len(chosen) == 1:
        ((dim, index),) = chosen.items()
        return INDEX.call(view, index.to(int64).contiguous(), dim)
    plan = IndexPlan(view, chosen)
    return plan.placed(gather(plan.flat(view), 0, plan.rows))
