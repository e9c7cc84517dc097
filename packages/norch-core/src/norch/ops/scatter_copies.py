"""Copies of a tensor with something put in: in a slice, on a diagonal, where a mask says, or combined by an index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dispatch.plan import Inferred
from ..dtype import bool_, int32, int64
from ..errors import DTypeError, IndexError, ShapeError
from ..spec import Spec, wrap_dim
from .copying import clone
from .creation import arange, empty_spec, fill_spec
from .elementwise.arithmetic import div, eq, maximum, minimum, mul, where
from .families import composite
from .indexing import expand_index, gather, infer_scattered, names_nothing, scatter, scatter_add, takes_0d
from .registry import public
from .shape.joining import cat
from .shape.views import broadcast_tensors, diagonal, narrow, reshape, select, slice_dim

if TYPE_CHECKING:
    from ..tensor import Tensor


def _copy_with(input: Tensor, src: Tensor, view: Any, op: str) -> Tensor:
    """A copy of input with `src` written to a `view` of it. Raises ShapeError unless that has src's shape."""
    if type(src.spec) is Spec:
        out = input.clone()
    else:  # vmap's: the copy is to differ from sample to sample as `src` does
        out = empty_spec(src.spec.like(input.spec.shape, dtype=input.dtype)).copy_(input)
    part = view(out)
    if part.spec.shape != src.spec.shape:
        raise ShapeError(f"{op}(): expected src of shape {tuple(part.spec.shape)}, got {tuple(src.spec.shape)}")
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
    return _copy_with(input, src, lambda x: slice_dim(x, at, first, len(span), step), "slice_scatter")


@public()
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy of input with `src` as element `index` of `dim`. Raises as select does, ShapeError for another shape."""
    return _copy_with(input, src, lambda x: select(x, dim, index), "select_scatter")


@public()
def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A copy of input with `src` on a diagonal, as `diagonal` says. Raises ShapeError where it does not fit."""
    return _copy_with(input, src, lambda x: diagonal(x, offset, dim1, dim2), "diagonal_scatter")


@public(inplace=True)
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy of input whose elements where the bool `mask`, which broadcasts, is True are those of `source`, in order.

    Raises DTypeError unless the mask is bool and the dtypes agree, IndexError where source has too few elements.
    """
    if mask.spec.dtype is not bool_:
        raise DTypeError(f"masked_scatter(): mask must be bool, got {mask.spec.dtype}")
    if source.spec.dtype is not input.spec.dtype:
        raise DTypeError(f"masked_scatter(): input is {input.spec.dtype} and source {source.spec.dtype}; convert one")
    target, chosen = broadcast_tensors(input, mask)
    flat, values = reshape(chosen, -1), reshape(source, -1)
    if not flat.spec.numel:
        return target.clone()
    if not values.spec.numel:
        if bool(flat.any().item()):
            raise IndexError(f"masked_scatter(): source {tuple(source.spec.shape)} is empty, the mask is not")
        values = cat([values, narrow(reshape(target, -1), 0, 0, 1)])  # in the graph all the same
    # Where the mask is False the last one's, so that no element's gradient is the sum of most of them; at first -1.
    ranks = int32 if flat.spec.numel < 1 << 31 else int64
    steps = flat.to(ranks)
    narrow(steps, 0, 0, 1).sub_(1)
    rank = steps.cumsum(0, dtype=ranks)
    return where(chosen, reshape(gather(values, 0, rank), tuple(target.spec.shape)), target)


@public(inplace=True)
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of input with `source` at the row-major elements `index`, or added to them with `accumulate`. Raises as
    scatter does.
    """
    flat, at = reshape(input, -1), reshape(index, -1)
    write: Any = scatter_add if accumulate else scatter
    return reshape(write(flat, 0, at, reshape(source, -1)), tuple(input.spec.shape))


# --- scatter_reduce -------------------------------------------------------------------------------------------------


@public(inplace=True)
def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """A copy of input, its element at index[i][j] of dim 0 (and so on) combined with every src[i][j] for it.

    reduce: "sum", "prod", "mean", "amax" or "amin", for which "max" and "min" stand too. Without `include_self`, input
    counts only where nothing is scattered. Raises IndexError for an index out of range, ShapeError for shapes that do
    not fit, ValueError for another `reduce`, DTypeError unless the dtypes agree.
    """
    reduce = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise ValueError(f"scatter_reduce(): reduce must be sum, prod, mean, amax or amin, got {reduce!r}")
    if names_nothing(input, index):
        return clone(input)
    infer_scattered(input.spec, dim, index.spec, src.spec)
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
    count = _counts(input, wrap_dim(dim, input.spec.ndim, "scatter_reduce"), index, include_self)
    mean = div(out, count, rounding_mode=None if out.spec.dtype.is_floating_point else "floor")
    return mean.to(out.spec.dtype)


def _counts(input: Tensor, at: int, index: Tensor, include_self: bool) -> Tensor:
    """How many elements a mean is of, at least 1; once for all that an index which is expanded repeats it for."""
    sizes, shape = list(input.spec.shape), list(index.spec.shape)
    for d, n in enumerate(shape):
        if d != at and n == sizes[d] and not index.spec.strides[d]:
            index, sizes[d], shape[d] = narrow(index, d, 0, min(n, 1)), min(n, 1), min(n, 1)
    ones = fill_spec(index.spec.like((1,) * len(shape), dtype=int64), 1).expand(shape)
    start = fill_spec(input.spec.like(tuple(sizes), dtype=int64), 1 if include_self else 0)
    count = scatter_add(start, at, index, ones)
    return count if include_self else count.clamp(min=1)


@public(inplace=True)
@takes_0d
def index_reduce(
    input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """`scatter_reduce` (not "sum") of whole slices of `source`: slice i of `dim` to index[i]. Raises as that does."""
    if reduce == "sum":
        raise ValueError("index_reduce(): reduce must be prod, mean, amax or amin, got 'sum'; use index_add")
    at = wrap_dim(dim, input.spec.ndim, "index_reduce")
    index = expand_index(index, tuple(source.spec.shape), at, "index_reduce")
    return scatter_reduce(input, at, index, source, reduce, include_self=include_self)


def _combined(input: Tensor, src: Tensor, index: Tensor, at: int, reduce: str, include_self: bool) -> Tensor:
    """Sorts by index, combines each run of equal indices by doubling, and writes the last element of each."""
    from .reduction.sorting import sort

    n = index.spec.shape[at]
    if not index.spec.numel:
        return input.clone()
    size = input.spec.shape[at]
    # A gather from all indices wraps negative ones, and refuses those out of range.
    wrapped = gather(arange(size, device=index.device), 0, reshape(index.to(int64), -1))
    targets, order = sort(reshape(wrapped, tuple(index.spec.shape)), at)
    values, step = gather(src, at, order), 1
    combine: Any = {"prod": mul, "amax": maximum, "amin": minimum}[reduce]
    while step < n:
        later, earlier = narrow(values, at, step, n - step), narrow(values, at, 0, n - step)
        same = eq(narrow(targets, at, step, n - step), narrow(targets, at, 0, n - step))
        values = cat([narrow(values, at, 0, step), where(same, combine(later, earlier), later)], at)
        step *= 2
    if include_self:
        current = input
        for d, m in enumerate(index.spec.shape):
            current = narrow(current, d, 0, m) if d != at and current.spec.shape[d] != m else current
        values = combine(values, gather(current, at, targets))
    # All but the last of a run go to a row that is cut off again.
    ends = fill_spec(targets.spec.like((*targets.spec.shape[:at], 1, *targets.spec.shape[at + 1 :]), dtype=bool_), True)
    last = cat([narrow(targets, at, 1, n - 1) != narrow(targets, at, 0, n - 1), ends], at)
    extra = fill_spec(input.spec.like((*input.spec.shape[:at], 1, *input.spec.shape[at + 1 :])), 0)
    out = scatter(cat([input, extra], at), at, where(last, targets, size), values)
    return narrow(out, at, 0, size).contiguous()


def _infer_extreme(input: Spec, src: Spec, index: Spec, dim: int, reduce: str, include_self: bool) -> Inferred:
    spec = infer_scattered(input, dim, index, src)
    return Inferred((spec,), (input, src, index), {"dim": dim, "reduce": reduce, "include_self": include_self})


def _extreme_vjp(
    g: Tensor, input: Tensor, src: Tensor, index: Tensor, y: Tensor, dim: int, include_self: bool
) -> tuple[Tensor, Tensor, None]:
    # As in PyTorch, all that equal the extreme share its gradient. Where one is NaN so is the extreme.
    own = eq(input, y) | (input != input)
    if not include_self:
        own = own & scatter(fill_spec(input.spec.like(dtype=bool_), True), dim, index, False)
    given = eq(src, gather(y.detach(), dim, index)) | (src != src)
    of_input, of_src = own.to(g.spec.dtype), given.to(g.spec.dtype)
    share = g / scatter_add(of_input, dim, index, of_src)
    return share * of_input, gather(share, dim, index) * of_src, None


@composite(_infer_extreme, _extreme_vjp, joint=True, name="functional_scatter_extreme")
def _scatter_extreme(input: Tensor, src: Tensor, index: Tensor, dim: int, reduce: str, include_self: bool) -> Tensor:
    return _combined(input, src, index, wrap_dim(dim, input.spec.ndim, "scatter_reduce"), reduce, include_self)
