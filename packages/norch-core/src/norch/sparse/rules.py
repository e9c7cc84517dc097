"""How ops run on sparse tensors: those that keep zeros, sums, products and rearrangements; others refuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..autograd.graph import is_recording
from ..dtype import BOOL, int64, result_dtype
from ..errors import DTypeError, ShapeError
from ..ops.copying import write
from ..ops.creation import arange, zeros
from ..ops.families import by_name
from ..ops.from_data import as_tensor
from ..ops.masks import nonzero
from ..ops.reduction.sorting import searchsorted
from ..ops.shape.joining import cat, stack
from ..spec import Spec, broadcast_shapes, wrap_dim
from ..tensor import Tensor
from .functions import summed
from .making import at_places, empty_coo
from .products import product
from .structure import flat_keys, joined, pick
from .tensor import SparseTensor, make_coo, refuse, run_op, with_entries

Rule = Callable[..., Any]

RULES: dict[str, Rule] = {"matmul": product, "sum": summed}
"""By the name of an op."""


def rule(names: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names.split(), function))
        return function

    return register


def run(op: Any, args: tuple[Any, ...]) -> Any:
    """The result of `op` on arguments of which some are sparse."""
    known = RULES.get(op.name)
    if known is None:
        refuse(op.name)
    return known(*args)


def into(op: Any, out: Any, args: tuple[Any, ...]) -> None:
    """`op`, its result written into the memory of `out`."""
    source = args[0] if op.name == "copy" else run(op, args)
    if isinstance(out, SparseTensor) or (source.requires_grad and is_recording()):
        refuse(op.name)
    write(out, source.to_dense())


# --- Elementwise ----------------------------------------------------------------------------------------------------

_ZERO_TO_ZERO = (
    """abs sqrt sin sinh tan tanh asin asinh atan sign floor ceil round trunc relu erf erfinv expm1 log1p atanh"""
)


def _of_values(op: Any) -> Rule:
    def call(x: SparseTensor, *rest: Any) -> SparseTensor:
        one = x if x.each_once else x.coalesce()  # these are not sums
        return with_entries(one, op.call(one.entries, *rest))

    return call


_OPS = by_name()
for _name in _ZERO_TO_ZERO.split():
    if _name in _OPS:
        RULES[_name] = _of_values(_OPS[_name])
RULES["neg"] = lambda x: with_entries(x, -x.entries)


@rule("copy")
def _copy(x: SparseTensor, dtype: Any, row_major: Any) -> SparseTensor:
    if dtype is None or dtype is x.spec.dtype:
        return x.clone()
    one = x.coalesce() if dtype.category == BOOL and not x.each_once else x  # True and False add up to no other number
    return with_entries(one, one.entries.to(dtype))


@rule("pow")
def _pow(x: Any, exponent: Any) -> SparseTensor:
    if not isinstance(x, SparseTensor) or isinstance(exponent, Tensor) or not exponent > 0:
        raise DTypeError("pow(): a sparse tensor takes a positive number as exponent; use to_dense() first")
    one = x if x.each_once else x.coalesce()
    return with_entries(one, one.entries**exponent)


def _operand(x: Any) -> Any:
    return x if isinstance(x, Tensor | bool | int | float) else as_tensor(x)


def _is_number(x: Any) -> bool:
    return not isinstance(x, Tensor) or (not isinstance(x, SparseTensor) and not x.spec.ndim)


@rule("mul")
def _mul(a: Any, b: Any) -> SparseTensor:
    a, b = _operand(a), _operand(b)
    x, y = (a, b) if isinstance(a, SparseTensor) else (b, a)
    if _is_number(y):
        return with_entries(x, x.entries * y)
    if not isinstance(y, SparseTensor):
        if broadcast_shapes(tuple(x.spec.shape), tuple(y.spec.shape), op="mul") != x.spec.shape:
            raise ShapeError(
                f"mul(): a sparse tensor of shape {tuple(x.spec.shape)} does not broadcast, here to that of "
                f"{tuple(y.spec.shape)}; use to_dense() first"
            )
        return with_entries(x, x.entries * at_places(y, x).to(result_dtype([(y.spec.dtype, 1)])))
    sizes = _alike("mul", x, y)
    one, two = (z if z.coalesced else z.coalesce() for z in (x, y))
    if _at_one_memory(one.places, two.places):
        return _in_layout(with_entries(one, one.entries * two.entries), x, y)
    left, right = flat_keys(one.places, sizes), flat_keys(two.places, sizes)
    if left.spec.numel and right.spec.numel:
        at = searchsorted(right, left).clamp(max=right.spec.numel - 1)
        (i,) = nonzero(pick(right, at) == left, as_tuple=True)
        j = pick(at, i)
    else:
        i = j = left[:0]
    out = make_coo(one.places.index_select(1, i), pick(one.entries, i) * pick(two.entries, j), x.spec.shape, True)
    return _in_layout(out, x, y)


def _alike(op: str, x: SparseTensor, y: SparseTensor) -> Sequence[int]:
    """The sparse sizes of two tensors. Raises ShapeError where they differ."""
    if x.spec.shape != y.spec.shape or x.sparse_dim() != y.sparse_dim():
        raise ShapeError(
            f"{op}(): sparse tensors of shapes {tuple(x.spec.shape)} and {tuple(y.spec.shape)}, {x.sparse_dim()} and "
            f"{y.sparse_dim()} of these dims sparse; they must be the same"
        )
    return x.spec.shape[: x.sparse_dim()]


def _in_layout(out: SparseTensor, *given: SparseTensor) -> SparseTensor:
    """CSR or CSC where all that were given are."""
    layouts = {x.layout for x in given}
    return out.to_sparse(layout=layouts.pop()) if len(layouts) == 1 else out


@rule("linear")
def _linear(x: Any, weight: Any, bias: Any) -> Tensor:
    out = product(x, weight.t(), "linear")
    return out if bias is None else out + bias


@rule("div")
def _div(a: Any, b: Any) -> SparseTensor:
    a, b = _operand(a), _operand(b)
    if not isinstance(a, SparseTensor) or not _is_number(b):
        raise DTypeError("div(): a sparse tensor can be divided by a number only; use to_dense() first")
    return with_entries(a, a.entries / b)


@rule("add")
def _add(a: Any, b: Any) -> Any:
    return _sum("add", _operand(a), _operand(b))


@rule("sub")
def _sub(a: Any, b: Any) -> Any:
    return _sum("sub", _operand(a), -_operand(b))


@rule("axpy")
def _axpy(a: Any, b: Any, alpha: Any) -> Any:
    return _sum("add", a, b * alpha)


def _at_one_memory(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are the same elements, as the places of rows that are read twice by one index."""
    return a.buffer is b.buffer and a.offset == b.offset and a.spec is b.spec


def _sum(op: str, a: Any, b: Any) -> Any:
    if _is_number(a) or _is_number(b):
        raise DTypeError(f"{op}(): a sparse tensor and a number have no sparse result; use to_dense() first")
    if not (isinstance(a, SparseTensor) and isinstance(b, SparseTensor)):
        return a.to_dense() + b.to_dense()
    sizes = _alike(op, a, b)
    dtype = result_dtype([(a.spec.dtype, 1), (b.spec.dtype, 1)])
    if a.layout is b.layout and _at_one_memory(a.places, b.places):
        return with_entries(a, a.entries.to(dtype) + b.entries.to(dtype))
    places, entries = cat([a.places, b.places], 1), cat([a.entries.to(dtype), b.entries.to(dtype)])
    out = make_coo(places, entries, a.spec.shape, len(sizes) == 0)
    both = a.coalesced and b.coalesced
    return _in_layout(out.coalesce() if both else out, a, b)


# --- Rearranged -----------------------------------------------------------------------------------------------------


@rule("transpose")
def _transpose(x: SparseTensor, dim0: int, dim1: int) -> Tensor:
    return x.transpose(dim0, dim1)


@rule("permute")
def _permute(x: SparseTensor, dims: Any) -> Tensor:
    return x.permute(dims)


@rule("cat")
def _cat(tensors: Any, dim: int) -> SparseTensor:
    for x in tensors:
        if not isinstance(x, SparseTensor):
            raise DTypeError("cat(): takes sparse tensors or dense ones, not both; use to_dense() or to_sparse()")
    first = tensors[0]
    at, k = wrap_dim(dim, first.spec.ndim, "cat"), first.sparse_dim()
    dtype = result_dtype([(x.spec.dtype, 1) for x in tensors])
    places, start = [], 0
    for x in tensors:
        others = [tuple(n for d, n in enumerate(y.spec.shape) if d != at) for y in (first, x)]
        if others[0] != others[1] or x.sparse_dim() != k or at >= k:
            raise ShapeError(
                f"cat(): sparse tensors of shapes {tuple(first.spec.shape)} and {tuple(x.spec.shape)} cannot be joined "
                f"along dim {dim}, which must be sparse"
            )
        shift = x.places.new_tensor([start if d == at else 0 for d in range(k)])
        places.append(x.places + shift.unsqueeze(1))
        start += x.spec.shape[at]
    shape = [start if d == at else n for d, n in enumerate(first.spec.shape)]
    in_order = at == 0 and all(x.coalesced for x in tensors)
    out = make_coo(cat(places, 1), cat([x.entries.to(dtype) for x in tensors]), shape, in_order)
    return _in_layout(out, *tensors)


@rule("stack")
def _stack(tensors: Any, dim: int) -> SparseTensor:
    first = tensors[0]
    if not isinstance(first, SparseTensor) or wrap_dim(dim, first.spec.ndim + 1, "stack") > first.sparse_dim():
        raise DTypeError("stack(): takes sparse tensors or dense ones, not both, along a sparse dim; use to_dense()")
    at = wrap_dim(dim, first.spec.ndim + 1, "stack")
    found: SparseTensor = _cat([_unsqueezed(x, at) if isinstance(x, SparseTensor) else x for x in tensors], at)
    return found


def _unsqueezed(x: SparseTensor, at: int) -> SparseTensor:
    row = zeros(1, x._nnz(), dtype=int64, device=x.device)
    shape = (*x.spec.shape[:at], 1, *x.spec.shape[at:])
    return make_coo(cat([x.places[:at], row, x.places[at:]]), x.entries, shape, x.coalesced)


@rule("fill")
def _fill(spec: Spec, value: Any) -> SparseTensor:
    if value != 0:
        refuse("fill")
    return empty_coo(tuple(spec.shape), spec.dtype, spec.device)


def _index_select(x: SparseTensor, dim: int, index: Tensor) -> SparseTensor:
    at, k = wrap_dim(dim, x.spec.ndim, "index_select"), x.sparse_dim()
    size = x.spec.shape[at]
    if index.spec.ndim > 1 or index.spec.dtype.is_floating_point:
        raise ShapeError(f"index_select(): index must be 1-D and hold integers, got {tuple(index.spec.shape)}")
    if at >= k:
        return make_coo(x.places, x.entries.index_select(at - k + 1, index), _with(x, at, index), x.coalesced)
    names = pick(arange(size, device=x.device), index.reshape(-1).to(int64))  # negative ones count from the end
    i, j = joined(names, x.places.select(0, at), size)
    rows = [i if d == at else pick(x.places.select(0, d), j) for d in range(k)]
    out = make_coo(stack(rows), pick(x.entries, j), _with(x, at, index), False)
    return _in_layout(out, x)


@rule("gather")
def _gather(x: SparseTensor, dim: int, index: Tensor) -> SparseTensor:
    """What `norch.index_select` asks for: an index that is the same along all other dims."""
    at = wrap_dim(dim, x.spec.ndim, "gather")
    for d, (n, stride) in enumerate(zip(index.spec.shape, index.spec.strides)):
        if d != at and ((n > 1 and stride) or n != x.spec.shape[d]):
            refuse("gather")
    if 0 in [n for d, n in enumerate(index.spec.shape) if d != at]:
        refuse("gather")
    for d in reversed([d for d in range(index.spec.ndim) if d != at]):
        index = index.select(d, 0)
    return _index_select(x, at, index)


def _with(x: SparseTensor, at: int, index: Tensor) -> list[int]:
    return [index.spec.numel if d == at else n for d, n in enumerate(x.spec.shape)]


run_op.update(run=run, into=into, index_select=_index_select)
