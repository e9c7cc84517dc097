"""What describes a set of numbers: quantiles, modes, histograms, covariances, and reductions that pass over NaN."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...dtype import bool_, float64, int64
from ...errors import DTypeError, ShapeError
from ...spec import Spec, as_int, wrap_dim
from ..checks import require_integers
from ..creation import fill_spec
from ..elementwise.arithmetic import ceil, floor, minimum, sqrt, where
from ..elementwise.arithmetic import round as rounded
from ..elementwise.composites import isnan
from ..elementwise.weighted import lerp
from ..families import accepts_axis, composite, floating
from ..from_data import of_new_array
from ..indexing import gather, scatter_into
from ..registry import public
from ..shape.views import broadcast_to, movedim, narrow, reshape, squeeze, unsqueeze
from ..upcast import upcast
from .reductions import ValuesIndices, amax, amin, mean, mean_of_none, to_equals
from .reductions import sum as total
from .selection import select_along, selected
from .sorting import lines, sort
from .variance import _unbiased_first, centred, std

if TYPE_CHECKING:
    from ...tensor import Tensor


class MinMax(NamedTuple):
    """What aminmax returns."""

    min: Tensor
    max: Tensor


@public()
@accepts_axis
def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> MinMax:
    """`amin` and `amax` over `dim` (None for all), as a (min, max) pair. Raises as amax does."""
    return MinMax(amin(input, dim, keepdim), amax(input, dim, keepdim))


@public(method=False)
@_unbiased_first
@accepts_axis
def std_mean(
    input: Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: float | None = None
) -> tuple[Tensor, Tensor]:
    """`std` and `mean` together, a tuple; `unbiased`, `correction` as of `var`. Raises as mean does."""
    return std(input, dim, unbiased, keepdim, correction=correction), mean(input, dim, keepdim)


# --- Without NaN ----------------------------------------------------------------------------------------------------


@public()
@accepts_axis
def nansum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """`sum` in which NaN counts as 0. Raises as sum does."""
    numbers = where(isnan(input), 0.0, input) if input.spec.dtype.is_floating_point else input
    return total(numbers, dim, keepdim, dtype=dtype)


@public()
@accepts_axis
def nanmean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """`mean` of the elements that are not NaN; NaN where there are none. Raises DTypeError unless floating."""
    input = input if dtype is None else input.to(dtype)
    floating("nanmean", input.spec)
    x = upcast(input)
    return (nansum(x, dim, keepdim) / total(~isnan(x), dim, keepdim)).to(input.spec.dtype)


@public()
@accepts_axis
def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """`median` of the elements that are not NaN; NaN where there are none. Raises as median does."""
    if dim is None:
        if not input.spec.numel:
            return mean_of_none("nanmedian", input)
        return _nanmedian(input)
    return selected(input, dim, "nanmedian", keepdim, "nanmedian")


@composite(lambda input: input.like(()), lambda g, input, y: to_equals(g, input, y), name="nanmedian_of_all")
def _nanmedian(input: Tensor) -> Tensor:
    found: Tensor = nanmedian(reshape(input, -1), 0)[0]
    return found


# --- Order ----------------------------------------------------------------------------------------------------------


@public()
@accepts_axis
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """The `k`-th smallest element along `dim` (1 is the smallest), and its index (int64).

    Raises ShapeError for a `k` outside [1, size], IndexError for a dim without elements or out of range.
    """
    at, x = lines(input, dim, "kthvalue")
    size = x.spec.shape[at]
    if not 1 <= as_int(k, "kthvalue", "k") <= size:
        raise ShapeError(f"kthvalue(): k is {k}, dim {dim} of shape {tuple(input.spec.shape)} has {size} elements")
    return ValuesIndices(*select_along(x, at, "kth", k - 1, keepdim and input.spec.ndim > 0))


@public()
@accepts_axis
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """The most frequent element along `dim`, the smallest of several, and its last index. Raises as kthvalue does."""
    return selected(input, dim, "mode", keepdim, "mode")


@public()
def msort(input: Tensor) -> Tensor:
    """The elements ascending along dim 0, in input's shape. See sort."""
    return sort(input, 0)[0]


_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")
_ROUNDINGS = {"lower": floor, "higher": ceil, "nearest": rounded}


def _quantile(input: Tensor, q: Any, dim: Any, keepdim: bool, interpolation: str, op: str, skip: bool) -> Tensor:
    dtype = floating(op, input.spec)
    if interpolation not in _INTERPOLATIONS:
        raise ValueError(f"{op}(): interpolation must be one of {', '.join(_INTERPOLATIONS)}, got {interpolation!r}")
    x = upcast(input)
    if dim is None:
        x, at, shape = reshape(x, -1), 0, (1,) * input.spec.ndim if keepdim else ()
    else:
        at = wrap_dim(dim, input.spec.ndim, op)
        shape = tuple(1 if d == at else n for d, n in enumerate(input.spec.shape) if keepdim or d != at)
        x = x if x.spec.ndim else reshape(x, 1)
    if not x.spec.shape[at]:
        raise ShapeError(f"{op}(): no elements, shape {tuple(input.spec.shape)}, dim {dim}")
    if hasattr(q, "spec"):
        if q.spec.ndim > 1:
            raise ShapeError(f"{op}(): q must be a number or have at most 1 dim, got shape {tuple(q.spec.shape)}")
        if q.spec.dtype is not dtype:
            raise DTypeError(f"{op}(): q is {q.spec.dtype} and input {dtype}; convert one")
        q_shape = tuple(q.spec.shape)
        fraction = reshape(q.to(x.device, x.spec.dtype), -1)
    else:
        if not 0 <= q <= 1:
            raise ValueError(f"{op}(): q must be between 0 and 1, got {q}")
        q_shape = ()
        fraction = fill_spec(x.spec.like((1,)), float(q))
    values = sort(movedim(x, at, -1), -1)[0]
    size = values.spec.shape[-1]
    last = narrow(values.detach(), -1, size - 1, 1)
    if skip:
        count = total(values.detach() == values.detach(), -1, True).to(x.spec.dtype)
        rank = (count - 1).clamp(min=0.0) * fraction
    else:
        rank = where(isnan(last), size - 1.0, fraction * (size - 1.0))
    if interpolation in _ROUNDINGS:
        rank = _ROUNDINGS[interpolation](rank)
    low = floor(rank.detach())
    out = gather(values, -1, low.to(int64))
    if interpolation in ("linear", "midpoint"):
        high = gather(values, -1, ceil(rank.detach()).to(int64))
        weight = rank - low if interpolation == "linear" else 0.5
        out = where(rank == low, out, lerp(out, high, weight))
    return reshape(movedim(out, -1, 0), (*q_shape, *shape)).to(dtype)


@public()
@accepts_axis
def quantile(
    input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """The `q`-th quantile along `dim` (None for all); for a tensor of several `q`, their dim comes first.

    interpolation, where q falls between two elements: "linear", "lower", "higher", "midpoint" or "nearest", as NumPy's.
    NaN where there is one. Raises DTypeError unless input is floating and a tensor `q` of its dtype, ValueError for q
    outside [0, 1] (IndexError for one in a tensor) or another interpolation, ShapeError for no elements or a `q` of 2
    dims.
    """
    return _quantile(input, q, dim, keepdim, interpolation, "quantile", False)


@public()
@accepts_axis
def nanquantile(
    input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """`quantile` of the elements that are not NaN; NaN where there are none. Raises as quantile does."""
    return _quantile(input, q, dim, keepdim, interpolation, "nanquantile", True)


# --- Counts ---------------------------------------------------------------------------------------------------------


@public()
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each integer from 0 to the largest (or to `minlength` - 1) occurs in a vector; or its weights' sum.

    int64, or the dtype of floating weights (float64 for others). The length depends on the values, so this waits for
    them. Raises DTypeError unless input holds integers, ShapeError for other shapes or a negative integer.
    """
    require_integers("bincount", "input", input.spec)
    if input.spec.ndim != 1 or (weights is not None and weights.spec.shape != input.spec.shape) or minlength < 0:
        raise ShapeError(
            f"bincount(): input must have 1 dim, weights its shape and minlength be >= 0; got {tuple(input.spec.shape)}"
            f", {None if weights is None else tuple(weights.spec.shape)} and {minlength}"
        )
    if weights is None and input.spec.device.type == "cpu" and input.spec.numel and type(input.spec) is Spec:
        counts = _counted_on_host(input.detach(), minlength)
        if counts is not None:
            return counts
    size = minlength
    if input.spec.numel:
        low, high = (int(v) for v in (input.min().item(), input.max().item()))
        if low < 0:
            raise ShapeError(f"bincount(): cannot count negative integers, the smallest is {low}")
        size = max(size, high + 1)
    if weights is None:
        return _bin_counts(input.detach().to(int64), size)
    weighted = weights.detach() if weights.spec.dtype.is_floating_point else weights.detach().to(float64)
    return _added_up(input.to(int64), weighted, size)


@composite(lambda index, size: index.like((size,)), name="bin_counts")
def _bin_counts(index: Tensor, size: int) -> Tensor:
    # A single one, since to fill a vector takes longer than to read it.
    return _added_up(index, broadcast_to(fill_spec(index.spec.like((1,)), 1), tuple(index.spec.shape)), size)


def _added_up(index: Tensor, weights: Tensor, size: int) -> Tensor:
    """The sum of the weights of each index."""
    out = fill_spec(weights.spec.like((size,)), 0)
    scatter_into(out, 0, index, weights, add=True)
    return out


def _counted_on_host(input: Tensor, minlength: int) -> Tensor | None:
    """The counts; None where there are none, which what counts anywhere says in norch's words."""
    try:
        counts = np.bincount(input.numpy().astype(np.int64, copy=False), minlength=minlength)
    except (ValueError, MemoryError):
        return None
    return of_new_array(counts.astype(np.int64, copy=False), int64)


@public()
def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many elements fall in each of `bins` equal parts of [min, max], in input's dtype; others are not counted.

    With min equal to max they are those of the elements, which this then waits for. The last bin has its upper edge
    too. Raises DTypeError for bool, ValueError for no bins, min > max or an infinite range.
    """
    dtype = input.spec.dtype
    if dtype is bool_:
        raise DTypeError("histc(): cannot take bool; convert it first")
    if bins < 1 or min > max:
        raise ValueError(f"histc(): needs at least 1 bin and min <= max, got {bins}, {min} and {max}")
    x = reshape(input.detach(), -1)
    x = upcast(x) if dtype.is_floating_point else x.to(float64)
    if min == max and x.spec.numel:
        min, max = x.min().item(), x.max().item()
    if min == max:
        min, max = min - 1, max + 1
    if not (math.isfinite(min) and math.isfinite(max)):
        raise ValueError(f"histc(): the range from {min} to {max} is not finite")
    return _histogram(x, bins, float(min), float(max)).to(dtype)


@composite(lambda x, bins, low, high: x.like((bins,), dtype=int64), name="histogram")
def _histogram(x: Tensor, bins: int, low: float, high: float) -> Tensor:
    inside = (x >= low) & (x <= high)
    index = minimum(where(inside, (x - low) * bins / (high - low), 0.0).to(int64), bins - 1)
    return _added_up(index, inside.to(x.spec.dtype), bins).to(int64)


# --- Covariance -----------------------------------------------------------------------------------------------------


@public()
def cov(
    input: Tensor, *, correction: float = 1, fweights: Tensor | None = None, aweights: Tensor | None = None
) -> Tensor:
    """The covariance matrix of n variables in m observations: (n, m) -> (n, n); of one variable, its variance, 0-d.

    correction: subtracted from the number of observations. fweights: how often each observation counts, integers;
    aweights: its weight, floating. Raises ShapeError above 2 dims and for other weights, DTypeError for bool and for
    weights of another kind, ValueError for negative ones, for which this waits.
    """
    if input.spec.ndim > 2:
        raise ShapeError(f"cov(): expected at most 2 dims, got shape {tuple(input.spec.shape)}")
    if input.spec.dtype is bool_:
        raise DTypeError("cov(): cannot take bool; convert it first")
    rows = reshape(input, 1, -1) if input.spec.ndim < 2 else input
    if not rows.spec.dtype.is_floating_point:
        rows = rows.float() if rows.spec.dtype.itemsize < 8 else rows.double().float()
    weight = None
    for given, is_floating in ((fweights, False), (aweights, True)):
        if given is not None:
            if given.spec.dtype.is_floating_point is not is_floating:
                raise DTypeError(f"cov(): fweights must hold integers and aweights be floating, got {given.spec.dtype}")
            if not given.is_meta and bool((given < 0).any().item()):
                raise ValueError("cov(): weights must not be negative")
            if tuple(given.spec.shape) != (rows.spec.shape[1],):
                raise ShapeError(
                    f"cov(): weights of shape {tuple(given.spec.shape)} for {rows.spec.shape[1]} observations"
                )
            weight = given if weight is None else weight * given
    if weight is None:
        off = centred(rows, 1)
        degrees: Any = max(rows.spec.shape[1] - correction, 0)
        product = off @ off.mT
    else:
        weight_sum = total(weight)
        off = rows - total(rows * weight, 1, True) / weight_sum
        off = off - total(off * weight, 1, True) / weight_sum
        mean_weight = 1 if aweights is None else total(weight * aweights) / weight_sum
        degrees = (weight_sum - mean_weight * correction).clamp(min=0.0)
        product = (off * weight) @ off.mT
    return squeeze(product / degrees)


@public()
def corrcoef(input: Tensor) -> Tensor:
    """Pearson's correlations of n variables in m observations: (n, m) -> (n, n); of a vector, 1. Raises as cov does."""
    matrix = cov(input)
    if not matrix.spec.ndim:
        return matrix / matrix
    deviation = sqrt(matrix.diagonal())
    out = matrix / unsqueeze(deviation, 1) / deviation
    return out.clamp(-1.0, 1.0)
