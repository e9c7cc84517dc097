"""Running sums, products and extremes, and the differences of neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...dispatch.plan import Inferred
from ...dtype import DType, bool_, int64
from ...errors import DTypeError, ShapeError
from ...spec import Spec, wrap_dim
from ..copying import fresh
from ..creation import arange, fill_spec, ones_like
from ..elementwise.arithmetic import exp, ge, le, where
from ..elementwise.composites import log_of_sum
from ..families import accepts_axis, composite, primitive
from ..indexing import gather, gather_grad
from ..registry import public
from ..shape.joining import cat
from ..shape.padding import PAD
from ..shape.views import broadcast_to, narrow, slice_dim
from ..upcast import upcast
from .reductions import ValuesIndices, optional_dtype

if TYPE_CHECKING:
    from ...tensor import Tensor


def _infer_cumsum(x: Spec, dim: int, dtype: DType | None) -> Inferred:
    at = wrap_dim(dim, x.ndim, "cumsum")
    compute = dtype or (int64 if not x.dtype.is_floating_point else x.dtype)
    return Inferred((x.like(dtype=compute),), ((compute, x.shape),), {"dim": at})


def _cumsum_vjp(g: Tensor, dim: int) -> Tensor:
    return _cumsum_back(g, wrap_dim(dim, g.spec.ndim, "cumsum"))


def _cumsum_back_vjp(g: Tensor, dim: int) -> Tensor:
    return cumsum(g, dim)


@composite(lambda input, dim: input.like(tuple(input.shape)), _cumsum_back_vjp, name="cumsum_back")
def _cumsum_back(input: Tensor, dim: int) -> Tensor:
    """The running sum from the end on."""
    return cumsum(input.flip(dim), dim).flip(dim)


_CUMSUM = primitive("cumsum", "x dim dtype", 1, _infer_cumsum, (_cumsum_vjp,))


@public(inplace=True)
@accepts_axis
def cumsum(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """The running sum along `dim`, in int64 for integers unless `dtype`. IndexError for a dim out of range."""
    if not input.spec.ndim:
        wrap_dim(dim, 0, "cumsum")
        return cumsum(input.unsqueeze(0), 0, dtype=dtype).reshape(())
    return _CUMSUM.call(input, dim, optional_dtype(dtype, "cumsum"))


@public(inplace=True)
@accepts_axis
def cumprod(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """The running product along `dim`. Integers and bools are multiplied in int64 unless `dtype`.

    Zeros have their true gradient. Raises IndexError for a dim out of range.
    """
    at = wrap_dim(dim, input.spec.ndim, "cumprod")
    chosen = optional_dtype(dtype, "cumprod") or (input.dtype if input.dtype.is_floating_point else int64)
    out = input if input.dtype is chosen else input.to(chosen)
    if not input.spec.ndim:
        return out.clone() if out is input else out
    return _cumprod(out, at)


def _cumprod_vjp(g: Tensor, input: Tensor, dim: int) -> Tensor:
    return _cumprod_grad(g, input, dim) if input.spec.shape[dim] > 1 else g


@composite(lambda g, input, dim: g.like(tuple(g.shape)), name="cumprod_grad")
def _cumprod_grad(g: Tensor, input: Tensor, dim: int) -> Tensor:
    # The products before an element, times g + next * (g of the next + ...). No division, so that zeros are right.
    size = input.spec.shape[dim]
    x, later = upcast(input), upcast(g)
    before = cat([ones_like(slice_dim(x, dim, 0, 1)), cumprod(slice_dim(x, dim, 0, size - 1), dim)], dim)
    return (before * _carried_back(later, slice_dim(x, dim, 1, size - 1), dim)).to(g.dtype)


@composite(lambda x, factor, dim: x.like(tuple(x.shape)), name="carried_back")
def _carried_back(x: Tensor, factor: Tensor, dim: int) -> Tensor:
    """y with y[i] = x[i] + factor[i] * y[i + 1] along `dim`, by doubling; there is one factor less."""
    size, step = x.spec.shape[dim], 1
    while step < size:
        rest = size - step
        first = slice_dim(x, dim, 0, rest) + factor * slice_dim(x, dim, step, rest)
        x = cat([first, slice_dim(x, dim, rest, step)], dim)
        if 2 * step < size:
            factor = slice_dim(factor, dim, 0, rest - step) * slice_dim(factor, dim, step, rest - step)
        step *= 2
    return x


@composite(lambda input, dim: input.like(), _cumprod_vjp, name="cumprod")
def _cumprod(input: Tensor, dim: int) -> Tensor:
    # Parts are multiplied before all is: 16 bits might overflow.
    wide = upcast(input) if input.dtype.is_floating_point else input
    return fresh(_scan(wide, dim, lambda later, earlier: later * earlier).to(input.dtype), input)


def _scan(x: Tensor, at: int, combine: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """The running `combine(later, earlier)` along `at`, by doubling (Hillis and Steele, 1986).

    It is `x` itself where there is nothing to combine.
    """
    size, step = x.spec.shape[at] if x.spec.ndim else 1, 1
    while step < size:
        combined = combine(slice_dim(x, at, step, size - step), slice_dim(x, at, 0, size - step))
        x = cat([slice_dim(x, at, 0, step), combined], at)
        step *= 2
    return x


# --- Running extremes -----------------------------------------------------------------------------------------------


def _infer_extreme(input: Spec, dim: int) -> tuple[Spec, Spec]:
    return input.like(), input.like(dtype=int64)


@composite(
    lambda grad, index, dim: grad.like(),
    {"grad": lambda g, index, dim: gather(g, dim, index)},
    name="running_extreme_grad",
)
def _running_extreme_grad(grad: Tensor, index: Tensor, dim: int) -> Tensor:
    """`grad` added up where the elements of `index`, which grow along `dim`, are: at the first of equal ones."""
    return gather_grad(grad, index, dim, tuple(grad.spec.shape))


def _extreme_vjp(g: Any, y1: Tensor, dim: int) -> Tensor:
    return _running_extreme_grad(g[0], y1, dim)


def _running_extreme(input: Tensor, at: int, wins: Any) -> tuple[Tensor, Tensor]:
    """By doubling, as `_scan`, on values and indices: the later of two is the extreme where `wins(later, earlier)`."""
    size = input.spec.shape[at]
    shape = tuple(input.spec.shape)
    count = arange(size, device=input.device).reshape([-1 if d == at else 1 for d in range(len(shape))])
    values, indices, step = input.detach(), broadcast_to(count, shape), 1
    while step < size:
        later, earlier = narrow(values, at, step, size - step), narrow(values, at, 0, size - step)
        mask = wins(later, earlier) | (later != later)
        best = where(mask, narrow(indices, at, step, size - step), narrow(indices, at, 0, size - step))
        values = cat([narrow(values, at, 0, step), where(mask, later, earlier)], at)
        indices = cat([narrow(indices, at, 0, step), best], at)
        step *= 2
    return gather(input, at, indices), indices.clone() if step == 1 else indices


@composite(_infer_extreme, {"input": _extreme_vjp}, name="cummax")
def _cummax(input: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    return _running_extreme(input, dim, ge)


@composite(_infer_extreme, {"input": _extreme_vjp}, name="cummin")
def _cummin(input: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    return _running_extreme(input, dim, le)


def _with_indices(
    op: Callable[[Tensor, int], tuple[Tensor, Tensor]], name: str, input: Tensor, dim: int
) -> ValuesIndices:
    at = wrap_dim(dim, input.spec.ndim, name)
    if not input.spec.ndim:
        return ValuesIndices(input.clone(), fill_spec(input.spec.like(dtype=int64), 0))
    return ValuesIndices(*op(input, at))


@public()
@accepts_axis
def cummax(input: Tensor, dim: int) -> ValuesIndices:
    """The largest so far along `dim`, and its last index (int64). NaN wins. IndexError for a dim out of range."""
    return _with_indices(_cummax, "cummax", input, dim)


@public()
@accepts_axis
def cummin(input: Tensor, dim: int) -> ValuesIndices:
    """The smallest so far along `dim`, and its last index (int64). NaN wins. Raises as cummax does."""
    return _with_indices(_cummin, "cummin", input, dim)


@public()
@accepts_axis
def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """log(cumsum(exp(input))) along `dim`, without overflow. Raises DTypeError unless floating, and as cumsum does."""
    at = wrap_dim(dim, input.spec.ndim, "logcumsumexp")
    if not input.spec.dtype.is_floating_point:
        raise DTypeError(f"logcumsumexp(): expected a floating dtype, got {input.spec.dtype}")
    return _logcumsumexp(input, at) if input.spec.ndim else input.clone()


def _logcumsumexp_rule(g: Tensor, input: Tensor, y: Tensor, dim: int) -> Tensor:
    # What later sums pass back is less by how much they are larger: no factor is above 1.
    size = input.spec.shape[dim]
    if input.spec.dtype.itemsize < 4:  # of which the sums were rounded
        input = upcast(input)
        y = _logcumsumexp(input, dim)
    back = upcast(g)
    if size > 1:
        later = slice_dim(y, dim, 1, size - 1)
        factor = where(later == math.inf, 0.0, exp(slice_dim(y, dim, 0, size - 1) - later))
        back = _carried_back(back, factor, dim)
    return (back * exp(input - y)).to(g.dtype)


@composite(lambda input, dim: input.like(), _logcumsumexp_rule, name="logcumsumexp")
def _logcumsumexp(input: Tensor, dim: int) -> Tensor:
    x, shape, step = upcast(input), tuple(input.spec.shape), 1
    none = (0,) * len(shape)
    while step < shape[dim]:
        before = (*none[:dim], step, *none[dim + 1 :])
        x = log_of_sum(x, PAD.call(slice_dim(x, dim, 0, shape[dim] - step), before, none, -math.inf))
        step *= 2
    return fresh(x.to(input.spec.dtype), input)


# --- Neighbours -----------------------------------------------------------------------------------------------------


@public()
@accepts_axis
def diff(
    input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """Each element less the one before it along `dim`, `n` times over; of bools, whether the two differ.

    prepend, append: put before and behind input first. The dim is shorter by `n`; dtype kept. Raises ShapeError for a
    0-d tensor or a negative `n`, IndexError for a dim out of range.
    """
    if not input.spec.ndim or n < 0:
        raise ShapeError(f"diff(): n is {n}, the shape {tuple(input.spec.shape)}; needs n >= 0 and at least 1 dim")
    at = wrap_dim(dim, input.spec.ndim, "diff")
    if not n:
        return input.clone()
    parts = [x for x in (prepend, input, append) if x is not None]
    out = cat(parts, at) if len(parts) > 1 else input
    for _ in range(min(n, out.spec.shape[at])):  # nothing is left then
        size = max(out.spec.shape[at] - 1, 0)
        later = narrow(out, at, min(1, out.spec.shape[at]), size)
        earlier = narrow(out, at, 0, size)
        out = later ^ earlier if out.spec.dtype is bool_ else later - earlier
    return out


def _trapezoids(y: Tensor, x: Tensor | None, dx: float | None, dim: int, op: str) -> Tensor:
    """The areas of the trapezoids between neighbours."""
    at = wrap_dim(dim, y.spec.ndim, op)
    if not y.spec.ndim or (x is not None and dx is not None):
        raise ShapeError(f"{op}(): needs at least 1 dim, shape {tuple(y.spec.shape)}, and not both x and dx")
    size = max(y.spec.shape[at] - 1, 0)
    total = narrow(y, at, min(1, y.spec.shape[at]), size) + narrow(y, at, 0, size)
    if x is None:
        return total * ((1.0 if dx is None else dx) / 2)
    if x.spec.ndim == 1:
        x = x.reshape([-1 if d == at else 1 for d in range(y.spec.ndim)])
    return total * diff(x, dim=at - y.spec.ndim) / 2


@public("trapz", method=False)
@accepts_axis
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float | None = None, dim: int = -1) -> Tensor:
    """The integral of `y` along `dim` by the trapezoidal rule, over points `x` or at a distance `dx` (1).

    Raises ShapeError for a 0-d tensor or for both x and dx, IndexError for a dim out of range.
    """
    return _trapezoids(y, x, dx, dim, "trapezoid").sum(dim)


@public(method=False)
@accepts_axis
def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float | None = None, dim: int = -1) -> Tensor:
    """`trapezoid` up to each point but the first. Raises as trapezoid does."""
    return cumsum(_trapezoids(y, x, dx, dim, "cumulative_trapezoid"), dim)
