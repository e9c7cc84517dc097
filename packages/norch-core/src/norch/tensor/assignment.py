"""`x[...] = value` and `index_put`: what `x[...]` would show is written to, or scattered into."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..autograd.graph import is_recording, mark_modified, resolve
from ..autograd.versions import is_unwatched, unwatched
from ..dispatch.arguments import must_be
from ..dispatch.plan import SCALARS
from ..dispatch.traced import Traced
from ..dtype import FLOATING, bool_, int64
from ..errors import DTypeError, IndexError
from ..ops.creation import FILL, arange, spec_for
from ..ops.from_data import as_tensor
from ..ops.indexing import INDEX_ADD, INDEX_PUT, scatter, scatter_into
from ..ops.indexing import scatter_add as added
from ..ops.masks import masked_fill
from ..ops.registry import method
from ..ops.shape.views import RESHAPE, alias, permute
from ..overriding import foreign_among
from ..spec import Spec
from ..tensor_base import TensorBase
from .index_plan import IndexPlan, as_one
from .indexing import (
    ALL,
    are_places,
    are_views,
    basic_view,
    beside_views,
    left_index,
    rows_of_mask,
    simple_view,
    unlisted,
    where_true,
)
from .inplace import copy_as, fill_as
from .rebasing import assign, check_writable
from .transfer import cast

if TYPE_CHECKING:
    from . import Tensor


@method()
def __setitem__(self: Tensor, index: Any, value: Any) -> None:
    if type(index) is list:
        index = unlisted(index)
    if "_unused_since" in self.__dict__ and is_unwatched(self):
        with unwatched(self, "__setitem__"):
            self.detach()[index] = value
        return
    if self.left_to is not None:
        left = left_index(self, index if isinstance(index, tuple) else (index,))
        if left is not None:
            source = value if isinstance(value, TensorBase) else as_tensor(value, self.dtype, self.device)
            self.left_to("index_put_", (*left[1:], source), {})
            return
    if type(value) in SCALARS and self.spec.ndim:
        if type(index) is int:
            _fill(self[index], value)
            return
        if isinstance(index, TensorBase) and index.spec.dtype is bool_:
            mask = _over_rows(index, self)  # type: ignore[arg-type]
            if mask is not None:
                copy_as("__setitem__", self, masked_fill(self, mask, value))
                return
    elif isinstance(index, TensorBase) and isinstance(value, TensorBase) and index.spec.dtype is bool_:
        rows = rows_of_mask(self, index)  # type: ignore[arg-type]
        if rows is not None:
            put(self, rows, {0: where_true(index)}, value, False)  # type: ignore[arg-type]
            return
    elif type(index) is int and isinstance(value, TensorBase) and value.spec.ndim < self.spec.ndim:
        copy_as("__setitem__", self[index], value)  # type: ignore[arg-type]
        return
    parts = index if isinstance(index, tuple) else (index,)
    if are_views(parts):
        found = simple_view(self, parts)
        if found is None and all(p is Ellipsis or p == ALL for p in parts) and len(parts) <= self.spec.ndim:
            found = self if self.node is None else alias(self)
        if found is not None and type(value) in SCALARS:
            _fill(found, value)
            return
        if found is not None and isinstance(value, TensorBase):
            copy_as("__setitem__", found, fitting(value, tuple(found.spec.shape)))  # type: ignore[arg-type]
            return
    foreign = foreign_among((*parts, value))
    if foreign is not None:
        foreign("__setitem__", (self, index, value), {})
        return
    if type(value) in (float, Traced) and self.spec.dtype.category == FLOATING:
        value = FILL.call(spec_for((), self.spec.dtype, self.spec.device, "__setitem__"), value)
    elif not isinstance(value, TensorBase):
        value = as_tensor(value, self.dtype if not isinstance(value, np.ndarray) else None, self.device)
    if are_places(self, parts):
        put(self, self, dict(enumerate(parts)), value, False)
        return
    beside = beside_views(self, parts)
    if beside is not None:
        view, places, dim = beside
        put(self, view, {dim: places}, value, False)
        return
    if any(isinstance(p, slice) and p.step is not None and p.step < 0 for p in parts):
        _assign_reversed(self, parts, value)
        return
    view, chosen = (self[index], {}) if type(index) is int else basic_view(self, index)
    if not chosen:
        copy_as("__setitem__", view, fitting(value, tuple(view.spec.shape)))
    else:
        put(self, view, chosen, value, False)


def _over_rows(mask: Tensor, tensor: Tensor) -> Tensor | None:
    """A mask of the first dims of `tensor` in a shape that broadcasts to all of them; None for another."""
    shape, count = tensor.spec.shape, mask.spec.ndim
    if not count or mask.spec.shape != shape[:count] or type(mask.spec) is not Spec:
        return None
    if mask.spec.device is not tensor.spec.device:
        mask = mask.to(tensor.device)
    return mask if count == len(shape) else mask.reshape((*mask.spec.shape, *[1] * (len(shape) - count)))


def _fill(view: Tensor, value: Any) -> None:
    if view.spec.overlaps:  # fill_ would write, an assignment refuses
        copy_as("__setitem__", view, FILL.call(spec_for((), view.dtype, view.device, "__setitem__"), value))
    else:
        fill_as("__setitem__", view, value)


def fitting(value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`value` without leading dims of size 1 that the place it goes to lacks."""
    while value.spec.ndim > len(shape) and value.spec.shape[0] == 1:
        value = value.reshape(tuple(value.spec.shape[1:]))
    return value


def _assign_reversed(tensor: Tensor, parts: tuple[Any, ...], value: Tensor) -> None:
    """A negative step: the places of all elements, indexed alike, say where the values go."""
    places = arange(tensor.numel(), device=tensor.device).reshape(tuple(tensor.spec.shape))[parts]
    expanded = fitting(value, tuple(places.spec.shape)).expand(tuple(places.spec.shape))
    put_flat(tensor, places.reshape(-1), expanded.reshape(-1))


def put_flat(tensor: Tensor, places: Tensor, values: Tensor) -> None:
    flat = scatter(tensor.reshape(-1), 0, places, values.to(tensor.dtype))
    assign(tensor, flat.reshape(tuple(tensor.spec.shape)), "__setitem__")


def put(tensor: Tensor, view: Tensor, chosen: dict[int, Tensor], value: Tensor, accumulate: bool) -> None:
    """Writes `value` to the elements of `view` (a view of `tensor`, or it) that index tensors choose."""
    tracked = check_writable(view, "__setitem__")
    tracked = tracked or (value.node is not None and is_recording() and resolve(value) is not None)
    if len(chosen) == 1 and not tracked:
        ((dim, index),) = chosen.items()
        if _put_along(view, dim, index, value, accumulate):
            mark_modified(tensor, "__setitem__")
            return
    if not tracked and _put_together(view, chosen, value, accumulate):
        mark_modified(tensor, "__setitem__")
        return
    plan = IndexPlan(view, chosen)
    source = plan.unplaced(fitting(value.to(view.dtype), (*plan.rest, *plan.shape))).to(view.device)
    ordered = permute(view, plan.order)
    flat = RESHAPE.call(ordered, (plan.size, *plan.rest))
    tracked = is_recording() and any(x.node is not None and resolve(x) is not None for x in (view, source))
    if tracked or flat is None:
        rows = ordered.reshape(plan.size, *plan.rest) if flat is None else flat
        value = (added if accumulate else scatter)(rows, 0, plan.rows, source)
        assign(ordered, value.reshape(tuple(ordered.spec.shape)), "__setitem__")
    else:
        scatter_into(flat, 0, plan.rows, source, accumulate)
        mark_modified(tensor, "__setitem__")


def _put_together(view: Tensor, chosen: dict[int, Tensor], value: Tensor, accumulate: bool) -> bool:
    """`put` at index tensors of the first dims, which become one, in one kernel; False where that cannot be."""
    count, shape = len(chosen), view.spec.shape
    index = [chosen[d] for d in range(count) if d in chosen]
    if len(index) != count or any(type(x.spec) is not Spec for x in (view, value, *index)):
        return False
    if any(x.spec.device is not view.spec.device or not x.spec.ndim for x in index):
        return False
    if any(x.spec.ndim != 1 for x in index) and value.spec.ndim > len(shape) - count:
        return False
    flat = RESHAPE.call(view.detach(), (prod(shape[:count]), *shape[count:]))
    return flat is not None and _put_along(flat, 0, as_one(index, shape).reshape(-1), value, accumulate)


def _put_along(view: Tensor, dim: int, index: Tensor, value: Tensor, accumulate: bool) -> bool:
    """`put` at a vector of indices along one dim, in one kernel; False where that cannot be."""
    spec, places = view.spec, index.spec
    shape, given = spec.shape, value.spec.shape
    if given:
        wanted = (*shape[:dim], places.numel, *shape[dim + 1 :])
        lead = len(wanted) - len(given)
        if lead < 0 or any(n not in (1, m) for n, m in zip(given, wanted[lead:], strict=True)):
            return False
    if places.ndim != 1 or value.buffer is view.buffer or not spec.numel or not places.numel:
        return False
    source = value if value.node is None else value.detach()
    if source.spec.dtype is not spec.dtype:
        source = cast(source, spec.dtype)
    if source.spec.device is not spec.device:
        source = source.to(spec.device)
    (INDEX_ADD if accumulate else INDEX_PUT).into(view, cast(index, int64), source, dim, shape)
    return True


@method()
def index_put_(self: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    """`self[indices] = values`, or += with `accumulate`, where an index that comes twice counts twice.

    Raises IndexError for no indices and for one out of range. indices: a tensor for each of the first dims, which
    broadcast; `values` broadcasts to the elements that they name.
    """
    foreign = foreign_among((*indices, values))
    if foreign is not None:
        return foreign("index_put_", (self, indices, values, accumulate), {})  # type: ignore[no-any-return]
    view, chosen = basic_view(self, tuple([as_tensor(i, None, self.device) for i in indices]))
    if not indices:
        raise IndexError("index_put_(): expected at least one index tensor")
    if not chosen:
        view.add_(values) if accumulate else copy_as("index_put_", view, as_tensor(values, None, self.device))
        return self
    put(self, view, chosen, as_tensor(values, None, self.device), accumulate)
    return self


@method()
def index_put(self: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    """`index_put_` on a copy. Raises as it does, and DTypeError where `self` is no Tensor."""
    if not isinstance(self, TensorBase):  # it is a function of norch too, which calls it as it is
        if hasattr(type(self), "_norch_function"):
            return self._norch_function("index_put", (self, indices, values, accumulate), {})
        raise DTypeError(f"index_put(): {must_be('input', 'Tensor', self)}")
    return self.clone().index_put_(indices, values, accumulate)
