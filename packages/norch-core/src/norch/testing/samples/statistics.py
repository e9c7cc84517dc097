"""Quantiles, modes, histograms, covariances; running extremes; reductions that pass over NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .record import Array, Sample, case, exactly, index, samples, x
from .reduction import DIMS, SPREADS, _mean_of, _spread, over

NAN = float("nan")
HOLES = exactly([[1.0, NAN, 3.0], [NAN, 0.5, 0.0]])


def _running(best: Any) -> Callable[..., Any]:
    def oracle(v: Array, dim: int) -> tuple[Array, Array]:
        if not v.ndim:
            return v, np.int64(0)
        rows = np.moveaxis(v, dim, -1)
        values, places = best.accumulate(rows, -1), np.zeros(rows.shape, np.int64)
        for at in np.ndindex(*rows.shape):
            *lead, end = at
            run = rows[tuple(lead)][: end + 1]
            places[at] = np.flatnonzero((run == values[at]) | (np.isnan(run) if np.isnan(values[at]) else False))[-1]
        return np.moveaxis(values, -1, dim), np.moveaxis(places, -1, dim)

    return oracle


def _kth(v: Array, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Array, Array]:
    order = np.argsort(v, dim, kind="stable").take([k - 1], dim)
    found = np.take_along_axis(v, order, dim), order
    return found if keepdim else (np.squeeze(found[0], dim), np.squeeze(found[1], dim))


def _mode(v: Array, dim: int = -1, keepdim: bool = False) -> tuple[Array, Array]:
    def one(row: Array) -> Array:
        values, counts = np.unique(row, return_counts=True)
        return np.asarray(np.flatnonzero(row == values[np.argmax(counts)])[-1])

    order = np.expand_dims(np.apply_along_axis(one, dim, v), dim)
    found = np.take_along_axis(v, order, dim), order
    return found if keepdim else (np.squeeze(found[0], dim), np.squeeze(found[1], dim))


def _quantiles(function: Any) -> Callable[..., Any]:
    def oracle(v: Array, q: Any, dim: Any = None, keepdim: bool = False, interpolation: str = "linear") -> Any:
        return function(v, q, axis=dim, keepdims=keepdim, method=interpolation)

    return oracle


def _diff(v: Array, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Array:
    more = {k: p for k, p in (("prepend", prepend), ("append", append)) if p is not None}
    return np.diff(v, n, dim, **more)


def _counts(v: Array, bins: int = 100, min: float = 0, max: float = 0) -> Array:
    return np.histogram(v, bins, (min, max) if min or max else None)[0].astype(float)


def _covariance(v: Array, correction: float = 1, fweights: Any = None, aweights: Any = None) -> Array:
    return np.cov(v, ddof=int(correction), fweights=fweights, aweights=aweights)


def _log_running(v: Array, dim: int) -> Array:
    return np.log(np.cumsum(np.exp(v), dim)) if v.ndim else v


def _area(y: Array, at: Any = None, dx: float = 1.0, dim: int = -1) -> Array:
    return np.asarray(np.trapezoid(y, at, dx, dim))


def _areas(y: Array, at: Any = None, dx: float = 1.0, dim: int = -1) -> Array:
    last = range(2, y.shape[dim] + 1)
    cut = [np.arange(n) for n in last]
    parts = [_area(np.take(y, c, dim), at if at is None else at[: len(c)], dx, dim) for c in cut]
    return np.stack(parts, dim)


SAMPLES = samples(
    Sample("aminmax", lambda v, dim=None, keepdim=False: (np.min(v, axis=dim, keepdims=keepdim),
           np.max(v, axis=dim, keepdims=keepdim)), (case(x(2, 3)), case(x(2, 3), dim=1), case(x(3, 2), dim=0,
           keepdim=True), case(x()))),
    Sample("std_mean", lambda *a, **k: (np.sqrt(_spread(*a, **k)), _mean_of(*a, **k)), SPREADS, "float", loose=8),
    Sample("nansum", over(np.nansum), (*DIMS, case(x(0))), gives="sum", loose=2),
    Sample("nansum.nan", over(np.nansum), (case(HOLES), case(HOLES, 0)), "float", strict=False, grad=False,
           call=lambda v, *args: v.nansum(*args)),
    Sample("nanmean", over(np.nanmean), (case(x(2, 3)), case(x(2, 3), 1, True), case(x())), "float", loose=2),
    Sample("nanmean.nan", over(np.nanmean), (case(HOLES), case(HOLES, 0)), "float", grad=False,
           call=lambda v, *args: v.nanmean(*args), strict=False),
    Sample("nanmedian", lambda v: np.sort(v, None)[(v.size - 1) // 2], (case(x(2, 3)), case(x(5)))),
    Sample("nanmedian.nan", lambda v, dim, keepdim=False: _kth(v, 1, dim, keepdim), (case(HOLES, 1), case(HOLES, 0,
           True)),
           "float", strict=False, grad=False, gives=("same", "int64"),
           call=lambda v, *args: v.nanmedian(*args)),
    Sample("kthvalue", _kth, (case(x(2, 4), 2), case(x(4, 2), 1, 0), case(x(3), 3, -1, True)),
           gives=("same", "int64")),
    Sample("mode", _mode, (case(exactly([[3, 1, 3, 2], [2, 0, 0, 2]])), case(exactly([[1, 0], [0, 1], [1, 1]]), 0,
           True),
           case(x(1))), gives=("same", "int64"), grad=False),
    Sample("msort", lambda v: np.sort(v, 0), (case(x(3, 2)), case(x(4)))),
    Sample("quantile", _quantiles(np.quantile), (
        case(x(2, 3), 0.3), case(x(2, 4), 0.75, 1), case(x(4, 2), exactly([0.0, 0.25, 1.0]), 0, True),
        *(case(x(2, 4), 0.4, 1, interpolation=name) for name in ("lower", "higher", "midpoint", "nearest"))), "float",
        loose=8, grad=False),
    Sample("quantile.gradient", _quantiles(np.quantile), (case(x(2, 3), 0.3), case(x(4, 2), 0.4, 0, True)), "float",
           loose=8, call=lambda v, *args: v.quantile(*args)),
    Sample("nanquantile", _quantiles(np.nanquantile), (case(HOLES, 0.25, 1), case(HOLES, 0.5), case(x(3), 0.7)),
           "float",
           loose=8, grad=False, strict=False),
    Sample("bincount", lambda v, weights=None, minlength=0: np.bincount(v, weights, minlength), (
        case(exactly([3, 1, 1, 0])), case(exactly([1]), minlength=4), case(x(0))), "ints", gives="int64", grad=False),
    Sample("bincount.weights", lambda w, v: np.bincount(v, w), (case(x(4), index([3, 1, 1, 0])),), "float",
           strict=False,
           grad=False, call=lambda w, v: v.bincount(w)),
    Sample("histc", _counts, (case(x(3, 4), 5, -2, 2), case(exactly([0.0, 1.0, 1.5, 4.0]), 4),
           case(exactly([0.5, 9.0, -3.0]), bins=2, min=0, max=1)), "number", grad=False),
    Sample("cov", _covariance, (case(x(2, 4)), case(x(3, 4), correction=0), case(x(4)),
           case(x(2, 3), fweights=index([1, 3, 2]))), "float", strict=False, loose=8),
    Sample("corrcoef", np.corrcoef, (case(x(2, 4)),), "float", strict=False, loose=8),
    Sample("cummax", _running(np.maximum), (case(x(3, 2), 0), case(x(2, 5), 1), case(x(), 0)), gives=("same", "int64")),
    Sample("cummin", _running(np.minimum), (case(x(3, 2), 0), case(x(2, 5), -1)), gives=("same", "int64")),
    Sample("cummax.ties", _running(np.maximum), (case(exactly([1, 1, 0, 2, 2]), 0),), gives=("same", "int64"),
           grad=False, call=lambda v, dim: v.cummax(dim)),
    Sample("cummax.nan", _running(np.maximum), (case(HOLES, 1),), "float", strict=False, grad=False,
           gives=("same", "int64"), call=lambda v, dim: v.cummax(dim)),
    Sample("logcumsumexp", _log_running, (case(x(2, 5), 1), case(x(3, 2), 0), case(x(), 0)), "float", loose=8),
    Sample("diff", _diff, (case(x(2, 4)), case(x(4, 2), 2, 0), case(x(2, 3), prepend=x(2, 1), append=x(2, 2)),
           case(x(1)), case(x(3), 0)), loose=2),
    Sample("trapezoid", _area, (case(x(2, 4)), case(x(4, 2), dx=0.5, dim=0), case(x(2, 3), exactly([0.0, 1.0, 3.0]))),
           "float", strict=False, loose=4),
    Sample("cumulative_trapezoid", _areas, (case(x(2, 4)), case(x(4, 2), dx=0.5, dim=0),
           case(x(2, 3), exactly([0.0, 1.0, 3.0]))), "float", strict=False, loose=4),
)  # fmt: skip
