"""Order: sort, topk, unique, isin, searchsorted."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dispatch.plan import Inferred
from ...dtype import DType, float64, int16, int32, int64
from ...errors import DTypeError, IndexError, ShapeError
from ...spec import Spec, as_int, wrap_dim
from ..creation import arange, empty_like, full
from ..elementwise.arithmetic import where
from ..families import accepts_axis, composite, primitive
from ..from_data import of_new_array
from ..indexing import chosen_grad, gather, index_select, scatter_into
from ..masks import nonzero
from ..registry import public
from ..shape.joining import cat, stack
from ..shape.views import movedim, narrow, reshape
from .reductions import ValuesIndices
from .scan import cumsum

if TYPE_CHECKING:
    from ...tensor import Tensor


def _infer_sort(x: Spec, dim: Any, descending: bool) -> Inferred:
    at = wrap_dim(dim, x.ndim, "sort")
    return Inferred((x.like(), x.like(dtype=int64)), (x,), {"dim": at, "descending": descending})


def sort_vjp(g: Any, y1: Tensor, x_spec: Spec, dim: int) -> Tensor:
    """The gradient where elements came from whose indices along `dim` are the second result, `y1`."""
    # `g` holds a gradient for each result; the indices have none.
    return chosen_grad(g[0], y1, dim, tuple(x_spec.shape))


_SORT = primitive("sort", "x dim descending", 1, _infer_sort, (sort_vjp,))


@public()
@accepts_axis
def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> ValuesIndices:
    """The elements ascending along `dim` (or descending), and the indices (int64) they came from.

    Always stable; NaN is largest. Shape kept. Raises IndexError for a dim out of range.
    """
    if not input.spec.ndim:
        wrap_dim(dim, 0, "sort")
        return ValuesIndices(input.clone(), arange(1, device=input.device).reshape(()))
    return ValuesIndices(*_SORT.call(input, dim, bool(descending)))


def lines(input: Tensor, dim: Any, op: str) -> tuple[int, Tensor]:
    """The dim, and a tensor that has it: a 0-d one as one of 1 dim. Raises IndexError for size 0."""
    at = wrap_dim(dim, input.spec.ndim, op)
    x = input if input.spec.ndim else reshape(input, 1)
    if not x.spec.shape[at]:
        raise IndexError(f"{op}(): no elements along dim {dim} of shape {tuple(input.spec.shape)}")
    return at, x


@public()
@accepts_axis
def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The indices (int64) that sort the elements along `dim`. Raises as sort does."""
    if not input.spec.ndim:
        return sort(input.detach(), dim)[1]
    return _argsort(input.detach(), wrap_dim(dim, input.spec.ndim, "argsort"), bool(descending))


@composite(lambda input, dim, descending: input.like(dtype=int64), name="argsort")
def _argsort(input: Tensor, dim: int, descending: bool) -> Tensor:
    return sort(input, dim, descending)[1]


@public()
@accepts_axis
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> ValuesIndices:
    """The `k` largest (or smallest) along `dim`, sorted, and their indices. ShapeError for k outside [0, size]."""
    at = wrap_dim(dim, input.spec.ndim, "topk")
    size = input.spec.shape[at] if input.spec.ndim else 1
    if not 0 <= as_int(k, "topk", "k") <= size:
        raise ShapeError(f"topk(): k is {k}, dim {dim} of shape {tuple(input.spec.shape)} has {size} elements")
    if not input.spec.ndim:
        return sort(input)
    return ValuesIndices(*_topk(input, k, at, bool(largest)))


def _infer_topk(input: Spec, k: int, dim: int, largest: bool) -> tuple[Spec, Spec]:
    out = input.like((*input.shape[:dim], k, *input.shape[dim + 1 :]))
    return out, out.like(dtype=int64)


@composite(_infer_topk, {"input": lambda g, y1, input_spec, dim: sort_vjp(g, y1, input_spec, dim)}, name="topk")
def _topk(input: Tensor, k: int, dim: int, largest: bool) -> tuple[Tensor, Tensor]:
    values, indices = sort(input, dim, largest)
    return narrow(values, dim, 0, k), narrow(indices, dim, 0, k)


@public()
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The different elements, in order, 1-D, always `sorted`; with `return_inverse` also where each input element is
    among them, with `return_counts` how often.

    With `dim`, the different slices along it, in the order of their elements. The number of results depends on the
    values, so this waits for them. Raises ShapeError for a `dim` of a tensor without elements in other dims.
    """
    if dim is not None:
        return _unique_slices(input.detach(), wrap_dim(dim, input.spec.ndim, "unique"), return_inverse, return_counts)
    keys, least = _short_keys(reshape(input.detach(), -1))
    order, places = sort(keys)
    values, rank, counts = _runs_of_elements(order, return_inverse, return_counts)
    if least:
        values = (values.to(int64) + least).to(input.spec.dtype)
    elif values.spec.dtype is not input.spec.dtype:
        values = values.to(input.spec.dtype)
    inverse = None if rank is None else reshape(_scattered(rank, places), tuple(input.spec.shape))
    return _requested(values, inverse, counts)


@public()
@accepts_axis
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The first of every run of equal elements, 1-D (of equal slices along `dim`).

    With `return_inverse` also the run that each element is in, with `return_counts` how long every run is, int64. Waits
    for the values. Raises IndexError for a dim out of range.
    """
    if dim is None:
        flat = reshape(input.detach(), -1)
        values, rank, counts = _runs_of_elements(flat, return_inverse, return_counts)
        rank = None if rank is None else reshape(rank, tuple(input.spec.shape))
    else:
        at = wrap_dim(dim, input.spec.ndim, "unique_consecutive")
        changes = _changes(input.detach(), at)
        values, rank, counts = _runs(input.detach(), changes, at, return_inverse, return_counts)
    return _requested(values, rank, counts)


def _changes(x: Tensor, at: int) -> Tensor:
    """Along `at`, which slices but the first differ from the one before."""
    n = x.spec.shape[at]
    differs = narrow(x, at, min(1, n), max(n - 1, 0)) != narrow(x, at, 0, max(n - 1, 0))
    return differs.any([d for d in range(x.spec.ndim) if d != at]) if x.spec.ndim > 1 else differs


def _runs_of_elements(x: Tensor, ranked: bool, counted: bool) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """`_runs` of a vector. On the CPU by NumPy, which has less to do around each step."""
    n = x.spec.numel
    if x.spec.device.type != "cpu" or x.spec.dtype.is_stored:
        return _runs(x, x[1:] != x[:-1], 0, ranked, counted)
    array, first = x.numpy(), np.ones(n, np.bool_)
    np.not_equal(array[1:], array[:-1], out=first[1:])
    starts = np.flatnonzero(first)
    rank = of_new_array(np.cumsum(first) - 1, int64) if ranked else None
    counts = of_new_array(np.append(starts[1:], n)[: starts.size] - starts, int64) if counted else None
    return gather(x, 0, of_new_array(starts, int64)), rank, counts


def _runs(
    x: Tensor, changes: Tensor, at: int, ranked: bool, counted: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The first slice of each run; if `ranked` the run that each slice is in, if `counted` how many are in each."""
    n = x.spec.shape[at]
    first = cat([changes.new_ones(1), changes]) if n else changes.new_zeros(0)
    starts = nonzero(first, as_tuple=True)[0]
    rank = cumsum(first, 0) - 1 if ranked else None
    counts = cat([starts[1:], starts.new_full((min(n, 1),), n)]) - starts if counted else None
    return index_select(x, at, starts), rank, counts


def _scattered(rank: Tensor, places: Tensor) -> Tensor:
    out = empty_like(rank)
    scatter_into(out, 0, places, rank)
    return out


_KEYS = 1 << 62
"""How many int64 keys there can be for sorts to tell apart."""
_MANY = 1 << 22
"""Elements whose range is worth asking for, on devices other than the CPU, whose kernels see it themselves."""


def _key_dtype(count: int) -> DType:
    """That of keys from 0 to below `count`: a radix sort takes as many passes as they have bytes."""
    return int16 if count <= 1 << 15 else int32 if count <= 1 << 31 else int64


def _short_keys(x: Tensor) -> tuple[Tensor, int]:
    """A vector as it is, or integers less the least of them, of fewer bytes; and what is to be added again."""
    dtype = x.spec.dtype
    if x.spec.device.type == "cpu" or x.spec.numel < _MANY or dtype not in (int32, int64):
        return x, 0
    least, most = stack([x.amin(), x.amax()], 0).tolist()
    found = _key_dtype(most - least + 1)
    return (x, 0) if found.itemsize >= dtype.itemsize else ((x - least).to(found), least)


def _row_keys(columns: Tensor) -> list[Tensor]:
    """Vectors that order rows, the one that comes first first. Integers of several columns are one where their ranges
    leave room for that.
    """
    n, spec = columns.spec.shape[1], columns.spec
    if n == 1 or spec.dtype.is_stored or not np.can_cast(spec.dtype.numpy, np.int64):
        return [columns.select(1, i) for i in range(n)]
    numbers = columns.to(int64)
    least = numbers.amin(0)
    ranges = [high - low + 1 for low, high in zip(*stack([least, numbers.amax(0)], 0).tolist(), strict=True)]
    keys, start = [], 0
    while start < n:
        factors, end = [1], start + 1
        while end < n and math.prod(ranges[start : end + 1]) <= _KEYS:
            end += 1
        for size in ranges[end - 1 : start : -1]:
            factors.insert(0, factors[0] * size)
        part = narrow(numbers, 1, start, end - start)
        if end - start > 1:
            part = (part - least[start:end]) * of_new_array(np.array(factors), int64).to(columns.device)
        key, most = part.sum(1), factors[0] * ranges[start]
        if end - start > 1:
            key = key.to(_key_dtype(most))
        keys.append(key)
        start = end
    return keys


def _unique_slices(x: Tensor, at: int, return_inverse: bool, return_counts: bool) -> Any:
    rows = movedim(x, at, 0)
    n = rows.spec.shape[0]
    if not n:
        none = arange(0, device=x.device)
        return _requested(x.clone(), none if return_inverse else None, none.clone() if return_counts else None)
    if not rows.spec.numel:
        raise ShapeError(f"unique(): dim {at} of a tensor without elements, shape {tuple(x.spec.shape)}")
    columns = reshape(rows, n, -1)
    keys = _row_keys(columns)
    found, order = sort(keys[-1], 0)
    # Stable sorts from the last key to the first put whole rows in order.
    for key in keys[-2::-1]:
        order = gather(order, 0, argsort(gather(key, 0, order)))
    changes = _changes(found if len(keys) == 1 else index_select(columns, 0, order), 0)
    first, rank, counts = _runs(order, changes, 0, return_inverse, return_counts)
    values = index_select(x, at, first)
    return _requested(values, None if rank is None else _scattered(rank, order), counts)


def _requested(*found: Tensor | None) -> Any:
    results = [x for x in found if x is not None]
    return results[0] if len(results) == 1 else tuple(results)


@public(method=False)
def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """True where an element of `elements` is one of `test_elements` (with `invert`, where it is none); either may be a
    number.

    NaN is never found. `assume_unique` is only a hint in PyTorch, and takes no part here. Raises DTypeError unless one
    is a Tensor.
    """
    given = next((v for v in (elements, test_elements) if hasattr(v, "spec")), None)
    if given is None:
        raise DTypeError(f"isin(): expected a Tensor, got {elements!r:.40} and {test_elements!r:.40}")
    x, tests = (v if hasattr(v, "spec") else full((), v, device=given.device) for v in (elements, test_elements))
    x, tests = x.detach(), reshape(tests.detach(), -1)
    size = tests.spec.numel
    if size <= 16:
        found = (x.unsqueeze(-1) == tests).any(-1)
    else:
        order = sort(tests)[0]
        at = searchsorted(order, x).clamp(max=size - 1)
        found = reshape(gather(order, 0, reshape(at, -1)), tuple(x.spec.shape)) == x
    return ~found if invert else found


@public()
def searchsorted(
    sorted_sequence: Tensor,
    input: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Where values go (int64, or int32 with `out_int32`) in `sorted_sequence`, in order along its last dim: before
    their equals, or after (`right`, or `side` "right").

    A sequence of one dim serves values of any shape; else all dims but the last must agree. `sorter` is the argsort of
    a sequence that is not sorted. By binary search. Raises ShapeError for a 0-d sequence or shapes that do not fit,
    ValueError for another `side`, or "left" with `right`.
    """
    if side not in (None, "left", "right") or (side == "left" and right):
        raise ValueError(f"searchsorted(): side must be 'left' or 'right', and not left where right is True: {side!r}")
    if sorter is not None and sorter.spec.shape != sorted_sequence.spec.shape:
        shapes = tuple(sorter.spec.shape), tuple(sorted_sequence.spec.shape)
        raise ShapeError(f"searchsorted(): sorter must have the sequence's shape, got {shapes[0]} and {shapes[1]}")
    right = right or side == "right"
    if out_int32:
        return searchsorted(sorted_sequence, input, right=right, sorter=sorter).to(int32)
    sequence = sorted_sequence if sorter is None else gather(sorted_sequence, -1, sorter)
    has_fraction = isinstance(input, float) and not sequence.spec.dtype.is_floating_point
    values = input if hasattr(input, "spec") else sequence.new_full((), input, dtype=float64 if has_fraction else None)
    shape = tuple(values.spec.shape)
    if not sequence.spec.ndim:
        raise ShapeError("searchsorted(): the sequence is 0-d; it needs at least 1 dim")
    if sequence.spec.ndim == 1:
        queries = values if len(shape) == 1 else reshape(values, -1)
    else:
        if shape[:-1] != tuple(sequence.spec.shape[:-1]):
            raise ShapeError(f"searchsorted(): sequence {tuple(sequence.spec.shape)} and values {shape} do not match")
        queries = values
    found = _search(sequence.detach(), queries.detach(), bool(right))
    return found if queries is values else reshape(found, shape)


@composite(lambda sequence, values, right: values.like(tuple(values.shape), dtype=int64), name="searchsorted")
def _search(sequence: Tensor, values: Tensor, right: bool) -> Tensor:
    size = sequence.spec.shape[-1]
    place = values.new_full(tuple(values.spec.shape), -1, dtype=int64)  # of the last element that goes before
    if size == 0:
        return place + 1
    # No comparison holds for NaN values: they go behind everything, or before their equals.
    has_nan = values.spec.dtype.is_floating_point
    missing: Any = values != values if has_nan else None
    least: Any = where(missing, math.inf, math.nan) if has_nan and not right else None
    for bit in reversed(range(size.bit_length())):
        further = place + (1 << bit)
        at = gather(sequence, -1, further.clamp(max=size - 1))
        is_before = at <= values if right else at < values
        if has_nan:
            is_before = is_before | (missing if right else at <= least)
        place = where(is_before, further, place)
    return (place + 1).clamp(max=size)


@public(method=False)
def bucketize(input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """`searchsorted(boundaries, input)`, in input's shape, of boundaries in 1 dim; ShapeError for others. out_int32:
    int32 indices.
    """
    if boundaries.spec.ndim != 1:
        raise ShapeError(f"bucketize(): boundaries must have 1 dim, got shape {tuple(boundaries.spec.shape)}")
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)
