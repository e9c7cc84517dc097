"""Order: sort, topk, unique, searchsorted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dispatch import run
from ..dtype import int64
from ..errors import ShapeError
from ..op import Inferred
from ..spec import Spec, as_int, wrap_dim
from .creation import arange
from .elementwise import where
from .families import accepts_axis, primitive
from .indexing import gather, nonzero, scatter, scatter_add
from .joining import cat
from .movement import narrow, reshape
from .reduction import ValuesIndices
from .scan import cumsum

if TYPE_CHECKING:
    from ..tensor import Tensor


def _infer_sort(x: Spec, dim: Any, descending: bool) -> Inferred:
    at = wrap_dim(dim, x.ndim, "sort")
    return Inferred((x.like(), x.like(dtype=int64)), (x,), {"dim": at, "descending": descending})


def _sort_vjp(g: Any, y: Any, x_spec: Spec, dim: int) -> Tensor:
    # `g` holds a gradient for each result; the indices have none.
    return scatter(g[0].new_zeros(tuple(x_spec.shape)), dim, y[1], g[0])


_SORT = primitive("sort", "x dim descending", 1, _infer_sort, (_sort_vjp,))


@accepts_axis
def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> ValuesIndices:
    """The elements in order along `dim`, and the indices (int64) they came from. Always stable; NaN is largest."""
    if not input.spec.ndim:
        wrap_dim(dim, 0, "sort")
        return ValuesIndices(input.clone(), arange(1, device=input.device).reshape(()))
    return ValuesIndices(*run(_SORT, input, dim, bool(descending)))


@accepts_axis
def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The indices (int64) that put the elements along `dim` in order."""
    return sort(input.detach(), dim, descending)[1]


@accepts_axis
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> ValuesIndices:
    """The `k` largest (or smallest) elements along `dim`, in order, and their indices (int64)."""
    at = wrap_dim(dim, input.spec.ndim, "topk")
    size = input.spec.shape[at] if input.spec.ndim else 1
    if not 0 <= as_int(k, "topk", "k") <= size:
        raise ShapeError(f"topk(): k is {k}, dim {dim} of shape {tuple(input.spec.shape)} has {size} elements")
    if not input.spec.ndim:
        return sort(input)
    values, indices = sort(input, at, largest)
    return ValuesIndices(narrow(values, at, 0, k), narrow(indices, at, 0, k))


def unique(
    input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: None = None
) -> Any:
    """The different elements, in order, 1-D; on request where each input element is among them, and how often.

    The number of results depends on the values, so this waits for them. `dim` is not supported.
    """
    if dim is not None:
        raise ShapeError("unique(): only all elements together (dim=None) are supported")
    flat = reshape(input.detach(), -1)
    order, places = sort(flat)
    n = flat.spec.numel
    if n:
        first = cat([order.new_ones(1, dtype=bool), order[1:] != order[:-1]])
    else:
        first = order.new_zeros(0, dtype=bool)
    starts = nonzero(first, as_tuple=True)[0]
    values = gather(order, 0, starts)
    results: list[Tensor] = [values]
    if return_inverse:
        rank = cumsum(first, 0) - 1
        inverse = scatter(places.new_zeros(n), 0, places, rank)
        results.append(reshape(inverse, tuple(input.spec.shape)))
    if return_counts:
        rank = cumsum(first, 0) - 1
        zeros = places.new_zeros(values.spec.numel)
        results.append(scatter_add(zeros, 0, rank, places.new_ones(n)) if n else zeros)
    return results[0] if len(results) == 1 else tuple(results)


def searchsorted(sorted_sequence: Tensor, input: Any, *, right: bool = False, side: str | None = None) -> Tensor:
    """Where values go (int64) in a sequence in order along its last dim: before their equals, or after (`right`).

    A sequence of one dim serves values of any shape; else all dims but the last must agree. By bisection.
    """
    right = side == "right" if side is not None else right
    sequence = sorted_sequence
    values = input if hasattr(input, "spec") else sequence.new_full((), input)
    shape = tuple(values.spec.shape)
    if not sequence.spec.ndim:
        raise ShapeError("searchsorted(): the sequence is 0-d; it needs at least 1 dim")
    if sequence.spec.ndim == 1:
        wanted = reshape(values, -1)
    else:
        if shape[:-1] != tuple(sequence.spec.shape[:-1]):
            raise ShapeError(f"searchsorted(): sequence {tuple(sequence.spec.shape)} and values {shape} do not match")
        wanted = values
    size = sequence.spec.shape[-1]
    low = wanted.new_zeros(tuple(wanted.spec.shape), dtype=int64)
    if size == 0:
        return reshape(low, shape)
    high = low + size
    for _ in range(size.bit_length()):
        middle = (low + high) // 2
        at = gather(sequence, -1, middle.clamp(max=size - 1))
        # Written so that NaN values, which no comparison holds for, go behind everything.
        goes_on = (at <= wanted) | (wanted != wanted) if right else (at < wanted) | ((wanted != wanted) & (at == at))
        goes_on = goes_on & (low < high)
        low, high = where(goes_on, middle + 1, low), where(goes_on, high, middle)
    return reshape(low, shape)


def bucketize(input: Any, boundaries: Tensor, *, right: bool = False) -> Tensor:
    """`searchsorted(boundaries, input)`."""
    return searchsorted(boundaries, input, right=right)
