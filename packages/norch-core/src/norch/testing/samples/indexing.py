"""Indexing, gather and scatter, order, and the search for elements."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from ...dtype import int32
from .record import Array, Case, Sample, case, exactly, index, mask, samples, x

ROWS = index([[0, 2], [1, 1], [2, 0]])


def _each(v: Array, dim: int, at: Array) -> Any:
    """For each place of `at`: that place, and the one in `v` that it names along `dim`."""
    for place in itertools.product(*map(range, at.shape)):
        target = list(place)
        if v.ndim:
            target[dim] = int(at[place])
        yield place, tuple(target)


def _gathered(v: Array, dim: int, at: Array) -> Array:
    out = np.empty(at.shape, v.dtype)
    for place, source in _each(v, dim, at):
        out[place] = v[source]
    return out


def _scattered(add: bool) -> Callable[..., Array]:
    def oracle(v: Array, dim: int, at: Array, src: Any) -> Array:
        out = v.copy()
        for place, target in _each(v, dim, at):
            value = src if np.ndim(src) == 0 and v.ndim else src[place]
            out[target] = out[target] + value if add else value
        return out

    return oracle


def _index_written(write: str) -> Callable[..., Array]:
    def oracle(v: Array, dim: int, at: Array, src: Any, alpha: float = 1) -> Array:
        out = np.moveaxis(v.copy(), dim, 0)
        for i, row in enumerate(at):
            given = src if write == "fill" else np.moveaxis(src, dim, 0)[i]
            out[row] = out[row] + alpha * given if write == "add" else given
        return np.moveaxis(out, 0, dim)

    return oracle


def _indexed(v: Array, key: Any) -> Array:
    return v[tuple(key) if isinstance(key, list) else key]


def getitem(name: str, *cases: Case, **rest: Any) -> Sample:
    chosen: dict[str, Any] = {"call": _indexed} | rest
    return Sample(name, _indexed, cases, **chosen)


def _assigned(v: Any, key: Any, value: Any) -> Any:
    """A copy of `v`, array or tensor, after `v[key] = value`."""
    out = v.copy() if isinstance(v, np.ndarray) else v.clone()
    out[tuple(key) if isinstance(key, list) else key] = value
    return out


def setitem(name: str, *cases: Case, **rest: Any) -> Sample:
    return Sample(name, _assigned, cases, call=_assigned, **rest)


def _put(v: Array, at: Any, values: Any, accumulate: bool = False) -> Array:
    out = v.copy()
    if accumulate:
        np.add.at(out, tuple(at), values)
    else:
        out[tuple(at)] = values
    return out


NEW, ALL = None, slice(None)

INDEXING = samples(
    getitem("getitem", case(x(3, 4), 1), case(x(3, 4), -2), case(x(3, 4), [1, 2]), case(x(3, 4), slice(1, 3)),
            case(x(3, 4), [ALL, slice(0, 4, 2)]), case(x(3, 4), [slice(None, -1), slice(-3, None)]),
            case(x(3, 4), [..., 0]), case(x(3, 4), NEW), case(x(3, 4), [ALL, NEW, 1]), case(x(3, 4), ...),
            case(x(3, 4), slice(3, 1)), case(x(), ()), case(x(0, 2), [ALL, 1]), case(x(2, 3, 2), [0, ..., NEW]),
            view=True),
    getitem("getitem.reversed", case(x(4), slice(None, None, -1)), case(x(3, 4), [ALL, slice(None, None, -2)]),
            case(x(5), slice(3, 0, -2)), case(x(2, 3), [slice(None, None, -1), slice(2, None, -1)]),
            case(x(4), slice(0, 3, -1))),
    getitem("getitem.tensor", case(x(3, 4), index([2, 0, 2])), case(x(3, 4), index([[0, -1], [1, 2]])),
            case(x(3, 4), [index([0, 2]), index([1, -1])]), case(x(3, 4), [ALL, index([3, 0])]),
            case(x(3, 4), [index([0, 1, 2]), slice(1, 3)]), case(x(2, 3, 4), [index([1, 0]), ALL, index([2, 3])]),
            case(x(2, 3, 4), [ALL, index([1, 0]), index([2, 3])]), case(x(2, 3, 4), [index([[1], [0]]), 1]),
            case(x(2, 3), index(1)), case(x(3, 4), [0, index([1, 1])]), case(x(3, 4), index(np.zeros(0, int))),
            case(x(3, 2), [NEW, index([2, 0], int32)]), case(x(2, 3, 2), [..., index([1, 0, 1])])),
    getitem("getitem.mask", case(x(3, 4), mask(3, 4)), case(x(3, 4), mask(3)), case(x(3, 4), [ALL, mask(4)]),
            case(x(2, 3, 4), mask(2, 3)), case(x(3, 4), [mask(3), 1]), case(x(2, 3, 2), [ALL, mask(3, 2)]),
            case(x(0, 3), mask(0, 3))),
    getitem("getitem.list", case(x(3, 4), [[0, 2]]), case(x(3, 4), [[0, 2], [1, 3]]),
            case(x(3), [[True, False, True]])),
    setitem("setitem", case(x(3, 4), 1, x(4)), case(x(3, 4), [1, 2], x()), case(x(3, 4), slice(1, 3), x(2, 4)),
            case(x(3, 4), [ALL, slice(0, 4, 2)], x(3, 1)), case(x(3, 4), [..., 0], 1), case(x(3, 4), ..., 0),
            case(x(3, 4), [slice(0, 0)], 1), case(x(2, 3), [NEW, 0], x(1, 3)), case(x(4), ALL, x(1)),
            case(x(), ..., x())),
    setitem("setitem.reversed", case(x(4), slice(None, None, -1), x(4)), case(x(3, 4), [ALL, slice(3, 0, -2)], x(2))),
    setitem("setitem.tensor", case(x(3, 4), index([2, 0]), x(2, 4)), case(x(3, 4), [index([0, 2]), index([1, -1])],
            x(2)), case(x(3, 4), [ALL, index([3, 0])], x(3, 2)), case(x(3, 4), index([1]), 1),
            case(x(2, 3, 4), [index([1, 0]), ALL, index([2, 3])], x(2, 3)), case(x(3, 4), index([2, 0]), x(4))),
    setitem("setitem.mask", case(x(3, 4), mask(3, 4), 1), case(x(3, 4), mask(3), x(4)), case(x(3), mask(3), x(1)),
            case(x(2, 3), [ALL, exactly([True, False, True], mask().dtype)], x(2, 2))),
    Sample("index_put", _put, (
        case(x(3, 4), (index([0, 2]), index([1, 3])), x(2)), case(x(4), (index([1, 1, 2]),), x(3), True),
        case(x(3, 2), (index([1, 1]),), x(2, 2), True)), "number", strict=False),
)  # fmt: skip

GATHER = samples(
    Sample("gather", _gathered, (
        case(x(3, 2), 0, ROWS), case(x(3, 3), 1, ROWS), case(x(3, 3), -1, index([[0, -1]])), case(x(3), 0, index([2])),
        case(x(), 0, index(0)), case(x(3, 2), 0, index(np.zeros((0, 2), int))), case(x(3, 2), 0, index([[1, 0]], int32))
    )),
    Sample("scatter", _scattered(False), (
        case(x(3, 3), 1, index([[0, 2], [1, 0], [2, 1]]), x(3, 2)), case(x(3, 3), 0, index([[0, 2, 1]]), x(2, 3)),
        case(x(3, 3), 1, index([[1], [0]]), 1), case(x(3), 0, index([-1]), x(1)),
        case(x(2, 2), 0, index(np.zeros((0, 2), int)), x(0, 2)))),
    Sample("scatter_add", _scattered(True), (
        case(x(3, 3), 1, ROWS, x(3, 2)), case(x(3, 3), 0, index([[0, 2, 0], [0, 1, 1]]), x(3, 3)),
        case(x(2), 0, index([1, 1, 1]), x(4))), loose=2),
    Sample("index_select", lambda v, dim, i: np.take(v, i, dim), (
        case(x(3, 2), 0, index([2, 0, 2])), case(x(2, 3), -1, index([1])), case(x(2, 3), 1, index(np.zeros(0, int))))),
    Sample("index_add", _index_written("add"), (
        case(x(3, 2), 0, index([2, 0, 2]), x(3, 2)), case(x(2, 3), 1, index([0, 1]), x(2, 2), alpha=2)), "number",
        strict=False, loose=2),
    Sample("index_copy", _index_written("copy"), (
        case(x(3, 2), 0, index([2, 0]), x(2, 2)), case(x(2, 3), -1, index([1]), x(2, 1)))),
    Sample("index_fill", _index_written("fill"), (case(x(3, 2), 0, index([2, 0]), 1), case(x(2, 3), 1, index([1]), 0))),
    Sample("take", lambda v, i: np.take(v, i), (case(x(2, 3), index([[0, 5], [3, 3]])), case(x(2, 3), index([-1])))),
    Sample("take_along_dim", lambda v, i, dim=None: np.take_along_axis(v, i, dim) if dim is not None
           else np.take(v, i), (case(x(3, 2), ROWS, 0), case(x(3, 2), index([[0, 1]]), 0), case(x(1, 3), ROWS, 1),
           case(x(2, 3), index([4, 0])))),
    Sample("masked_select", lambda v, m: np.broadcast_to(v, np.broadcast_shapes(v.shape, m.shape))[
        np.broadcast_to(m, np.broadcast_shapes(v.shape, m.shape))], (
        case(x(2, 3), mask(2, 3)), case(x(2, 3), mask(3)), case(x(3), mask(2, 1)), case(x(0, 3), mask(3)))),
    Sample("nonzero", np.argwhere, (case(x(2, 3)), case(exactly([[0, 1], [2, 0]])), case(x(0, 2)),
           case(exactly([0, 0]))), gives="int64", grad=False),
    Sample("argwhere", np.argwhere, (case(exactly([[0, 1], [2, 0]])),), gives="int64", grad=False),
    Sample("one_hot", lambda v, n=-1: np.eye(int(v.max()) + 1 if n == -1 else n, dtype=int)[v], (
        case(exactly([0, 2, 1])), case(exactly([[0], [1]]), 4)), "ints", gives="int64", grad=False),
)  # fmt: skip


def _order(v: Array, dim: int = -1, descending: bool = False) -> Array:
    """Stable, in either direction."""
    if not v.ndim:
        return np.zeros((), np.int64)
    if descending:
        return v.shape[dim] - 1 - np.flip(np.argsort(np.flip(v, dim), dim, kind="stable"), dim)
    return np.argsort(v, dim, kind="stable")


def _sorted(v: Array, dim: int = -1, descending: bool = False) -> tuple[Array, Array]:
    order = _order(v, dim, descending)
    return (np.take_along_axis(v, order, dim) if v.ndim else v), order


def _top(v: Array, k: int, dim: int = -1, largest: bool = True) -> tuple[Array, ...]:
    return tuple(np.take(part, range(k), dim) for part in _sorted(v, dim, largest))


def _unique(v: Array, **more: bool) -> Any:
    asked = {"return_inverse": more.get("return_inverse", False), "return_counts": more.get("return_counts", False)}
    found: Any = np.unique(v, **asked)  # type: ignore[call-overload]
    if not isinstance(found, tuple):
        return found
    return tuple(p.reshape(v.shape) if asked["return_inverse"] and i == 1 else p for i, p in enumerate(found))


def _placed(sequence: Array, values: Any, right: bool = False) -> Any:
    side: Any = "right" if right else "left"
    if sequence.ndim == 1:
        return np.searchsorted(sequence, values, side)
    rows = sequence.reshape(-1, sequence.shape[-1]), np.asarray(values).reshape(-1, np.shape(values)[-1])
    found = [np.searchsorted(s, v, side) for s, v in zip(*rows, strict=True)]
    return np.array(found).reshape(np.shape(values))


TIED = exactly([[2, 1, 2, 0], [0, 0, 3, 3]])
STEPS = exactly([0, 1, 1, 3, 5])

ORDER = samples(
    Sample("sort", _sorted, (case(x(2, 3)), case(x(3, 2), 0), case(x(2, 4), -1, True), case(x(0, 2), 0), case(x())),
           gives=("same", "int64")),
    Sample("sort.ties", _sorted, (case(TIED), case(TIED, 1, True), case(exactly([1.0, np.nan, 0.0]))),
           gives=("same", "int64"), grad=False, call=lambda v, *args: v.sort(*args), takes="float",
           strict=False),
    Sample("argsort", _order, (case(x(2, 3)), case(x(3, 2), 0, True), case(TIED, -1, True), case(x())), gives="int64",
           grad=False),
    Sample("topk", _top, (case(x(2, 4), 2), case(x(4, 2), 3, 0), case(x(5), 2, -1, False), case(x(3), 0)),
           gives=("same", "int64")),
    Sample("unique", _unique, (
        case(TIED), case(TIED, return_inverse=True), case(TIED, return_counts=True), case(x(0)),
        case(TIED, return_inverse=True, return_counts=True), case(exactly(3))), gives=("same", "int64", "int64"),
        grad=False),
    Sample("searchsorted", _placed, (
        case(STEPS, exactly([0, 1, 2, 5, 6])), case(STEPS, exactly([[1, 3], [0, 9]]), right=True), case(STEPS, 1),
        case(exactly([[0, 1, 2], [2, 4, 6]]), exactly([[1, 1], [4, 5]]), right=True), case(x(0), exactly([1, 2]))),
        "number", strict=False, gives="int64", grad=False),
    Sample("bucketize", lambda v, b, right=False: _placed(b, v, right), (
        case(exactly([[1, 3], [0, 9]]), STEPS), case(exactly([1, 3]), STEPS, right=True)), "number", strict=False,
        gives="int64", grad=False),
)  # fmt: skip

SAMPLES = samples(INDEXING, GATHER, ORDER)
