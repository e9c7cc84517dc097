"""Shapes brought together and taken apart, and copies with something put in."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from .record import Array, Case, Sample, case, exactly, index, mask, samples, x


def _cut(v: Array, cuts: Any, dim: int = 0) -> list[Array]:
    return [np.asarray(p) for p in np.array_split(v, list(cuts) if isinstance(cuts, tuple) else cuts, axis=dim)]


def _embedded(v: Array, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Array:
    n = v.shape[-1] + abs(offset)
    out = np.zeros((*v.shape[:-1], n, n), v.dtype)
    rows = np.arange(v.shape[-1])
    out[..., rows - min(offset, 0), rows + max(offset, 0)] = v
    return np.moveaxis(out, (-2, -1), (dim1, dim2))


def _chosen(v: Array, r: int = 2, with_replacement: bool = False) -> Array:
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    found = list(choose(v.tolist(), r))
    return np.array(found, v.dtype).reshape(len(found), r)


def _vander(v: Array, N: int | None = None, increasing: bool = False) -> Array:
    return np.vander(v if v.dtype != bool else v.astype(int), N, increasing)


SHAPES = samples(
    Sample("atleast_1d", np.atleast_1d, (case(x()), case(x(2, 3)))),
    Sample("atleast_2d", np.atleast_2d, (case(x()), case(x(3)), case(x(2, 3)))),
    Sample("atleast_3d", np.atleast_3d, (case(x()), case(x(3)), case(x(2, 3)), case(x(2, 1, 2)))),
    Sample("column_stack", np.column_stack, (case([x(2), x(2)]), case([x(2, 2), x(2)]))),
    Sample("dstack", np.dstack, (case([x(2), x(2)]), case([x(2, 2), x(2, 2, 3)]))),
    Sample("tensor_split", _cut, (case(x(5, 2), 3), case(x(2, 5), (1, 3), 1), case(x(2), 4)), view=True),
    Sample("hsplit", lambda v, cuts: _cut(v, cuts, 1 if v.ndim > 1 else 0), (case(x(2, 4), 2), case(x(3), (1, 2))),
           view=True),
    Sample("vsplit", _cut, (case(x(4, 2), 2), case(x(3, 2), (1,))), view=True),
    Sample("dsplit", lambda v, cuts: _cut(v, cuts, 2), (case(x(1, 2, 4), 2),), view=True),
    Sample("diag_embed", _embedded, (case(x(2, 3)), case(x(2), 1), case(x(2, 2), -1, 0, 2))),
    Sample("diagflat", lambda v, k=0: np.diagflat(v, k), (case(x(2, 2)), case(x(3), 1), case(x()))),
    Sample("rot90", lambda v, k=1, dims=(0, 1): np.rot90(v, k, dims), (
        case(x(2, 3)), case(x(2, 3), 2), case(x(2, 3, 2), -1, (1, 2)), case(x(2, 2), 4))),
    Sample("cartesian_prod", lambda *v: np.array(list(itertools.product(*v)), v[0].dtype), (
        case(x(2), x(3)), case(x(2), x(1), x(2)))),
    Sample("combinations", _chosen, (case(x(4)), case(x(3), 3), case(x(3), 2, True))),
    Sample("vander", _vander, (case(x(3)), case(x(2), 4, increasing=True)), "float", strict=False, loose=8,
           grad=False),
    Sample("unravel_index", lambda v, shape: np.unravel_index(v, shape), (case(exactly([0, 5, 11]), (3, 4)),
           case(exactly([[1], [0]]), (2,))), "ints", "int64"),
)  # fmt: skip


def _sliced(v: Array, src: Array, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Array:
    out = v.copy()
    np.moveaxis(out, dim, 0)[start:end:step] = np.moveaxis(src, dim, 0)
    return out


def _selected(v: Array, src: Array, dim: int, at: int) -> Array:
    out = v.copy()
    np.moveaxis(out, dim, 0)[at] = src
    return out


def _on_diagonal(v: Array, src: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    out = v.copy()
    rows = np.arange(src.shape[-1])
    np.moveaxis(out, (dim1, dim2), (-2, -1))[..., rows - min(offset, 0), rows + max(offset, 0)] = src
    return out


def _masked(v: Array, chosen: Array, source: Array) -> Array:
    out = np.broadcast_to(v, np.broadcast_shapes(v.shape, chosen.shape)).copy()
    where = np.broadcast_to(chosen, out.shape)
    out[where] = source.ravel()[: where.sum()]
    return out


def _put(v: Array, at: Array, source: Array, accumulate: bool = False) -> Array:
    out = v.copy()
    if accumulate:
        np.add.at(out.reshape(-1), at.ravel(), source.ravel())
    else:
        out.reshape(-1)[at.ravel()] = source.ravel()
    return out


REDUCE: dict[str, Any] = {"sum": np.add, "prod": np.multiply, "mean": np.add, "amax": np.maximum, "amin": np.minimum}


def _reduced(v: Array, dim: int, at: Array, src: Array, reduce: str, include_self: bool = True) -> Array:
    out, counts = v.copy(), np.ones(v.shape, int)
    fresh = np.full(v.shape, not include_self)
    for place in np.ndindex(at.shape):
        target = list(place)
        target[dim] = at[place]
        to = tuple(target)
        out[to] = src[place] if fresh[to] else REDUCE[reduce](out[to], src[place])
        counts[to] += not fresh[to]
        fresh[to] = False
    if reduce != "mean":
        return out
    return out / counts if out.dtype.kind == "f" else out // counts


def _index_reduced(v: Array, dim: int, at: Array, src: Array, reduce: str, include_self: bool = True) -> Array:
    shape = [-1 if d == dim else 1 for d in range(v.ndim)]
    return _reduced(v, dim, np.broadcast_to(at.reshape(shape), src.shape), src, reduce, include_self)


ROWS = index([[0, 2, 0], [0, 1, 1]])


def _reductions(reduce: str) -> tuple[Case, ...]:
    return (
        case(x(3, 3), 0, ROWS, x(2, 3), reduce),
        case(x(2, 3), 1, ROWS, x(2, 3), reduce, include_self=False),
        case(x(4), 0, index([-1, 1, -1]), x(3), reduce),
    )


def _scatter_reduce(*args: Any, **options: Any) -> Any:
    from ...ops import scatter_reduce

    return scatter_reduce(*args, **options)


PLACING = samples(
    Sample("slice_scatter", _sliced, (case(x(3, 4), x(3, 2), 1, 1, 3), case(x(5, 2), x(2, 2), 0, 0, None, 3),
           case(x(3), x(1), start=-1))),
    Sample("select_scatter", _selected, (case(x(2, 3), x(3), 0, 1), case(x(2, 3), x(2), 1, -1))),
    Sample("diagonal_scatter", _on_diagonal, (case(x(3, 3), x(3)), case(x(2, 4), x(2), 1))),
    Sample("masked_scatter", _masked, (case(x(2, 3), mask(2, 3), x(6)), case(x(2, 3), mask(3), x(3, 3)),
           case(x(0, 2), mask(2), x(1)))),
    Sample("put", _put, (case(x(2, 3), index([[0, 5], [2, 1]]), x(2, 2)), case(x(3), index([-1, 0]), x(2)))),
    Sample("put.accumulate", _put, (case(x(2, 3), index([0, 5, 0]), x(3), True),), "number", strict=False,
           call=lambda v, i, s, a: v.put(i, s, a), loose=2),
    Sample("scatter_reduce", _reduced, _reductions("amax")),
    Sample("index_reduce", _index_reduced, (case(x(3, 2), 0, index([2, 0, 2]), x(3, 2), "amax"),
           case(x(2, 3), 1, index([0, 0]), x(2, 2), "prod", include_self=False)), "number", strict=False, loose=8),
    *(Sample(f"scatter_reduce.{reduce}", _reduced, _reductions(reduce), "number", strict=False, loose=8,
             call=_scatter_reduce) for reduce in ("sum", "prod", "mean", "amin")),
)  # fmt: skip


def _consecutive(v: Array, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> Any:
    rows = v.reshape(-1) if dim is None else np.moveaxis(v, dim, 0)
    starts = [i for i in range(len(rows)) if i == 0 or (rows[i] != rows[i - 1]).any()]
    rank = np.array([sum(s <= i for s in starts) - 1 for i in range(len(rows))], int)
    values = rows[starts] if dim is None else np.moveaxis(rows[starts], 0, dim)
    asked = [rank.reshape(v.shape) if dim is None else rank] if return_inverse else []
    asked += [np.bincount(rank, minlength=len(starts))] if return_counts else []
    return (values, *asked) if asked else values


def _unique_rows(v: Array, dim: int) -> Any:
    found: Any = np.unique(v, axis=dim, return_inverse=True, return_counts=True)
    return found[0], found[1].reshape(-1), found[2]


def _repeated(v: Array, times: Array, dim: int | None = None) -> Array:
    return np.repeat(v, times, dim)


RUNS = exactly([[1, 1, 0], [0, 0, 0], [2, 1, 1]])
PAIRS = exactly([[1, 1, 0, 1], [0, 0, 2, 0]])

ORDER = samples(
    Sample("unique.dim", _unique_rows, (case(PAIRS, 1), case(exactly([[1, 0], [0, 1], [1, 0]]), 0)),
           gives=("same", "int64", "int64"), grad=False,
           call=lambda v, dim: v.unique(return_inverse=True, return_counts=True, dim=dim)),
    Sample("unique_consecutive", _consecutive, (case(RUNS), case(RUNS, True, True), case(x(0), return_counts=True),
           case(PAIRS, return_inverse=True, return_counts=True, dim=1)), gives=("same", "int64", "int64"), grad=False),
    Sample("isin", lambda v, w, invert=False: np.isin(v, w, invert=invert), (
        case(RUNS, exactly([0, 3])), case(RUNS, 1), case(RUNS, index(range(1, 40, 2))),
        case(RUNS, exactly([0]), invert=True)), "number", strict=False, gives="bool", grad=False),
    Sample("repeat_interleave.each", _repeated, (case(x(3, 2), index([2, 0, 1]), 0), case(x(2, 2), index([1, 0, 2, 1])),
           case(x(2, 3), index([2]), 1)), call=lambda v, n, *dim: v.repeat_interleave(n, *dim)),
)  # fmt: skip

SAMPLES = samples(SHAPES, PLACING, ORDER)
