"""Batching rules of views, of ops that arrange elements, and of indexing."""

from __future__ import annotations

from typing import Any

from ..dispatch.op import Op
from ..dtype import bool_
from ..ops.elementwise.arithmetic import where
from ..ops.from_data import as_tensor
from ..ops.indexing import gather, scatter, scatter_add
from ..ops.masks import masked_fill
from ..ops.shape.bitcast import bitcast
from ..ops.shape.joining import common_spec
from ..ops.shape.strided import as_strided
from ..ops.shape.views import SELECT, SLICE, permute
from ..spec import infer_size, wrap_dim
from ..tensor.assignment import fitting
from ..tensor.index_plan import IndexPlan
from ..tensor.indexing import basic_view
from ..tensor_base import TensorBase
from .batched import Batched, Level, VmapError, find_rule
from .rules import front, fronts, is_at, rule


@rule("transpose diagonal")
def _two_dims(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    x, *rest, a, b = args
    n = x.spec.ndim
    a, b = wrap_dim(a, n, op.name), wrap_dim(b, n, op.name)
    return op.call(x.value, *rest, a + 1, b + 1) if n else op.call(x.value, *rest, 0, 0)


@rule("permute")
def _permute(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    x, dims = args
    return op.call(x.value, (0, *[wrap_dim(d, x.spec.ndim, "permute") + 1 for d in dims]))


@rule("reshape")
def _reshape(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    x, shape = args
    return op.call(x.value, (level.size, *infer_size(tuple(shape), x.spec.numel, "reshape", x.spec.shape)))


@rule("expand")
def _expand(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    x, shape = args
    lead, own = len(shape) - x.spec.ndim, tuple(x.spec.shape)
    sizes = [own[i - lead] if n == -1 and i >= lead else n for i, n in enumerate(shape)]
    value = x.value.reshape((level.size, *(1,) * lead, *own)) if lead > 0 else x.value
    return op.call(value, (level.size, *sizes))


@rule("select")
def _select(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    x, dim, index = args
    return SELECT.call(x.value, dim + 1, index, index * x.value.spec.strides[dim + 1])


@rule("slice")
def _slice(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    x, dim, start, length, step = args
    return SLICE.call(x.value, dim + 1, start, length, step, start * x.value.spec.strides[dim + 1] if length else 0)


@rule("unfold")
def _unfold(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    x, dim, *rest = args
    return op.call(x.value, wrap_dim(dim, x.spec.ndim, "unfold") + 1, *rest)


@rule("as_strided")
def _as_strided(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    x, shape, strides, shift = args
    apart = x.value.spec.strides[0]
    return as_strided(x.value, (level.size, *shape), (apart, *strides), x.value.offset + shift)


@rule("bitcast")
def _bitcast(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    return bitcast(args[0].value, args[1])


# --- Joining and padding --------------------------------------------------------------------------------------------


@rule("cat stack")
def _join(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    tensors, dim = args
    if op.name == "stack":
        return op.call([front(x, level) for x in tensors], wrap_dim(dim, tensors[0].spec.ndim + 1, "stack") + 1)
    real = [x for x in tensors if tuple(x.spec.shape) != (0,)] or tensors  # vectors of no elements join any others
    joined = op.call([front(x, level) for x in real], wrap_dim(dim, real[0].spec.ndim, "cat") + 1)
    return joined.to(common_spec([x.spec for x in tensors], "cat").dtype)


@rule("sum_windows")
def _sum_windows(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    x, dim, *rest = args
    return op.call(x.value, dim + 1, *rest)


@rule("pad")
def _pad(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    x, before, after, value = args
    return op.call(x.value, (0, *before), (0, *after), value)


# --- Indexing -------------------------------------------------------------------------------------------------------


@rule("gather functional_scatter functional_scatter_add")
def _along_index(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    x, dim, *rest = fronts(op, level, args)
    if not args[0].spec.ndim:
        found = op.call(x.reshape(-1, 1), 1, *[r.reshape(-1, 1) for r in rest])
        return found.reshape(-1)
    return op.call(x, wrap_dim(dim, args[0].spec.ndim, op.name) + 1, *rest)


@rule("functional_scatter_extreme")
def _scatter_extreme(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    x, src, index, dim, *rest = fronts(op, level, args)
    return op.call(x, src, index, wrap_dim(dim, args[0].spec.ndim, op.name) + 1, *rest)


@rule("index")
def _index(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    """Places along a dim: the same for all samples, or each sample's own."""
    x, index, dim = args
    shape, places = tuple(x.spec.shape), tuple(index.spec.shape)
    if not is_at(index, level):
        return op.call(x.value, index, dim + 1)
    if not is_at(x, level):
        return op.call(x, index.value.contiguous(), dim).movedim(dim, 0)
    count = index.spec.numel
    flat = index.value.reshape(level.size, *[count if d == dim else 1 for d in range(len(shape))])
    flat = flat.expand(level.size, *shape[:dim], count, *shape[dim + 1 :])
    return gather(x.value, dim + 1, flat).reshape(level.size, *shape[:dim], *places, *shape[dim + 1 :])


@rule("embedding")
def _embedding(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    index, weight, padding = args
    if not is_at(weight, level):
        return op.call(index.value, weight, padding)
    rows = op.decompose(*args)  # type: ignore[misc]
    if padding is not None:  # whose row gets no gradient
        rows = where((index == padding).unsqueeze(-1), rows.detach(), rows)
    return front(rows, level)


def _setitem(x: Any, index: Any, value: Any) -> None:
    """`x[index] = value`, in the memory of all samples."""
    parts = index if isinstance(index, tuple) else (index,)
    if any(isinstance(p, slice) and p.step is not None and p.step < 0 for p in parts):
        raise VmapError("vmap(): cannot write through a slice of a negative step; flip() the values instead")
    if isinstance(index, TensorBase) and index.spec.dtype is bool_ and isinstance(value, bool | int | float):
        x.write(masked_fill(x, index, value))  # type: ignore[arg-type]
        return
    _put(x, index, value if isinstance(value, TensorBase) else as_tensor(value, x.dtype, x.device), False)


def _put(x: Any, index: Any, given: Any, accumulate: bool) -> None:
    view, chosen = basic_view(x, index)
    if not chosen:
        view.write(fitting(given, tuple(view.spec.shape)) + (view if accumulate else 0))  # type: ignore[attr-defined]
        return
    plan = IndexPlan(view, chosen)
    source = plan.unplaced(fitting(given.to(x.dtype), (*plan.rest, *plan.shape)))
    rows = (scatter_add if accumulate else scatter)(plan.flat(view), 0, plan.rows, source)
    ordered: Any = permute(view, plan.order)
    ordered.write(rows.reshape(tuple(ordered.spec.shape)))


def _index_put_(x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    """`x[indices] = values`, or +=, in the memory of all samples."""
    if not indices:
        raise IndexError("index_put_(): expected at least one index tensor")
    places = tuple([as_tensor(i, None, x.device) for i in indices])
    _put(x, places, as_tensor(values, None, x.device), accumulate)
    return x


find_rule.update(setitem=_setitem)
Batched.index_put_ = _index_put_  # type: ignore[assignment]
