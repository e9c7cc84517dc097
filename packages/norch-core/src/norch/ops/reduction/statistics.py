"""What describes a set of numbers: quantiles, modes, histograms, covariances, and reductions that pass over NaN."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from ...dtype import bfloat16, bool_, float16, float32, float64, int64
from ...errors import DTypeError, IndexError, ShapeError
from ...spec import as_int, wrap_dim
from ..creation import arange, fill_spec
from ..elementwise.arithmetic import floor, sqrt, where
from ..elementwise.arithmetic import round as rounded
from ..elementwise.composites import isnan
from ..families import accepts_axis
from ..indexing import gather, scatter_add
from ..registry import public
from ..shape.joining import cat
from ..shape.views import broadcast_to, movedim, narrow, reshape, squeeze, unsqueeze
from .reductions import ValuesIndices, amax, amin, argmax, mean, std
from .reductions import sum as total
from .scan import cummax
from .sorting import sort

if TYPE_CHECKING:
    from ...tensor import Tensor


class MinMax(NamedTuple):
    """What aminmax returns."""

    min: Tensor
    max: Tensor


@public()
@accepts_axis
def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> MinMax:
    """`amin` and `amax` over `dim` (None for all), as a (min, max) pair."""
    return MinMax(amin(input, dim, keepdim), amax(input, dim, keepdim))


@public(method=False)
@accepts_axis
def std_mean(
    input: Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: float | None = None
) -> tuple[Tensor, Tensor]:
    """`std` and `mean` together."""
    return std(input, dim, unbiased, keepdim, correction=correction), mean(input, dim, keepdim)


# --- Without NaN ----------------------------------------------------------------------------------------------------


def _numbers(input: Tensor, op: str) -> Tensor:
    if not input.spec.dtype.is_floating_point:
        raise DTypeError(f"{op}(): expected a floating dtype, got {input.spec.dtype}")
    return where(isnan(input), 0.0, input)


@public()
@accepts_axis
def nansum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """`sum` in which NaN counts as 0."""
    numbers = _numbers(input, "nansum") if input.spec.dtype.is_floating_point else input
    return total(numbers, dim, keepdim, dtype=dtype)


@public()
@accepts_axis
def nanmean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """`mean` of the elements that are not NaN; NaN where there are none. Raises DTypeError unless floating."""
    found = input if dtype is None else input.to(dtype)
    wide = found.to(float32) if found.spec.dtype in (float16, bfloat16) else found
    out = total(_numbers(wide, "nanmean"), dim, keepdim) / total(~isnan(wide), dim, keepdim)
    return out.to(found.spec.dtype)


@public()
@accepts_axis
def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """`median` of the elements that are not NaN; NaN where there are none. Along `dim`, a (values, indices) pair."""
    if dim is None:
        flat = reshape(input, -1)
        if not flat.spec.numel:
            raise ShapeError(f"nanmedian(): no elements, shape {tuple(input.spec.shape)}")
        return nanmedian(flat, 0)[0]
    at, values, indices = _in_order(input, dim, "nanmedian")
    found = values.detach()
    count = total(found == found, at, True)
    return _taken(values, indices, at, ((count - 1).clamp(min=0)) // 2, keepdim, input)


# --- Order ----------------------------------------------------------------------------------------------------------


def _in_order(input: Tensor, dim: Any, op: str) -> tuple[int, Tensor, Tensor]:
    """The dim, and values and indices in order along it; a 0-d tensor as one of 1 dim."""
    at = wrap_dim(dim, input.spec.ndim, op)
    x = input if input.spec.ndim else reshape(input, 1)
    if not x.spec.shape[at]:
        raise IndexError(f"{op}(): no elements along dim {dim} of shape {tuple(input.spec.shape)}")
    return at, *sort(x, at)


def _taken(values: Tensor, indices: Tensor, at: int, place: Tensor, keepdim: bool, input: Tensor) -> ValuesIndices:
    found = ValuesIndices(gather(values, at, place), gather(indices, at, place))
    keepdim = keepdim and input.spec.ndim > 0
    return found if keepdim else ValuesIndices(squeeze(found.values, at), squeeze(found.indices, at))


@public()
@accepts_axis
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """The `k`-th smallest element along `dim` (1 is the smallest), and its index (int64). ShapeError for no such."""
    at, values, indices = _in_order(input, dim, "kthvalue")
    size = values.spec.shape[at]
    if not 1 <= as_int(k, "kthvalue", "k") <= size:
        raise ShapeError(f"kthvalue(): k is {k}, dim {dim} of shape {tuple(input.spec.shape)} has {size} elements")
    found = ValuesIndices(narrow(values, at, k - 1, 1), narrow(indices, at, k - 1, 1))
    if keepdim and input.spec.ndim:
        return found
    return ValuesIndices(squeeze(found.values, at), squeeze(found.indices, at))


@public()
@accepts_axis
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """The commonest element along `dim`, the smallest of several such, and the index (int64) of its last place."""
    at, values, indices = _in_order(input, dim, "mode")
    size = values.spec.shape[at]
    shape = tuple(values.spec.shape)
    place = broadcast_to(
        reshape(arange(size, device=input.device), [-1 if d == at else 1 for d in range(len(shape))]), shape
    )
    found = values.detach()
    starts = narrow(found, at, 1, size - 1) != narrow(found, at, 0, size - 1)
    first = cat([fill_spec(starts.spec.like((*shape[:at], 1, *shape[at + 1 :])), True), starts], at)
    run = place - cummax(where(first, place, 0), at)[0]
    return _taken(values, indices, at, argmax(run, at, True), keepdim, input)


@public()
def msort(input: Tensor) -> Tensor:
    """The elements in order along dim 0."""
    return sort(input, 0)[0]


_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _quantile(input: Tensor, q: Any, dim: Any, keepdim: bool, interpolation: str, op: str, skip: bool) -> Tensor:
    dtype = input.spec.dtype
    if not dtype.is_floating_point:
        raise DTypeError(f"{op}(): expected a floating dtype, got {dtype}")
    if interpolation not in _INTERPOLATIONS:
        raise ValueError(f"{op}(): interpolation must be one of {', '.join(_INTERPOLATIONS)}, got {interpolation!r}")
    x = input.to(float32) if dtype.itemsize == 2 else input
    if dim is None:
        kept = (1,) * input.spec.ndim
        x, at = reshape(x, -1), 0
    else:
        at = wrap_dim(dim, input.spec.ndim, op)
        kept = tuple(1 if d == at else n for d, n in enumerate(input.spec.shape))
        x = x if x.spec.ndim else reshape(x, 1)
    if not x.spec.shape[at]:
        raise ShapeError(f"{op}(): no elements, shape {tuple(input.spec.shape)}, dim {dim}")
    if hasattr(q, "spec"):
        if q.spec.ndim > 1:
            raise ShapeError(f"{op}(): q must be a number or have at most 1 dim, got shape {tuple(q.spec.shape)}")
        if q.spec.dtype is not dtype:
            raise DTypeError(f"{op}(): q is {q.spec.dtype} and input {dtype}; convert one")
        asked = tuple(q.spec.shape)
        share = reshape(q.detach().to(x.device, x.spec.dtype), -1)
    else:
        if not 0 <= q <= 1:
            raise ValueError(f"{op}(): q must be between 0 and 1, got {q}")
        asked = ()
        share = fill_spec(x.spec.like((1,)), float(q))
    values = sort(movedim(x, at, -1), -1)[0]
    size = values.spec.shape[-1]
    last = narrow(values.detach(), -1, size - 1, 1)
    if skip:
        count = total(values.detach() == values.detach(), -1, True).to(x.spec.dtype)
        rank = (count - 1).clamp(min=0.0) * share
    else:
        rank = broadcast_to(share * (size - 1.0), (*values.spec.shape[:-1], share.spec.numel))
    rank = {"lower": floor, "higher": _ceiling, "nearest": rounded}.get(interpolation, _itself)(rank)
    low = floor(rank).detach()
    out = gather(values, -1, low.to(int64))
    if interpolation in ("linear", "midpoint"):
        high = gather(values, -1, _ceiling(rank).to(int64))
        weight = rank - low if interpolation == "linear" else 0.5
        out = where(rank == low, out, out + (high - out) * weight)
    if not skip:
        out = where(isnan(last), math.nan, out)
    out = movedim(out, -1, 0)
    return reshape(out, (*asked, *(kept if keepdim else _without(kept, at, dim)))).to(dtype)


def _itself(x: Tensor) -> Tensor:
    return x


def _ceiling(x: Tensor) -> Tensor:
    return -floor(-x)


def _without(kept: tuple[int, ...], at: int, dim: Any) -> tuple[int, ...]:
    return () if dim is None else (*kept[:at], *kept[at + 1 :])


@public()
@accepts_axis
def quantile(
    input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """The `q`-th quantile along `dim` (None for all); for a tensor of several `q`, their dim comes first.

    interpolation, where q falls between two elements: "linear", "lower", "higher", "midpoint" or "nearest". NaN where
    there is one. Raises DTypeError unless input is floating and a tensor `q` of its dtype, ValueError for q outside
    [0, 1] (IndexError for one in a tensor).
    """
    return _quantile(input, q, dim, keepdim, interpolation, "quantile", False)


@public()
@accepts_axis
def nanquantile(
    input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """`quantile` of the elements that are not NaN; NaN where there are none."""
    return _quantile(input, q, dim, keepdim, interpolation, "nanquantile", True)


# --- Counts ---------------------------------------------------------------------------------------------------------


@public()
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each integer from 0 to the largest (or to `minlength` - 1) occurs in a vector; or its weights' sum.

    int64, or the dtype of floating weights (float64 for others). The length depends on the values, so this waits for
    them. Raises DTypeError unless input holds integers, ShapeError for other shapes or a negative integer.
    """
    dtype = input.spec.dtype
    if dtype.is_floating_point or dtype is bool_:
        raise DTypeError(f"bincount(): expected integers, got {dtype}")
    if input.spec.ndim != 1 or (weights is not None and weights.spec.shape != input.spec.shape) or minlength < 0:
        raise ShapeError(
            f"bincount(): input must have 1 dim, weights its shape and minlength be >= 0; got {tuple(input.spec.shape)}"
            f", {None if weights is None else tuple(weights.spec.shape)} and {minlength}"
        )
    size = minlength
    if input.spec.numel:
        low, high = (int(v) for v in (input.min().item(), input.max().item()))
        if low < 0:
            raise ShapeError(f"bincount(): cannot count negative integers, the smallest is {low}")
        size = max(size, high + 1)
    counted = fill_spec(input.spec.like(dtype=int64), 1) if weights is None else weights.detach()
    if not counted.spec.dtype.is_floating_point and weights is not None:
        counted = counted.to(float64)
    return scatter_add(fill_spec(counted.spec.like((size,)), 0), 0, input.to(int64), counted)


@public()
def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many elements fall in each of `bins` equal parts of [min, max], in input's dtype; others are not counted.

    With min and max both 0 they are those of the elements, which this then waits for. Raises DTypeError unless
    floating, ValueError for no bins or min > max.
    """
    if not input.spec.dtype.is_floating_point:
        raise DTypeError(f"histc(): expected a floating dtype, got {input.spec.dtype}")
    if bins < 1 or min > max:
        raise ValueError(f"histc(): needs at least 1 bin and min <= max, got {bins}, {min} and {max}")
    flat = reshape(input.detach(), -1)
    wide = flat.to(float32) if flat.spec.dtype.itemsize == 2 else flat
    if min == max == 0 and wide.spec.numel:
        min, max = wide.min().item(), wide.max().item()
    if min == max:
        min, max = min - 1, max + 1
    if not (math.isfinite(min) and math.isfinite(max)):
        raise ValueError(f"histc(): the range from {min} to {max} is not finite")
    inside = (wide >= min) & (wide <= max)
    place = where(inside, floor((wide - min) * (bins / (max - min))), 0.0).to(int64).clamp(max=bins - 1)
    counts = fill_spec(wide.spec.like((bins,)), 0)
    return scatter_add(counts, 0, place, inside.to(wide.spec.dtype)).to(input.spec.dtype)


# --- Covariance -----------------------------------------------------------------------------------------------------


@public()
def cov(
    input: Tensor, *, correction: float = 1, fweights: Tensor | None = None, aweights: Tensor | None = None
) -> Tensor:
    """The covariances of the rows of a matrix, whose columns are observations; of a vector, its variance.

    fweights: how often each observation counts, integers; aweights: its weight. Raises ShapeError above 2 dims.
    """
    if input.spec.ndim > 2:
        raise ShapeError(f"cov(): expected at most 2 dims, got shape {tuple(input.spec.shape)}")
    if input.spec.dtype is bool_:
        raise DTypeError("cov(): cannot take bool; convert it first")
    rows = reshape(input, 1, -1) if input.spec.ndim < 2 else input
    if not rows.spec.dtype.is_floating_point:
        rows = rows.float() if rows.spec.dtype.itemsize < 8 else rows.double().float()
    weight = None
    for given in (fweights, aweights):
        if given is not None:
            if tuple(given.spec.shape) != (rows.spec.shape[1],):
                raise ShapeError(
                    f"cov(): weights of shape {tuple(given.spec.shape)} for {rows.spec.shape[1]} observations"
                )
            weight = given.to(rows.spec.dtype) if weight is None else weight * given
    if weight is None:
        centred = rows - mean(rows, 1, True)
        degrees: Any = max(rows.spec.shape[1] - correction, 0)
        product = centred @ centred.mT
    else:
        amount = total(weight)
        centred = rows - total(rows * weight, 1, True) / amount
        shares = amount if aweights is None else total(weight * aweights) / amount
        degrees = (amount - shares * correction if aweights is not None else amount - correction).clamp(min=0.0)
        product = (centred * weight) @ centred.mT
    out = product / degrees
    return squeeze(out) if input.spec.ndim < 2 else out


@public()
def corrcoef(input: Tensor) -> Tensor:
    """The correlations of the rows of a matrix, whose columns are observations; of a vector, 1."""
    matrix = cov(input)
    if not matrix.spec.ndim:
        return matrix / matrix
    deviation = sqrt(matrix.diagonal())
    out = matrix / unsqueeze(deviation, 1) / deviation
    return out.clamp(-1.0, 1.0)
