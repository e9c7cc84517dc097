"""`x[...]`: basic indices make views, tensors and lists of indices gather."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any
from warnings import warn

import numpy as np

from ..device import CPU
from ..dtype import bool_, int64, uint8
from ..errors import DTypeError, IndexError
from ..ops.creation import arange
from ..ops.from_data import as_tensor, of_new_array
from ..ops.indexing import INDEX
from ..ops.masks import nonzero
from ..ops.registry import method
from ..ops.shape.joining import flip
from ..ops.shape.views import (
    RESHAPE,
    SELECT,
    SLICE,
    alias,
    select_dim,
    slice_dim,
    unsqueeze,
    wrap_index,
)
from ..overriding import of_foreign
from ..spec import Spec, is_channels_last
from ..tensor_base import TensorBase
from .index_plan import as_one, gathered

if TYPE_CHECKING:
    from . import Tensor


ALL = slice(None)
_BOUND = (int, type(None))
_INT = {int}
_KNOWN = {int, slice, type(None)}
VIEWED = {int, slice, type(None), type(Ellipsis)}
"""The kinds of index that make views."""
_PARTS = (slice, list, tuple, range, np.ndarray, TensorBase)


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
        if index.step is None and shape and type(start) in _BOUND and type(stop) in _BOUND and index != ALL:
            start, stop, _ = index.indices(shape[0])
            length = stop - start if stop > start else 0
            return SLICE.call(self, 0, start, length, 1, start * self.spec.strides[0] if length else 0)
    if isinstance(index, TensorBase) and self.left_to is index.left_to is None:
        chosen = _by_tensor(self, index)  # type: ignore[arg-type]
        if chosen is not None:
            return chosen
    if type(index) is list:
        index = unlisted(index)
        if self.left_to is None and set(map(type, index)) == _INT:
            chosen = _by_tensor(self, as_tensor(index, device=self.spec.device))
            if chosen is not None:
                return chosen
    parts = index if type(index) is tuple else (index,)
    if isinstance(parts[-1] if parts else None, TensorBase):
        chosen = _by_tensors(self, parts)
        if chosen is not None:
            return chosen
    try:
        beside = beside_views(self, parts)
        if beside is not None:
            return INDEX.call(*beside)
        found = simple_view(self, parts)
        if found is not None:
            return found
        left = left_index(self, parts)
        if left is not None:
            return left[0].left_to("index", left[1:], {})  # type: ignore[no-any-return]
        view, tensors = basic_view(self, index)
    except Exception:
        asked = of_foreign(*parts)
        if asked is None:
            raise
        return asked("__getitem__", (self, index), {})  # type: ignore[no-any-return]
    return view if not tensors else gathered(view, tensors)


def left_index(tensor: Tensor, parts: tuple[Any, ...]) -> tuple[Any, Tensor, list[Any]] | None:
    """Where a tensor that stands for others is among these and tensors are indices: that tensor, the view that the
    other parts make, and by dim of it the index or None. Else None."""
    owner: Any = tensor
    if tensor.left_to is None:
        owner = next((p for p in parts if isinstance(p, TensorBase) and p.left_to is not None), None)
        if owner is None:
            return None
    given = [_as_index(p, tensor) for p in parts]
    if not any(isinstance(p, TensorBase) for p in given):
        return None
    rest = [slice(None)] * (tensor.spec.ndim - sum(map(_dims_used, given)))
    dots = next((i for i, p in enumerate(given) if p is Ellipsis), None)
    if dots is not None:
        given[dots : dots + 1] = rest
    views: list[Any] = []
    for part in given:
        views += [ALL] * _dims_used(part) if isinstance(part, TensorBase) else [part]
    is_whole = all(type(v) is slice and v == ALL for v in views)
    view = tensor if is_whole else tensor[tuple(views)]
    return owner, view, [p if isinstance(p, TensorBase) else None for p in given if type(p) is not int]


def _by_tensor(tensor: Tensor, index: Tensor) -> Tensor | None:
    """`tensor[index]` for the commonest index tensors; None for others."""
    spec, places = tensor.spec, index.spec
    if places.device is not spec.device or not places.ndim or not spec.ndim:
        return None
    if places.dtype is bool_:
        if places.shape != spec.shape[: places.ndim] or spec.device.type != "cpu":
            return None
        rows = rows_of_mask(tensor, index)
        if rows is None:
            rows = tensor.reshape((places.numel, *spec.shape[places.ndim :]))
        return _chosen_rows(rows, where_true(index))
    if places.dtype is not int64 or not (places.ndim == 1 or places.is_contiguous):
        return None
    return _chosen_rows(tensor, index)


def _chosen_rows(x: Tensor, index: Tensor) -> Tensor:
    spec = x.spec
    if spec.ndim in (4, 5) and not spec.is_contiguous and is_channels_last(spec):  # which the result is then, too
        return INDEX.call(x.movedim(1, -1), index, 0).movedim(-1, index.spec.ndim)
    return INDEX.call(x, index, 0)


def _by_tensors(tensor: Tensor, index: tuple[Any, ...]) -> Tensor | None:
    """`tensor[i, j]` for int64 index tensors of the first dims; None for others."""
    spec, count = tensor.spec, len(index)
    if count < 2 or not are_places(tensor, index):
        return None
    flat = RESHAPE.call(tensor, (prod(spec.shape[:count]), *spec.shape[count:]))
    return None if flat is None else INDEX.call(flat, as_one(index, spec.shape), 0)


def beside_views(tensor: Tensor, index: tuple[Any, ...]) -> tuple[Tensor, Tensor, int] | None:
    """Of one int64 index tensor, or a mask of one dim, among parts that make a view: that view, the indices, and the
    dim of it that they are for. None for others."""
    if len(index) < 2:
        return None
    at = [i for i, part in enumerate(index) if isinstance(part, TensorBase)]
    if len(at) != 1 or tensor.left_to is not None:
        return None
    ((where,), spec) = at, tensor.spec
    part, before = index[where], index[:where]
    places = part.spec
    if part.left_to is not None or places.device is not spec.device or not places.ndim:
        return None
    # In this order: what an array is compared with, it compares with each of its elements.
    if not are_views((*before, *index[where + 1 :])) or Ellipsis in before:
        return None
    given = where - before.count(None)
    if places.dtype is bool_:
        if places.ndim != 1 or given >= spec.ndim or places.shape[0] != spec.shape[given]:
            return None
        part = where_true(part)
    elif places.dtype is not int64 or not (places.ndim == 1 or places.is_contiguous):
        return None
    view = simple_view(tensor, (*before, ALL, *index[where + 1 :]))
    dim = where - sum([type(p) is int for p in before])
    return tensor if view is None else view, part, dim


def are_places(tensor: Tensor, index: tuple[Any, ...]) -> bool:
    """Whether these are int64 tensors, not 0-d, that index the first dims, of which nothing more needs to be asked."""
    spec = tensor.spec
    if tensor.left_to is not None:
        return False
    for part in index:
        if not isinstance(part, TensorBase) or part.left_to is not None:
            return False
        places = part.spec
        if places.dtype is not int64 or places.device is not spec.device or not places.ndim:
            return False
    return 0 < len(index) <= spec.ndim


def rows_of_mask(tensor: Tensor, mask: Tensor) -> Tensor | None:
    """A view of `tensor`, on the CPU, in which the first dims, those of a mask, are one; None where there is none."""
    shape, places, count = tensor.spec.shape, mask.spec, mask.spec.ndim
    if not count or type(places) is not Spec or places.device is not tensor.spec.device or places.device is not CPU:
        return None
    if places.shape != shape[:count] or tensor.left_to is not None:
        return None
    rows: Tensor | None = tensor if count == 1 else RESHAPE.call(tensor, (places.numel, *shape[count:]))
    return rows


def where_true(mask: Tensor) -> Tensor:
    """The indices, into the flattened mask, of its True elements."""
    spec = mask.spec
    if spec.device is not CPU:
        (places,) = nonzero(mask.reshape(-1), as_tuple=True)
        return places  # type: ignore[no-any-return]
    memory = spec.device.backend.host_view(mask.buffer) if spec.is_contiguous and spec.numel else None
    flat = mask.numpy().reshape(-1) if memory is None else np.ndarray((spec.numel,), np.bool_, memory, mask.offset)
    return of_new_array(np.ascontiguousarray(flat.nonzero()[0]), int64)


def unlisted(index: list[Any]) -> Any:
    """A list as the tuple that PyTorch takes it for: a short one that holds more than numbers."""
    apart = len(index) < 32 and any(p is None or p is Ellipsis or isinstance(p, _PARTS) for p in index)
    return tuple(index) if apart else index


def simple_view(tensor: Tensor, index: tuple[Any, ...]) -> Tensor | None:
    """The view for the commonest indices, without what `basic_view` asks; None where it has to."""
    out, dim, shape = tensor, 0, tensor.spec.shape
    ndim, at = len(shape), 0  # the dim of `tensor` that `dim` of `out` is
    new: list[int] = []  # dims of size 1 that the result has besides
    for i, part in enumerate(index):
        if part is None:
            new.append(dim + len(new))
            continue
        if part is Ellipsis:
            rest = index[i + 1 :]
            if not {type(p) for p in rest} <= _KNOWN:  # of arrays count() would ask each element
                return None
            skipped = ndim - at - len(rest) + rest.count(None)
            if skipped < 0:
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
            if part != ALL:
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
    if new:
        sizes = list(out.spec.shape)
        for d in new:
            sizes.insert(d, 1)
        out = RESHAPE.call(out, tuple(sizes))
    return None if out is tensor else out


def are_views(index: tuple[Any, ...]) -> bool:
    """Whether the parts make a view, as slices with steps forwards do."""
    return all(
        type(p) in VIEWED and (type(p) is not slice or p.step is None or (type(p.step) is int and p.step > 0))
        for p in index
    )


def _only(tensor: Tensor, index: int) -> Tensor:
    # A 0-d tensor has one element, and loss[0] is how the articles (and PyTorch until 0.5) read it.
    if index not in (0, -1):
        raise IndexError(f"index(): index {index} is out of bounds for a 0-d tensor, which has one element")
    return RESHAPE.call(tensor, ())


def basic_view(tensor: Tensor, index: Any) -> tuple[Tensor, dict[int, Tensor]]:
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
        elif part.spec.dtype is bool_ and (merged := _merged(part, out, dim)) is not None:
            out, chosen[dim] = merged, where_true(part)
            dim += 1
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
        if found.spec.dtype is uint8:
            warn("indexing with a uint8 tensor takes it for a mask, as PyTorch does; use bool, or int64", stacklevel=5)
            found = part = found.bool()
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


def _merged(mask: Tensor, tensor: Tensor, dim: int) -> Tensor | None:
    """A view in which the dims of a mask, two or more, from `dim` on are one; None where there is none, or the mask is
    elsewhere."""
    shape, places, count = tensor.spec.shape, mask.spec, mask.spec.ndim
    if count < 2 or type(places) is not Spec or places.device is not tensor.spec.device:
        return None
    if places.shape != shape[dim : dim + count]:
        return None
    merged: Tensor | None = RESHAPE.call(tensor, (*shape[:dim], mask.spec.numel, *shape[dim + count :]))
    return merged


def _from_mask(mask: Tensor, tensor: Tensor, dim: int) -> tuple[Tensor, ...]:
    expected = tensor.spec.shape[dim : dim + mask.spec.ndim]
    if mask.spec.shape != expected:
        raise IndexError(
            f"index(): a mask of shape {tuple(mask.spec.shape)} does not fit dims {dim} to {dim + mask.spec.ndim - 1} "
            f"of shape {tuple(tensor.spec.shape)}"
        )
    return tuple([n.to(tensor.spec.device) for n in nonzero(mask, as_tuple=True)]) if mask.spec.ndim else ()
