"""`x[...]` and `x[...] = value`: basic indices make views, tensors and lists of indices gather and scatter."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..autograd.graph import is_recording, mark_modified, resolve
from ..device import CPU
from ..dispatch.arguments import must_be
from ..dispatch.plan import SCALARS
from ..dispatch.traced import Traced
from ..dtype import FLOATING, bool_, int64
from ..errors import DTypeError, IndexError, ShapeError
from ..ops.creation import FILL, arange, spec_for
from ..ops.flat_index import flat_index
from ..ops.from_data import as_tensor, of_new_array
from ..ops.indexing import INDEX, INDEX_ADD, INDEX_PUT, gather, masked_fill, nonzero, scatter, scatter_into
from ..ops.indexing import scatter_add as added
from ..ops.registry import method
from ..ops.shape.joining import flip
from ..ops.shape.views import (
    RESHAPE,
    SELECT,
    SLICE,
    alias,
    permute,
    reshape,
    select_dim,
    slice_dim,
    unsqueeze,
    wrap_index,
)
from ..spec import Spec, broadcast_shapes
from ..tensor_base import TensorBase
from .inplace import assign, check_writable, copy_as, fill_as
from .transfer import cast

if TYPE_CHECKING:
    from . import Tensor


_ALL = slice(None)
_BOUND = (int, type(None))
_INTS_AND_SLICES = {int, slice}


@method()
def __getitem__(self: Tensor, index: Any) -> Tensor:
    if type(index) is int:
        shape = self.spec.shape
        if not shape:
            return _only(self, index)
        if not 0 <= index < shape[0]:
            index = wrap_index(index, shape[0], 0, "index", shape)
        out: Tensor = SELECT.call(self, 0, index, index * self.spec.strides[0])
        return out
    if type(index) is slice:
        start, stop, shape = index.start, index.stop, self.spec.shape
        if index.step is None and shape and type(start) in _BOUND and type(stop) in _BOUND and index != _ALL:
            start, stop, _ = index.indices(shape[0])
            length = stop - start if stop > start else 0
            return SLICE.call(self, 0, start, length, 1, start * self.spec.strides[0] if length else 0)
    if isinstance(index, TensorBase):
        chosen = _by_tensor(self, index)  # type: ignore[arg-type]
        if chosen is not None:
            return chosen
    parts = index if type(index) is tuple else (index,)
    if isinstance(parts[-1] if parts else None, TensorBase):
        chosen = _by_tensors(self, parts)
        if chosen is not None:
            return chosen
    found = _of_ints_and_slices(self, parts)
    if found is not None:
        return found
    view, tensors = _basic(self, index)
    return view if not tensors else _gather(view, tensors)


def _by_tensor(tensor: Tensor, index: Tensor) -> Tensor | None:
    """`tensor[index]` for the commonest index tensors; None for others."""
    spec, places = tensor.spec, index.spec
    if places.device is not spec.device or not places.ndim or not spec.ndim:
        return None
    if places.dtype is bool_:
        if places.shape != spec.shape or spec.device.type != "cpu":
            return None
        flat = RESHAPE.call(tensor, (spec.numel,))
        return INDEX.call(tensor.reshape(-1) if flat is None else flat, _where_true(index), 0)
    if places.dtype is not int64 or not (places.ndim == 1 or places.is_contiguous):
        return None
    return INDEX.call(tensor, index, 0)


def _by_tensors(tensor: Tensor, index: tuple[Any, ...]) -> Tensor | None:
    """`tensor[i, j]` for int64 index tensors of the first dims; None for others."""
    spec, count = tensor.spec, len(index)
    if not 2 <= count <= spec.ndim:
        return None
    for part in index:
        if not isinstance(part, TensorBase):
            return None
        places = part.spec
        if places.dtype is not int64 or places.device is not spec.device or not places.ndim:
            return None
    flat = RESHAPE.call(tensor, (prod(spec.shape[:count]), *spec.shape[count:]))
    return None if flat is None else INDEX.call(flat, _as_one(index, spec.shape), 0)


def _as_one(index: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    """Index tensors of dims of these sizes as one of the dim that they are together."""
    places, size = index[0], sizes[0]
    try:
        for part, n in zip(index[1:], sizes[1:], strict=False):
            places, size = flat_index(places, part, (size, n)), size * n
    except ShapeError as error:
        raise IndexError(str(error)) from None
    return places


def _where_true(mask: Tensor) -> Tensor:
    """The indices, into the flattened mask on the CPU, of its True elements."""
    spec = mask.spec
    memory = spec.device.backend.host_view(mask.buffer) if spec.is_contiguous and spec.numel else None
    flat = mask.numpy().reshape(-1) if memory is None else np.ndarray((spec.numel,), np.bool_, memory, mask.offset)
    return of_new_array(np.ascontiguousarray(flat.nonzero()[0]), int64)


def _of_ints_and_slices(tensor: Tensor, index: tuple[Any, ...]) -> Tensor | None:
    """The view for the commonest indices, without what `_basic` asks; None where it has to."""
    out, dim, shape = tensor, 0, tensor.spec.shape
    ndim, at = len(shape), 0  # the dim of `tensor` that `dim` of `out` is
    for i, part in enumerate(index):
        if part is Ellipsis:
            rest = index[i + 1 :]
            skipped = ndim - at - len(rest)
            if skipped < 0 or not {type(p) for p in rest} <= _INTS_AND_SLICES:
                return None
            dim += skipped
            at += skipped
            continue
        if at == ndim:
            return None
        if type(part) is int:
            if not 0 <= part < shape[at]:
                part = wrap_index(part, shape[at], at, "index", shape)
            out = SELECT.call(out, dim, part, part * out.spec.strides[dim])
        elif type(part) is slice:
            if part != _ALL:
                if part.step is None and type(part.start) in _BOUND and type(part.stop) in _BOUND:
                    start, stop, _ = part.indices(shape[at])
                    length = stop - start if stop > start else 0
                    out = SLICE.call(out, dim, start, length, 1, start * out.spec.strides[dim] if length else 0)
                else:
                    out = _slice(out, dim, part)
            dim += 1
        else:
            return None
        at += 1
    return None if out is tensor else out


def _only(tensor: Tensor, index: int) -> Tensor:
    # A 0-d tensor has one element, and loss[0] is how the articles (and PyTorch until 0.5) read it.
    if index not in (0, -1):
        raise IndexError(f"index(): index {index} is out of bounds for a 0-d tensor, which has one element")
    return RESHAPE.call(tensor, ())


def _basic(tensor: Tensor, index: Any) -> tuple[Tensor, dict[int, Tensor]]:
    """Applies ints, slices, None and Ellipsis; returns the view, and by dim of it the index tensors left to apply."""
    parts = list(index) if isinstance(index, tuple) else [index]
    parts = [_as_index(p, tensor) for p in parts]
    used = sum(_dims_used(p) for p in parts)
    ndim = tensor.spec.ndim
    dots = [i for i, p in enumerate(parts) if p is Ellipsis]
    if len(dots) > 1:
        raise IndexError("index(): an index can have only one '...'")
    if used > ndim:
        if ndim == 0 and used == 1 and len(parts) == 1 and isinstance(parts[0], int):
            return _only(tensor, parts[0]), {}
        raise IndexError(f"index(): {used} indices for {ndim} dims, shape {tuple(tensor.spec.shape)}")
    fill = [slice(None)] * (ndim - used)
    if dots:
        parts[dots[0] : dots[0] + 1] = fill
    out, dim, chosen = tensor, 0, {}
    shape = tensor.spec.shape
    given = 0  # the dim of `tensor` that `dim` of `out` is
    for part in parts:
        if part is None:
            out = unsqueeze(out, dim)
            dim += 1
        elif isinstance(part, slice):
            if part != slice(None):
                out = _slice(out, dim, part)
            dim += 1
        elif isinstance(part, int):
            out = select_dim(out, dim, wrap_index(part, shape[given], given, "index", shape))
        elif part.spec.dtype is bool_:
            for found in _from_mask(part, out, dim):
                chosen[dim] = found
                dim += 1
            if not part.spec.ndim:  # a lone True or False: a dim of size 1 or 0
                out = unsqueeze(out, dim)
                chosen[dim] = arange(1 if bool(part) else 0, device=out.device)
                dim += 1
        else:
            chosen[dim] = part
            dim += 1
        given += _dims_used(part)
    if out is tensor and not chosen:
        out = alias(tensor)
    return out, chosen


def _as_index(part: Any, tensor: Tensor) -> Any:
    if part is None or part is Ellipsis or isinstance(part, slice):
        return part
    if isinstance(part, bool | np.bool_):
        return as_tensor(bool(part), device=CPU if tensor.is_meta else tensor.device)
    if isinstance(part, list | tuple | np.ndarray | range):
        part = as_tensor(list(part) if isinstance(part, range) else part)
        if not part.spec.numel and part.spec.dtype is not bool_:
            part = part.to(int64)
    if isinstance(part, TensorBase):
        found: Tensor = part  # type: ignore[assignment]
        if found.spec.dtype.is_floating_point:
            raise DTypeError(f"index(): tensors used as indices must hold integers or bools, got {found.spec.dtype}")
        if not found.spec.ndim and found.spec.dtype is not bool_ and type(found.spec) is Spec:  # vmap's has its own
            return int(found.item())  # as in PyTorch, so that the result is a view
        if found.spec.device is tensor.spec.device or (tensor.is_meta and found.spec.dtype is bool_):
            return found  # a mask is read before a tensor without values could need it
        return found.to(tensor.spec.device)
    if hasattr(part, "__index__"):
        return part.__index__()
    raise IndexError(f"index(): an index must be an int, a slice, None, ..., a tensor or a list, got {part!r:.60}")


def _dims_used(part: Any) -> int:
    if part is None or part is Ellipsis:
        return 0
    if isinstance(part, TensorBase) and part.spec.dtype is bool_:
        return part.spec.ndim
    return 1


def _slice(tensor: Tensor, dim: int, part: slice) -> Tensor:
    size = tensor.spec.shape[dim]
    try:
        start, stop, step = part.indices(size)
    except (TypeError, ValueError) as error:
        raise IndexError(f"index(): {part} is no slice of integers, or has a step of 0") from error
    length = len(range(start, stop, step))
    if step > 0:
        return slice_dim(tensor, dim, start if length else 0, length, step)
    # Kernels never meet a negative stride: the same elements, forwards, then reversed into a copy.
    last = start + (length - 1) * step
    return flip(slice_dim(tensor, dim, last if length else 0, length, -step), dim)


def _from_mask(mask: Tensor, tensor: Tensor, dim: int) -> tuple[Tensor, ...]:
    expected = tensor.spec.shape[dim : dim + mask.spec.ndim]
    if mask.spec.shape != expected:
        raise IndexError(
            f"index(): a mask of shape {tuple(mask.spec.shape)} does not fit dims {dim} to {dim + mask.spec.ndim - 1} "
            f"of shape {tuple(tensor.spec.shape)}"
        )
    return tuple([n.to(tensor.spec.device) for n in nonzero(mask, as_tuple=True)]) if mask.spec.ndim else ()


class _Plan:
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
        rows = _as_one([chosen[d] for d in dims], [shape[d] for d in dims]).reshape(-1)
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


def _gather(view: Tensor, chosen: dict[int, Tensor]) -> Tensor:
    if len(chosen) == 1:
        ((dim, index),) = chosen.items()
        return INDEX.call(view, index.to(int64).contiguous(), dim)
    plan = _Plan(view, chosen)
    return plan.placed(gather(plan.flat(view), 0, plan.rows))


@method()
def __setitem__(self: Tensor, index: Any, value: Any) -> None:
    if type(value) in SCALARS and self.spec.ndim:
        if type(index) is int:
            fill_as("__setitem__", self[index], value)
            return
        if isinstance(index, TensorBase) and index.spec.dtype is bool_ and index.spec.shape == self.spec.shape:
            mask: Any = index
            copy_as("__setitem__", self, masked_fill(self, mask, value))
            return
    elif type(index) is int and isinstance(value, TensorBase) and value.spec.ndim < self.spec.ndim:
        copy_as("__setitem__", self[index], value)  # type: ignore[arg-type]
        return
    if type(index) is tuple and not any(type(p) is slice and p.step is not None for p in index):
        found = _of_ints_and_slices(self, index)
        if found is not None and type(value) in SCALARS:
            fill_as("__setitem__", found, value)
            return
        if found is not None and isinstance(value, TensorBase):
            copy_as("__setitem__", found, _fitting(value, tuple(found.spec.shape)))  # type: ignore[arg-type]
            return
    if type(value) in (float, Traced) and self.spec.dtype.category == FLOATING:
        value = FILL.call(spec_for((), self.spec.dtype, self.spec.device, "__setitem__"), value)
    elif not isinstance(value, TensorBase):
        value = as_tensor(value, self.dtype if not isinstance(value, np.ndarray) else None, self.device)
    parts = index if isinstance(index, tuple) else (index,)
    if all(_is_places(p, self.spec.device) for p in parts) and 0 < len(parts) <= self.spec.ndim:
        put(self, self, dict(enumerate(parts)), value, False)
        return
    if any(isinstance(p, slice) and p.step is not None and p.step < 0 for p in parts):
        _assign_reversed(self, parts, value)
        return
    view, chosen = (self[index], {}) if type(index) is int else _basic(self, index)
    if not chosen:
        copy_as("__setitem__", view, _fitting(value, tuple(view.spec.shape)))
    else:
        put(self, view, chosen, value, False)


def _is_places(part: Any, device: Any) -> bool:
    """Whether an index is a vector of int64 on a device, of which nothing needs to be asked."""
    spec = getattr(part, "spec", None)
    return type(spec) is Spec and spec.dtype is int64 and spec.ndim == 1 and spec.device is device


def _fitting(value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`value` without leading dims of size 1 that the place it goes to lacks."""
    while value.spec.ndim > len(shape) and value.spec.shape[0] == 1:
        value = value.reshape(tuple(value.spec.shape[1:]))
    return value


def _assign_reversed(tensor: Tensor, parts: tuple[Any, ...], value: Tensor) -> None:
    """A negative step: the places of all elements, indexed alike, say where the values go."""
    places = arange(tensor.numel(), device=tensor.device).reshape(tuple(tensor.spec.shape))[parts]
    expanded = _fitting(value, tuple(places.spec.shape)).expand(tuple(places.spec.shape))
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
    plan = _Plan(view, chosen)
    source = plan.unplaced(_fitting(value.to(view.dtype), (*plan.rest, *plan.shape))).to(view.device)
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
    return flat is not None and _put_along(flat, 0, _as_one(index, shape).reshape(-1), value, accumulate)


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
    view, chosen = _basic(self, tuple([as_tensor(i, None, self.device) for i in indices]))
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
        raise DTypeError(f"index_put(): {must_be('input', 'Tensor', self)}")
    return index_put_(self.clone(), indices, values, accumulate)
