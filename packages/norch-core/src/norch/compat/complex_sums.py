"""Functions of complex numbers by name: sums of exponentials, sums on the way, products with a sum, rearrangements."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from .. import ops
from ..dtype import finfo
from ..errors import DTypeError
from ..tensor import Tensor
from .complex_numbers import INSTEAD, ComplexPair, joined, parts_of, tensors_of

if TYPE_CHECKING:
    from collections.abc import Callable


# --- Logarithms of sums ---------------------------------------------------------------------------------------------


def _logsumexp(input: ComplexPair, dim: Any, keepdim: bool = False) -> ComplexPair:
    numbers = input if input.ndim else input.reshape(1)
    largest = numbers.real.amax(dim, True)
    largest = ops.where(largest.isfinite(), largest, 0.0).detach()
    found = (numbers - largest).exp().sum(dim, True).log() + largest
    if not input.ndim:
        return found.reshape()  # type: ignore[no-any-return]
    if keepdim:
        return found  # type: ignore[no-any-return]
    dims = {d % input.ndim for d in ((dim,) if isinstance(dim, int) else dim)} or set(range(input.ndim))
    return found.reshape(*[n for d, n in enumerate(found.shape) if d not in dims])  # type: ignore[no-any-return]


def _logaddexp(input: Any, other: Any) -> ComplexPair:
    """By the one with the larger real part, whose imaginary part is kept beyond pi, as PyTorch has it."""
    first, second = (joined(*tensors_of(z)) for z in (input, other))
    smaller = first.real < second.real
    larger, less = _chosen(smaller, second, first), _chosen(smaller, first, second)
    none = larger.real == -math.inf
    added = _chosen(none, larger * 0, less - larger).exp().log1p()
    return _chosen(none, larger, larger + added)


def _chosen(condition: Tensor, input: Any, other: Any) -> ComplexPair:
    return ops.where(condition, input, other)  # type: ignore[return-value]


def _logcumsumexp(input: ComplexPair, dim: int) -> ComplexPair:
    """In as many steps as the length has bits, each with the sums that ended so many elements before (Hillis and
    Steele, 1986)."""
    found, step = input, 1
    size = input.shape[dim] if input.ndim else 1
    while step < size:
        earlier, later = found.narrow(dim, 0, size - step), found.narrow(dim, step, size - step)
        found = ops.cat([found.narrow(dim, 0, step), _logaddexp(later, earlier)], dim)  # type: ignore[list-item, assignment]
        step *= 2
    return found.clone() if found is input else found


# --- Sums -----------------------------------------------------------------------------------------------------------


def _areas(y: Any, x: Any, dx: Any, dim: int) -> Any:
    """Of the trapezoids between neighbours."""
    size = y.shape[dim]
    pairs = y.narrow(dim, 0, size - 1) + y.narrow(dim, 1, size - 1)
    if x is None:
        return pairs * ((1 if dx is None else dx) / 2)
    steps = x.diff(dim=-1 if x.ndim == 1 else dim)
    if x.ndim == 1:
        steps = steps.reshape(-1, *[1] * (y.ndim - 1 - dim % y.ndim))
    return pairs * steps / 2


def _trapezoid(y: Any, x: Any = None, *, dx: Any = None, dim: int = -1) -> Any:
    return _areas(y, x, dx, dim).sum(dim)


def _cumulative_trapezoid(y: Any, x: Any = None, *, dx: Any = None, dim: int = -1) -> Any:
    return _areas(y, x, dx, dim).cumsum(dim)


def _cov(input: ComplexPair, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> ComplexPair:
    """As `norch.cov`: fweights are counts of the columns, aweights their weights."""
    rows = input.reshape(-1, input.shape[-1]) if input.ndim else input.reshape(1, 1)
    weights = fweights if aweights is None else aweights if fweights is None else fweights * aweights
    if weights is None:
        rows = rows - rows.mean(-1, True)
        return (rows @ rows.mH / (rows.shape[-1] - correction)).squeeze()  # type: ignore[no-any-return]
    total = weights.sum()
    rows = rows - (rows * weights).sum(-1, True) / total
    spread = total - correction * (1 if aweights is None else (weights * aweights).sum() / total)
    return ((rows * weights) @ rows.mH / spread.clamp(min=0)).squeeze()  # type: ignore[no-any-return]


def _plus_product(product: Callable[..., Any], z: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    found = product(a, b) * alpha
    return found if isinstance(beta, int) and beta == 0 else z * beta + found


def _rms_norm(input: ComplexPair, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> ComplexPair:
    """By the mean of the squares, which is complex, as PyTorch has it."""
    dims = tuple(range(-len(normalized_shape), 0))
    eps = finfo(input.pair.dtype).eps if eps is None else eps
    found = input * ((input * input).mean(dims, True) + eps).rsqrt()
    return found if weight is None else found * weight  # type: ignore[no-any-return]


def _renorm(input: ComplexPair, p: float, dim: int, maxnorm: float) -> ComplexPair:
    size = input.abs()
    return input * (ops.renorm(size, p, dim, maxnorm) / ops.where(size > 0, size, 1.0))  # type: ignore[no-any-return]


# --- Elements -------------------------------------------------------------------------------------------------------


def _sinc(input: ComplexPair) -> ComplexPair:
    turned = input * math.pi
    none = turned.abs() == 0
    below = ops.where(none, 1.0, turned)
    return ops.where(none, 1.0, below.sin() / below)  # type: ignore[return-value]


def _scatter(
    input: ComplexPair, dim: int, index: Tensor, src: Any = None, value: Any = None, *, reduce: str | None = None
) -> ComplexPair:
    """As `norch.scatter`; a reduce other than "add" raises DTypeError."""
    re, im = tensors_of(src) if isinstance(src, ComplexPair | Tensor) else parts_of(value if src is None else src)
    if reduce not in (None, "add"):
        raise DTypeError(f"scatter(): reduce={reduce!r} takes no ComplexPair; {INSTEAD}")
    more = {} if reduce is None else {"reduce": reduce}
    return joined(input.real.scatter(dim, index, re, **more), input.imag.scatter(dim, index, im, **more))


def _index_put(input: ComplexPair, indices: Any, values: Any, accumulate: bool = False) -> ComplexPair:
    return input.clone().index_put_(indices, values, accumulate)  # type: ignore[no-any-return]


def _as_strided(input: ComplexPair, size: Any, stride: Any, storage_offset: int | None = None) -> ComplexPair:
    """By strides in complex numbers, whose parts lie side by side or apart."""
    pair = input.pair
    apart = pair.stride(-1)
    unit = 2 if apart == 1 else 1
    place = None if storage_offset is None else storage_offset * unit
    return ComplexPair(pair.as_strided((*size, 2), (*[s * unit for s in stride], apart), place))


def _of_parts(name: str, input: ComplexPair, *args: Any, **kwargs: Any) -> ComplexPair:
    re, im = [getattr(ops, name)(part, *args, **kwargs) for part in tensors_of(input)]
    return joined(re, im)


SUMS: dict[str, Callable[..., Any]] = {
    "logsumexp": _logsumexp, "logaddexp": _logaddexp, "logcumsumexp": _logcumsumexp,
    "trapezoid": _trapezoid, "trapz": _trapezoid, "cumulative_trapezoid": _cumulative_trapezoid,
    "cov": _cov, "rms_norm": _rms_norm, "renorm": _renorm,
    "addr": partial(_plus_product, lambda a, b: a.outer(b)),
    "addbmm": partial(_plus_product, lambda a, b: (a @ b).sum(0)),
    "sinc": _sinc, "softsign": lambda z: z / (z.abs() + 1), "ldexp": lambda z, other: z * 2.0**other,
    "scatter": _scatter, "index_put": _index_put, "as_strided": _as_strided,
}  # fmt: skip
for _name in ("addmm", "baddbmm", "addmv"):
    SUMS[_name] = partial(_plus_product, lambda a, b: a @ b)
for _name in ("pixel_shuffle", "pixel_unshuffle", "channel_shuffle"):
    SUMS[_name] = partial(_of_parts, _name)
