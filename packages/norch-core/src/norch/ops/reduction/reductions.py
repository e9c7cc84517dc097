"""Reductions and scans."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ...autograd.accumulate import shared_ops
from ...backend.contract import REDUCTION
from ...dispatch.op import Op
from ...dispatch.plan import Inferred
from ...dtype import BOOL, DType, as_dtype, bool_, float32, get_default_dtype, int64
from ...errors import DTypeError, ShapeError
from ...spec import Shape, Spec, as_shape, wrap_dim, wrap_dims
from ..elementwise.arithmetic import abs as absolute
from ..elementwise.arithmetic import exp, log, maximum, minimum, where
from ..families import accepts_axis, composite, primitive
from ..indexing import gather
from ..registry import method, public
from ..shape.views import flatten, inverse_permutation, reshape, squeeze
from ..upcast import in_float32, upcast

if TYPE_CHECKING:
    from ...tensor import Tensor


def _reduced_specs(spec: Spec, dims: Shape, keepdim: bool, dtype: DType) -> tuple[Spec, Spec]:
    """The result's spec as the caller sees it, and as the kernel does (every reduced dim kept, of size 1)."""
    kept = tuple(1 if i in dims else n for i, n in enumerate(spec.shape))
    shape = kept if keepdim else tuple(n for i, n in enumerate(spec.shape) if i not in dims)
    return spec.like(shape, dtype=dtype), spec.like(kept, dtype=dtype)


def _infer_reduction(name: str, out: str, empty: bool) -> Any:
    def infer(x: Spec, dim: Any, keepdim: bool, dtype: DType | None) -> Inferred:
        dims = wrap_dims(dim, x.ndim, name)
        if out == "bool":
            compute = result = bool_
        elif out == "sum":
            compute = result = dtype or (x.dtype if x.dtype.is_floating_point else int64)
        else:
            compute, result = x.dtype, int64 if out in ("index", "count") else x.dtype
        if not empty and x.numel == 0 and 0 in [x.shape[d] for d in dims]:
            raise ShapeError(f"{name}(): cannot reduce no elements, shape {tuple(x.shape)} along dims {dims}")
        caller, kernel = _reduced_specs(x, dims, keepdim, result)
        return Inferred((caller,), ((compute, x.shape),), {"dims": dims}, (kernel,))

    return infer


def _unsqueezed(g: Tensor, x_spec: Spec, dim: Any, keepdim: bool) -> Tensor:
    """A reduction's gradient or result with its dims as of `keepdim`, so that it broadcasts to the operand."""
    if keepdim:
        return g
    dims = wrap_dims(dim, x_spec.ndim, "sum")
    return reshape(g, tuple(1 if i in dims else n for i, n in enumerate(x_spec.shape)))


def _sum_vjp(g: Tensor, x_spec: Spec, dim: Any, keepdim: bool) -> Tensor:
    return _unsqueezed(g, x_spec, dim, keepdim).expand(tuple(x_spec.shape))


def _extreme_vjp(g: Tensor, x: Tensor, y: Tensor, x_spec: Spec, dim: Any, keepdim: bool) -> Tensor:
    return to_equals(_unsqueezed(g, x_spec, dim, keepdim), x, _unsqueezed(y, x_spec, dim, keepdim), _dims(dim))


def to_equals(g: Tensor, x: Tensor, y: Tensor, dim: Any = None) -> Tensor:
    """The gradient of what was taken from `x` over `dim`: shared among the elements that are `y`, or are NaN as it."""
    is_y = (x == y) | ((x != x) & (y != y))
    return where(is_y, g / is_y.sum(dim, True, dtype=g.dtype), 0.0)


def _dims(dim: Any) -> Any:
    return list(dim) if isinstance(dim, tuple) else dim


def _prod_vjp(g: Tensor, x: Tensor, x_spec: Spec, dim: Any, keepdim: bool) -> Tensor:
    dims = wrap_dims(dim, x_spec.ndim, "prod")
    rest = tuple(d for d in range(x_spec.ndim) if d not in dims)
    order = (*rest, *dims)
    if not x_spec.numel:
        return x * 0
    # In 16 bits the products of some might overflow where that of all does not.
    rows = upcast(x.permute(order).reshape((*[x_spec.shape[d] for d in rest], -1)))
    others = _prod_of_others(rows).reshape(tuple(x_spec.shape[d] for d in order))
    return (_unsqueezed(g, x_spec, dim, keepdim) * others.permute(inverse_permutation(order))).to(g.dtype)


@composite(lambda input: input.like(tuple(input.shape)), name="prod_of_others")
def _prod_of_others(input: Tensor) -> Tensor:
    """Along the last dim the product of all others, without a division, so that zeros are right: those before times
    those after."""
    from ..shape.joining import cat
    from .scan import cumprod

    one = input.new_ones((*input.shape[:-1], 1))
    before = cumprod(cat([one, input[..., :-1]], -1), -1)
    after = cumprod(cat([one, input.flip(-1)[..., :-1]], -1), -1).flip(-1)
    return before * after


def _reduction(name: str, gives: str, of_none: bool, *vjp: Callable[..., Any]) -> Op:
    infer = _infer_reduction(name, gives, of_none)
    return primitive(name, "x dim keepdim dtype", 1, infer, vjp or None, family=REDUCTION)


_SUM = _reduction("sum", "sum", True, _sum_vjp)
shared_ops["sum"] = _SUM.call
_PROD = _reduction("prod", "sum", True, _prod_vjp)
_AMAX = _reduction("amax", "same", False, _extreme_vjp)
_AMIN = _reduction("amin", "same", False, _extreme_vjp)
_ANY = _reduction("any", "bool", True)
_ALL = _reduction("all", "bool", True)
_ARGMAX = _reduction("argmax", "index", False)
_ARGMIN = _reduction("argmin", "index", False)


def optional_dtype(dtype: Any, op: str) -> DType | None:
    """`dtype` as a DType, or None. Raises DTypeError for what names none."""
    return None if dtype is None else as_dtype(dtype, op)


def _reduce(op: Op, input: Tensor, dim: Any, keepdim: bool, dtype: DType | None = None) -> Tensor:
    return op.call(input, _none_if_empty(dim), keepdim, dtype)


@public()
@accepts_axis
def sum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum over `dim` (one, several, or None), in int64 for integers unless `dtype`. IndexError for a wrong dim."""
    chosen = optional_dtype(dtype, "sum")
    if input.spec.dtype is bool_ and chosen in (None, int64):
        return _count_nonzero(input, _none_if_empty(dim), keepdim)
    return _reduce(_SUM, input, dim, keepdim, chosen)


def _infer_count(x: Spec, dims: Any, keepdim: bool) -> Inferred:
    found: Inferred = _infer_reduction("count_nonzero", "count", True)(x, dims, keepdim, None)
    return found._replace(attrs={**found.attrs, "keepdim": True})


@composite(_infer_count, {}, name="count_nonzero")
def _count_nonzero(x: Tensor, dims: Any, keepdim: bool) -> Tensor:
    return _reduce(_SUM, x if x.dtype.category == BOOL else x != 0, dims, keepdim)


_infer_sum = _infer_reduction("sum_of_squares", "sum", True)


@composite(
    lambda x, dim, keepdim: _infer_sum(x, dim, keepdim, None),
    lambda g, x, x_spec, dim, keepdim: x * _sum_vjp(g * 2, x_spec, dim, keepdim),
)
def sum_of_squares(x: Tensor, dim: Any, keepdim: bool) -> Tensor:
    """The sum of x * x over `dim`."""
    return sum(x * x, dim, keepdim)


def _none_if_empty(dim: Any) -> Any:
    # As in PyTorch, an empty list of dims means all of them.
    return dim if dim is None or type(dim) is int else tuple(dim) or None if isinstance(dim, tuple | list) else dim


@public()
@accepts_axis
def mean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The mean over `dim` (None for all), in `dtype` if given. NaN where there are no elements.

    Raises DTypeError for integers and bools without a `dtype`, IndexError for a dim out of range.
    """
    chosen = input.spec.dtype if dtype is None else as_dtype(dtype, "mean")
    if not chosen.is_floating_point:
        raise DTypeError(f"mean(): needs a floating dtype, got {chosen}; convert it or pass dtype")
    half = chosen.itemsize == 2  # the sum may be more than 16 bits hold
    out = _SUM.call(input, _none_if_empty(dim), keepdim, float32 if half else chosen) / _count(input, dim)
    return out.to(chosen) if half else out


def _count(input: Tensor, dim: Any) -> float:
    shape = input.spec.shape
    if dim is None:
        return float(math.prod(shape))
    if type(dim) is int and shape:
        return float(shape[wrap_dim(dim, len(shape), "mean")])
    return float(math.prod([shape[d] for d in wrap_dims(_none_if_empty(dim), len(shape), "mean")]))


@public()
@accepts_axis
def prod(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The product over `dim` (None for all), of integers and bools in int64 unless `dtype`. Raises as sum does."""
    return _reduce(_PROD, input, dim, keepdim, optional_dtype(dtype, "prod"))


@public()
@accepts_axis
def amax(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The largest over `dim` (None for all); NaN wins; equals share the gradient. Raises ShapeError for no elements."""
    return _reduce(_AMAX, input, dim, keepdim)


@public()
@accepts_axis
def amin(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The smallest over `dim` (None for all); NaN wins; equals share the gradient. Dtype kept. Raises as amax does."""
    return _reduce(_AMIN, input, dim, keepdim)


def _over_no_dim(dim: Any) -> bool:
    return isinstance(dim, tuple | list) and not dim


@public()
@accepts_axis
def any(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Whether any element over `dim` (None for all, () for none) is not 0. A bool tensor. Raises as sum does."""
    return input != 0 if _over_no_dim(dim) else _reduce(_ANY, input, dim, keepdim)


@public()
@accepts_axis
def all(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Whether all elements over `dim` (None for all, () for none) are not 0. A bool tensor. Raises as sum does."""
    return input != 0 if _over_no_dim(dim) else _reduce(_ALL, input, dim, keepdim)


def _arg(op: Op, input: Tensor, dim: Any, keepdim: bool) -> Tensor:
    if dim is not None:
        dim = wrap_dim(dim, input.spec.ndim, op.name)
        if input.spec.ndim:
            return _reduce(op, input, dim, keepdim)
    out = _reduce(op, flatten(input), 0, False)
    return out.reshape((1,) * input.spec.ndim) if keepdim else out


@public()
@accepts_axis
def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index (int64) of the first largest along `dim` or of all; NaN wins. Raises ShapeError for no elements."""
    return _arg(_ARGMAX, input, dim, keepdim)


@public()
@accepts_axis
def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index (int64) of the first smallest along `dim` or of all; NaN wins. Raises as argmax does."""
    return _arg(_ARGMIN, input, dim, keepdim)


class ValuesIndices(NamedTuple):
    """What max, min, sort, topk and others along a dim return."""

    values: Tensor
    indices: Tensor


def _extreme(input: Tensor, dim: Any, keepdim: bool, value: Op, elementwise: Any, index: Op) -> Any:
    if dim is None:
        return value.call(input, None, False, None)
    if hasattr(dim, "spec"):
        return elementwise(input, dim)
    name = index.name[3:]
    if not isinstance(dim, int):
        raise DTypeError(f"{name}(): dim must be an int or a tensor, got {dim!r}; for several dims use a{name}")
    at = wrap_dim(dim, input.spec.ndim, name)
    if not input.spec.ndim:
        return ValuesIndices(input.clone(), _arg(index, input, 0, False))
    if input.node is None:
        return ValuesIndices(value.call(input, at, keepdim, None), index.call(input, at, keepdim, None))
    # The gradient is that of the element whose index is returned, not shared among equals as amax's is.
    indices = index.call(input, at, True, None)
    values = gather(input, at, indices)
    return ValuesIndices(values, indices) if keepdim else ValuesIndices(squeeze(values, at), squeeze(indices, at))


@public()
@accepts_axis
def max(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Tensor | None = None) -> Any:
    """The largest element; along `dim`, a (values, indices) pair; with a tensor (`other`), elementwise `maximum`.

    Raises ShapeError for no elements, IndexError for a dim out of range, DTypeError for several dims (see amax).
    """
    return _extreme(input, dim if other is None else other, keepdim, _AMAX, maximum, _ARGMAX)


@public()
@accepts_axis
def min(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Tensor | None = None) -> Any:
    """The smallest element: see max, whose arguments it has; with a tensor (`other`), elementwise `minimum`."""
    return _extreme(input, dim if other is None else other, keepdim, _AMIN, minimum, _ARGMIN)


@public()
@accepts_axis
@in_float32
def logsumexp(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """log(sum(exp(input))) over `dim`, shifted by the maximum against overflow. Raises as sum does."""
    input = input if input.spec.dtype.is_floating_point else input.to(get_default_dtype())
    dims = wrap_dims(_none_if_empty(dim), input.spec.ndim, "logsumexp")
    if 0 in [input.spec.shape[d] for d in dims]:
        return sum(input, dim, keepdim) - math.inf
    largest = amax(input.detach(), dim, True)
    # Where all are -inf (or one is inf) the shift would make NaN of inf - inf.
    shift = where(absolute(largest) == math.inf, 0.0, largest)
    return log(sum(exp(input - shift), dim, keepdim)) + (shift if keepdim else squeeze(shift, dims))


@public()
@accepts_axis
def count_nonzero(input: Tensor, dim: Any = None) -> Tensor:
    """How many elements over `dim` (None for all) are not 0, as int64. Raises as sum does."""
    return _count_nonzero(input.detach(), _none_if_empty(dim), False)


@public()
@accepts_axis
def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median of all elements; along `dim`, a (values, indices) pair. NaN where there is one or no element.

    Raises ShapeError for no elements of an integer dtype, IndexError for none along `dim`.
    """
    from .selection import selected

    if dim is None:
        if not input.spec.numel:
            return mean_of_none("median", input)
        return _median(input)
    return selected(input, dim, "median", keepdim, "median")


def mean_of_none(op: str, input: Tensor) -> Tensor:
    """NaN, for no elements. Raises ShapeError unless floating."""
    if not input.spec.dtype.is_floating_point:
        raise ShapeError(f"{op}(): no elements, shape {tuple(input.spec.shape)}")
    return mean(input)


@composite(lambda input: input.like(()), lambda g, input, y: to_equals(g, input, y), name="median_of_all")
def _median(input: Tensor) -> Tensor:
    found: Tensor = median(flatten(input), 0)[0]
    return found


@method()
def sum_to_size(input: Tensor, *size: Any) -> Tensor:
    """The sum over the dims that `size` lacks or has 1 in. Raises ShapeError where `size` does not broadcast back."""
    wanted, shape = as_shape(size, "sum_to_size"), tuple(input.spec.shape)
    lead = len(shape) - len(wanted)
    if lead < 0 or not {n == m or n == 1 for n, m in zip(wanted, shape[lead:])} <= {True}:
        raise ShapeError(f"sum_to_size(): shape {shape} does not sum to {wanted}")
    dims = [d for d, m in enumerate(shape) if d < lead or (wanted[d - lead] == 1 != m)]
    return reshape(sum(input, dims) if dims or not wanted else input, wanted)
