"""Copies of a tensor with something put in: in a slice, on a diagonal, where a mask says, or combined by an index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dispatch.op import Inferred
from ..dtype import bool_, int64
from ..errors import DTypeError, IndexError, ShapeError
from ..spec import Spec, wrap_dim
from .creation import arange, fill_spec
from .elementwise.arithmetic import eq, maximum, minimum, where
from .families import composite
from .indexing import _along, _infer_functional, gather, scatter, scatter_add
from .registry import public
from .shape.joining import cat
from .shape.views import diagonal, narrow, reshape, select, slice_dim

if TYPE_CHECKING:
    from ..tensor import Tensor


def _written(input: Tensor, src: Tensor, show: Any, op: str) -> Tensor:
    """A copy of input with `src` in the part that `show` makes a view of."""
    out = input.clone()
    part = show(out)
    if part.spec.shape != src.spec.shape:
        raise ShapeError(f"{op}(): src has shape {tuple(src.spec.shape)}, its place {tuple(part.spec.shape)}")
    part.copy_(src)
    return out


@public()
def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """A copy of input with `src` in the slice start:end:step of `dim`. Raises ShapeError where it does not fit."""
    at = wrap_dim(dim, input.spec.ndim, "slice_scatter")
    if not input.spec.ndim or step < 1:
        raise ShapeError(f"slice_scatter(): step {step} in shape {tuple(input.spec.shape)}")
    span = range(*slice(start, end, step).indices(input.spec.shape[at]))
    first = span.start if span else 0
    return _written(input, src, lambda x: slice_dim(x, at, first, len(span), step), "slice_scatter")


@public()
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy of input with `src` as element `index` of `dim`. Raises ShapeError where it does not fit."""
    return _written(input, src, lambda x: select(x, dim, index), "select_scatter")


@public()
def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A copy of input with `src` on a diagonal. Raises ShapeError where it does not fit."""
    return _written(input, src, lambda x: diagonal(x, offset, dim1, dim2), "diagonal_scatter")


@public(inplace=True)
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy of input whose elements where the bool `mask`, which broadcasts, is True are those of `source`, in order.

    Raises DTypeError unless the mask is bool and the dtypes agree, IndexError where source has too few elements.
    """
    if mask.spec.dtype is not bool_:
        raise DTypeError(f"masked_scatter(): mask must be bool, got {mask.spec.dtype}")
    if source.spec.dtype is not input.spec.dtype:
        raise DTypeError(f"masked_scatter(): input is {input.spec.dtype} and source {source.spec.dtype}; convert one")
    from .shape.views import broadcast_tensors

    wide, chosen = broadcast_tensors(input, mask)
    if not wide.spec.numel:
        return wide.clone()
    flat = reshape(chosen, -1)
    if not source.spec.numel:
        if bool(flat.any().item()):
            raise IndexError("masked_scatter(): source has no elements, the mask asks for some")
        return wide.clone()
    places = where(flat, flat.to(int64).cumsum(0) - 1, 0)
    taken = gather(reshape(source, -1), 0, places)
    return where(chosen, reshape(taken, tuple(wide.spec.shape)), wide)


@public(inplace=True)
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of input with `source` at the elements, in row-major order, that `index` names; or added to them."""
    flat, at = reshape(input, -1), reshape(index, -1)
    write: Any = scatter_add if accumulate else scatter
    return reshape(write(flat, 0, at, reshape(source, -1)), tuple(input.spec.shape))


# --- scatter_reduce -------------------------------------------------------------------------------------------------


@public(inplace=True)
def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """A copy of input, its element at index[i][j] of dim 0 (and so on) combined with every src[i][j] that goes there.

    reduce: "sum", "prod", "mean", "amax" or "amin". Without `include_self`, input counts only where nothing goes.
    Raises IndexError for an index out of range, ValueError for another `reduce`, DTypeError unless the dtypes agree.
    """
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise ValueError(f"scatter_reduce(): reduce must be sum, prod, mean, amax or amin, got {reduce!r}")
    _infer_functional(input.spec, dim, index.spec, src.spec)
    if not input.spec.ndim:
        found = scatter_reduce(
            reshape(input, 1), 0, reshape(index, 1), reshape(src, 1), reduce, include_self=include_self
        )
        return reshape(found, ())
    for d, n in enumerate(index.spec.shape):
        src = narrow(src, d, 0, n) if src.spec.shape[d] != n else src
    if reduce in ("amax", "amin"):
        return _scatter_extreme(input, src, index, dim, reduce, include_self)
    if reduce == "prod":
        return _combined(input, src, index, wrap_dim(dim, input.spec.ndim, "scatter_reduce"), reduce, include_self)
    start = input if include_self else scatter(input, dim, index, 0)
    out = scatter_add(start, dim, index, src)
    if reduce == "sum":
        return out
    ones = fill_spec(src.spec.like(dtype=int64), 1)
    counts = scatter_add(fill_spec(input.spec.like(dtype=int64), 1 if include_self else 0), dim, index, ones)
    counts = counts.clamp(min=1)
    whole = out / counts if out.spec.dtype.is_floating_point else out.div(counts, rounding_mode="floor")
    return whole.to(out.spec.dtype)


@public(inplace=True)
def index_reduce(
    input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """`scatter_reduce` ("prod", "mean", "amax" or "amin") of whole slices of `source`: slice i of `dim` to index[i]."""
    if reduce == "sum":
        raise ValueError("index_reduce(): reduce must be prod, mean, amax or amin, got 'sum'; use index_add")
    at = wrap_dim(dim, input.spec.ndim, "index_reduce")
    places = _along(index, tuple(source.spec.shape), at, "index_reduce")
    return scatter_reduce(input, at, places, source, reduce, include_self=include_self)


def _combined(input: Tensor, src: Tensor, index: Tensor, at: int, reduce: str, include_self: bool) -> Tensor:
    """Brings what goes to one place together by a sort, combines each run by doubling, and writes its last element."""
    from .reduction.sorting import sort

    n = index.spec.shape[at]
    if not index.spec.numel:
        return input.clone()
    size = input.spec.shape[at]
    # A gather from all places wraps negative indices, and refuses those out of range.
    wrapped = gather(arange(size, device=index.device), 0, reshape(index.to(int64), -1))
    places, order = sort(reshape(wrapped, tuple(index.spec.shape)), at)
    values, reach = gather(src, at, order), 1
    merge: Any = {"prod": lambda a, b: a * b, "amax": maximum, "amin": minimum}[reduce]
    while reach < n:
        later, earlier = narrow(values, at, reach, n - reach), narrow(values, at, 0, n - reach)
        same = eq(narrow(places, at, reach, n - reach), narrow(places, at, 0, n - reach))
        values = cat([narrow(values, at, 0, reach), where(same, merge(later, earlier), later)], at)
        reach *= 2
    if include_self:
        held = input
        for d, m in enumerate(index.spec.shape):
            held = narrow(held, d, 0, m) if d != at and held.spec.shape[d] != m else held
        values = merge(values, gather(held, at, places))
    # All but the last of a run go to a row that is cut off again.
    ends = fill_spec(places.spec.like((*places.spec.shape[:at], 1, *places.spec.shape[at + 1 :]), dtype=bool_), True)
    last = cat([narrow(places, at, 1, n - 1) != narrow(places, at, 0, n - 1), ends], at)
    spare = fill_spec(input.spec.like((*input.spec.shape[:at], 1, *input.spec.shape[at + 1 :])), 0)
    out = scatter(cat([input, spare], at), at, where(last, places, size), values)
    return narrow(out, at, 0, size).contiguous()


def _infer_extreme(input: Spec, src: Spec, index: Spec, dim: int, reduce: str, include_self: bool) -> Inferred:
    spec = _infer_functional(input, dim, index, src)
    return Inferred((spec,), (input, src, index), {"dim": dim, "reduce": reduce, "include_self": include_self})


def _extreme_vjp(
    g: Tensor, input: Tensor, src: Tensor, index: Tensor, y: Tensor, dim: int, include_self: bool
) -> tuple[Tensor, Tensor, None]:
    # As in PyTorch, all that equal the extreme share its gradient.
    own = eq(input, y) | ((input != input) & (y != y))
    if not include_self:
        untouched = scatter(fill_spec(input.spec.like(dtype=bool_), True), dim, index, False)
        own = own & untouched
    best = gather(y.detach(), dim, index)
    given = eq(src, best) | ((src != src) & (best != best))
    count = scatter_add(own.to(g.spec.dtype), dim, index, given.to(g.spec.dtype))
    share = g / count.clamp(min=1.0)
    return share * own, gather(share, dim, index) * given, None


@composite(_infer_extreme, _extreme_vjp, joint=True, name="functional_scatter_extreme", rare=True)
def _scatter_extreme(input: Tensor, src: Tensor, index: Tensor, dim: int, reduce: str, include_self: bool) -> Tensor:
    return _combined(input, src, index, wrap_dim(dim, input.spec.ndim, "scatter_reduce"), reduce, include_self)
