"""Shapes brought together and taken apart: at least so many dims, columns, blocks, triangles, combinations."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ...device import CPU, Device, get_default_device
from ...dtype import int64
from ...errors import IndexError, ShapeError
from ...spec import as_int, wrap_dim
from ..checks import require_integers
from ..creation import DeviceLike, arange, with_options
from ..families import composite
from ..from_data import as_tensor, of_new_array
from ..indexing import index_select
from ..masks import true_indices, unravel
from ..registry import public
from .joining import MAX_EMPTY, cat, flip, meshgrid, split, stack
from .views import diagonal, movedim, narrow, reshape, transpose, unsqueeze

if TYPE_CHECKING:
    from ...tensor import Tensor


def _map(function: Any, tensors: tuple[Any, ...]) -> Any:
    """`function` of one tensor, or a tuple of what it gives for several."""
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], tuple | list) else tensors
    results = tuple(function(x) for x in given)
    return results[0] if len(tensors) == 1 and given is tensors else results


@public(method=False)
def atleast_1d(*tensors: Any) -> Any:
    """A 0-d tensor as a vector, others as they are; for several tensors, a tuple. Views where possible."""
    return _map(lambda x: x if x.spec.ndim else reshape(x, 1), tensors)


@public(method=False)
def atleast_2d(*tensors: Any) -> Any:
    """A vector as a row, a 0-d tensor as a 1 x 1 matrix, others as they are; for several tensors, a tuple."""
    return _map(lambda x: x if x.spec.ndim > 1 else reshape(x, 1, -1), tensors)


@public(method=False)
def atleast_3d(*tensors: Any) -> Any:
    """A matrix with a third dim of 1, a vector as (1, n, 1), others as they are; for several tensors, a tuple."""
    return _map(lambda x: x if x.spec.ndim > 2 else unsqueeze(atleast_2d(x), 2), tensors)


@public(method=False)
def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Vectors as columns, and matrices, joined along dim 1. Dtypes promote; raises as cat does."""
    return cat([reshape(x, -1, 1) if x.spec.ndim < 2 else x for x in tensors], 1)


@public(method=False)
def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along dim 2, after `atleast_3d`. Dtypes promote; raises as cat does."""
    return cat([atleast_3d(x) for x in tensors], 2)


# --- Splits ---------------------------------------------------------------------------------------------------------


@public()
def tensor_split(
    input: Tensor, indices_or_sections: Any = None, dim: int = 0, *, indices: Any = None, sections: Any = None
) -> tuple[Tensor, ...]:
    """indices_or_sections: views of so many parts along `dim`, the first of them larger by 1 if need be; or of the
    parts between indices. indices, sections: the one or the other by its own name.

    Raises ShapeError for a 0-d tensor or no parts, IndexError for a dim out of range, TypeError unless the cuts are
    given once.
    """
    cuts = [given for given in (indices_or_sections, indices, sections) if given is not None]
    if len(cuts) != 1:
        raise TypeError(f"tensor_split(): needs one of indices and sections, got {len(cuts)}")
    return _cut(input, cuts[0], dim, "tensor_split")


def _cut(input: Tensor, cuts: Any, dim: int, op: str) -> tuple[Tensor, ...]:
    at = wrap_dim(dim, input.spec.ndim, op)
    if not input.spec.ndim:
        raise ShapeError(f"{op}(): a 0-d tensor cannot be split")
    size = input.spec.shape[at]
    if hasattr(cuts, "spec"):
        cuts = cuts.tolist()
    if isinstance(cuts, tuple | list):
        edges = [0, *(min(max(i + size if i < 0 else i, 0), size) for i in cuts), size]
        starts = edges[:-1]
        return tuple(narrow(input, at, s, max(e - s, 0)) for s, e in zip(starts, edges[1:], strict=True))
    count = as_int(cuts, op, "sections")
    if count < 1:
        raise ShapeError(f"{op}(): needs at least 1 section, got {count}")
    if count > max(size, MAX_EMPTY):
        raise ShapeError(f"{op}(): {count} sections of a dim of size {size}, of which nearly all would be empty")
    return split(input, [size // count + (i < size % count) for i in range(count)], at)


def _cut_evenly(input: Tensor, cuts: Any, dim: int, op: str, ndim: int) -> tuple[Tensor, ...]:
    if input.spec.ndim < ndim:
        raise ShapeError(f"{op}(): needs at least {ndim} dims, got shape {tuple(input.spec.shape)}")
    if isinstance(cuts, int) and (cuts < 1 or input.spec.shape[dim] % cuts):
        raise ShapeError(f"{op}(): dim {dim} of shape {tuple(input.spec.shape)} does not part into {cuts}")
    return _cut(input, cuts, dim, op)


@public()
def hsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Views of equal parts, or of those between indices (`indices_or_sections`), along dim 1; of a vector along dim 0.

    Raises ShapeError for a 0-d tensor, or where the size is no multiple of the number of parts.
    """
    return _cut_evenly(input, indices_or_sections, min(input.spec.ndim - 1, 1), "hsplit", 1)


@public()
def vsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Views of equal parts, or of those between indices, along dim 0. ShapeError below 2 dims, else as `hsplit`."""
    return _cut_evenly(input, indices_or_sections, 0, "vsplit", 2)


@public()
def dsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Views of equal parts, or of those between indices, along dim 2. ShapeError below 3 dims, else as `hsplit`."""
    return _cut_evenly(input, indices_or_sections, 2, "dsplit", 3)


# --- Diagonals and triangles ----------------------------------------------------------------------------------------


@public()
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The last dim as a diagonal of square matrices in new dims `dim1` and `dim2`, zeros elsewhere.

    Raises ShapeError for a 0-d tensor or equal dims, IndexError for a dim out of range. offset: how far above the main
    diagonal.
    """
    ndim = input.spec.ndim + 1
    first, second = wrap_dim(dim1, ndim, "diag_embed"), wrap_dim(dim2, ndim, "diag_embed")
    if first == second or not input.spec.ndim:
        raise ShapeError(f"diag_embed(): dims {dim1} and {dim2} for shape {tuple(input.spec.shape)}")
    n = input.spec.shape[-1] + abs(offset)
    out = input.new_zeros(*input.spec.shape[:-1], n, n)
    diagonal(out, offset, -2, -1).copy_(input)
    return movedim(out, (-2, -1), (first, second))


@public()
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """All elements, in row-major order, as the diagonal of a square matrix: (*) -> (n, n).

    `offset`: how far above the main one. Raises as diag_embed does.
    """
    return diag_embed(reshape(input, -1), offset)


_FEW = 1 << 14
"""Elements of a matrix of which the places of a triangle are kept."""
_AT_ONCE = 1 << 15
"""Elements of rows whose places are made together, in memory that stays in a cache."""


def _triangle(row: int, col: int, offset: int, lower: bool) -> np.ndarray[Any, Any]:
    """Row and column indices, (2, count), of an array of their own."""
    if row * col <= _FEW:
        return _kept_triangle(row, col, offset, lower).copy()
    return _new_triangle(row, col, offset, lower)


def _new_triangle(row: int, col: int, offset: int, lower: bool) -> np.ndarray[Any, Any]:
    # Each row's indices are a run: made on the host, as how many there are has to be known.
    rows = np.arange(row)
    edges = np.clip(rows + offset + int(lower), 0, col)
    starts, counts = (np.zeros_like(edges), edges) if lower else (edges, col - edges)
    ends = np.concatenate([[0], np.cumsum(counts)])
    shifts = starts - ends[:-1]
    out = np.empty((2, int(ends[-1])), np.int64)
    step = max(_AT_ONCE // max(col, 1), 1)
    for i in range(0, row, step):
        some, begin, end = slice(i, i + step), int(ends[i]), int(ends[min(i + step, row)])
        out[0, begin:end] = np.repeat(rows[some], counts[some])
        np.add(np.arange(begin, end), np.repeat(shifts[some], counts[some]), out=out[1, begin:end])
    return out


_kept_triangle = lru_cache(16)(_new_triangle)


def _triangle_indices(row: int, col: int, offset: int, dtype: Any, device: DeviceLike, lower: bool) -> Tensor:
    op = "tril_indices" if lower else "triu_indices"
    row, col, offset = as_int(row, op, "row"), as_int(col, op, "col"), as_int(offset, op, "offset")
    if row < 0 or col < 0:
        raise ShapeError(f"{op}(): a matrix of {row} rows and {col} columns")
    target = get_default_device() if device is None else Device(device)
    if target.type not in ("cpu", "meta") and row and col:
        return _triangle_on(target, row, col, offset, lower).to(int64 if dtype is None else dtype)
    out = of_new_array(_triangle(row, col, offset, lower), int64)
    return out if dtype is None and target is CPU else as_tensor(out, dtype=dtype, device=target)


def _triangle_on(device: Device, row: int, col: int, offset: int, lower: bool) -> Tensor:
    """Made on a device other than the CPU, which needs to be told no more than how many there are."""
    # Rows of the lower triangle are empty before row `start`, and whole from row `end` on.
    edge = offset + int(lower)
    start = min(max(-edge, 0), row)
    end = min(max(col - edge, start), row)
    below = (end - start) * (2 * edge + start + end - 1) // 2 + (row - end) * col
    count = below if lower else row * col - below
    return _places_in_triangle(arange(row, device=device), col, offset, lower, count)


@composite(lambda rows, col, offset, lower, count: rows.like((2, count)), name="triangle_indices")
def _places_in_triangle(rows: Tensor, col: int, offset: int, lower: bool, count: int) -> Tensor:
    cols, edges = arange(col, device=rows.device), unsqueeze(rows + offset, 1)
    inside = cols <= edges if lower else cols >= edges
    return true_indices(inside, count)


@public(method=False)
def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: Any = None, device: DeviceLike = None, **more: Any
) -> Tensor:
    """Where the lower triangle of a row x col matrix is, up to `offset` above the diagonal: (2, count), row and column
    indices, int64 unless `dtype`. Raises ShapeError for a negative size.
    """
    out = _triangle_indices(row, col, offset, dtype, device, True)
    return with_options("tril_indices", out, False, more) if more else out


@public(method=False)
def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: Any = None, device: DeviceLike = None, **more: Any
) -> Tensor:
    """Where the upper triangle of a row x col matrix is, from `offset` above the diagonal on: (2, count), row and
    column indices, int64 unless `dtype`. Raises ShapeError for a negative size.
    """
    out = _triangle_indices(row, col, offset, dtype, device, False)
    return with_options("triu_indices", out, False, more) if more else out


@public()
def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """A copy rotated `k` times by 90 degrees in the plane of two dims, from the first towards the second.

    Raises ShapeError unless there are two different dims, IndexError for one out of range.
    """
    ndim = input.spec.ndim
    plane = [wrap_dim(d, ndim, "rot90") for d in dims]
    if ndim < 2 or len(plane) != 2 or plane[0] == plane[1]:
        raise ShapeError(f"rot90(): needs two different dims, got {tuple(dims)} of shape {tuple(input.spec.shape)}")
    first, second = plane
    turns = k % 4
    if turns == 2:
        return flip(input, first, second)
    if turns == 1:
        return transpose(flip(input, second), first, second)
    return transpose(flip(input, first), first, second) if turns else input.clone()


# --- Combinations ---------------------------------------------------------------------------------------------------


@public(method=False)
def cartesian_prod(*tensors: Tensor) -> Tensor:
    """The Cartesian product of vectors, a row each, the last varying first. Raises ShapeError for other dims."""
    for x in tensors:
        if x.spec.ndim != 1:
            raise ShapeError(f"cartesian_prod(): expected vectors, got shape {tuple(x.spec.shape)}")
    if len(tensors) == 1:
        return tensors[0]
    return stack([reshape(g, -1) for g in meshgrid(*tensors)], 1)


@public(method=False)
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """The combinations of `r` elements of a vector, a row each; `with_replacement`, also of one with itself. Raises
    ShapeError for other dims and r < 0.
    """
    if input.spec.ndim != 1 or r < 0:
        raise ShapeError(f"combinations(): expected a vector and r >= 0, got shape {tuple(input.spec.shape)} and {r}")
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    count = input.spec.shape[0]
    if r == 2:
        index = np.ascontiguousarray(_triangle(count, count, int(not with_replacement), False).T)
    else:
        index = np.fromiter(itertools.chain.from_iterable(choose(range(count), r)), np.int64)
    if not index.size:
        return input.new_empty(0, r) if r else input.new_empty(0)
    return reshape(index_select(input, 0, of_new_array(index.reshape(-1), int64).to(input.device)), (-1, r))


@public(method=False)
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """The Vandermonde matrix: the powers of each element of a vector x, a row each, descending unless `increasing`.

    N: how many powers, as many as elements by default. Integers and bools give int64. Raises ShapeError for what is no
    vector.
    """
    if x.spec.ndim != 1:
        raise ShapeError(f"vander(): expected a vector, got shape {tuple(x.spec.shape)}")
    count = x.spec.shape[0] if N is None else N
    powers = arange(count, device=x.device)
    values = x if x.spec.dtype.is_floating_point else x.long()
    return unsqueeze(values, 1) ** (powers if increasing else count - 1 - powers).to(values.spec.dtype)


@public(method=False)
def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """Row-major indices into `shape`, a tensor of int64 for each dim. DTypeError unless integers, IndexError for no
    elements.
    """
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    require_integers("unravel_index", "indices", indices.spec)
    if sizes and min(sizes) < 1:
        raise IndexError(f"unravel_index(): no index is in shape {sizes}")
    return unravel(indices.long(), sizes)
