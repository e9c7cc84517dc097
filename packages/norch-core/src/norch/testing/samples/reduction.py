"""Reductions and scans."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .record import Array, Case, Sample, case, exactly, samples, x


def over(function: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy's reduction under PyTorch's names; a list of dims is a tuple, an empty one all of them."""

    def oracle(v: Array, dim: Any = None, keepdim: bool = False, **rest: Any) -> Any:
        axis = (tuple(dim) or None) if isinstance(dim, list | tuple) else dim
        if v.ndim == 0:
            axis = None
        return function(v, axis=axis, keepdims=keepdim, **rest)

    return oracle


DIMS: tuple[Case, ...] = (
    case(x(2, 3)),
    case(x(2, 3), 0),
    case(x(2, 3, 2), -1, True),
    case(x(2, 3, 2), (0, 2)),
    case(x(2, 3, 2), [1, -1], keepdim=True),
    case(x()),
    case(x(), 0),
    case(x(3, 0, 2), 2),
)
EMPTY: tuple[Case, ...] = (case(x(0)), case(x(3, 0, 2), 1), case(x(2, 0), (0, 1), True))
ONE_DIM: tuple[Case, ...] = (case(x(2, 3), 0), case(x(2, 3, 2), 1, True), case(x(4), -1), case(x(3, 0, 2), 2))


def _along(function: Callable[..., Any]) -> Callable[..., Any]:
    """A scan."""
    return lambda v, dim: function(v, axis=dim) if v.ndim else v


def _arg(function: Callable[..., Any]) -> Callable[..., Any]:
    def oracle(v: Array, dim: int | None = None, keepdim: bool = False) -> Any:
        if v.ndim == 0:
            return np.int64(0)
        found = function(v, axis=dim, keepdims=keepdim)
        return np.asarray(found, np.int64)

    return oracle


def _pair(value: Callable[..., Any], place: Callable[..., Any]) -> Callable[..., Any]:
    """max or min: all elements, a (values, indices) pair along a dim, or elementwise."""

    def oracle(v: Array, dim: int, keepdim: bool = False) -> Any:
        if v.ndim == 0:
            return v, np.int64(0)
        return value(v, axis=dim, keepdims=keepdim), place(v, axis=dim, keepdims=keepdim)

    return oracle


def _spread(v: Array, dim: Any = None, unbiased: bool = True, keepdim: bool = False, correction: Any = None) -> Any:
    ddof = correction if correction is not None else 1 if unbiased else 0
    axis = tuple(dim) if isinstance(dim, list) else dim
    return np.var(v, axis=axis, keepdims=keepdim, ddof=ddof)


SPREADS: tuple[Case, ...] = (
    case(x(2, 3)),
    case(x(2, 3), 0),
    case(x(2, 3, 2), [0, 2], keepdim=True),
    case(x(2, 3), 1, False),
    case(x(2, 3), dim=1, correction=0),
    case(x(4), correction=1.5),
    case(exactly([300.0, 500.0, 200.0])),
)


def _mean_of(v: Array, dim: Any = None, unbiased: bool = True, keepdim: bool = False, correction: Any = None) -> Array:
    axis = tuple(dim) if isinstance(dim, list) else dim
    return np.asarray(np.mean(v, axis=axis, keepdims=keepdim))


def _norm(v: Array, p: Any = 2, dim: Any = None, keepdim: bool = False) -> Any:
    size = np.abs(v)
    axis = tuple(dim) if isinstance(dim, list) else dim
    if p == math.inf:
        return np.max(size, axis=axis, keepdims=keepdim)
    if p == -math.inf:
        return np.min(size, axis=axis, keepdims=keepdim)
    if p == 0:
        return np.sum(size != 0, axis=axis, keepdims=keepdim)
    power = 2 if p == "fro" else p
    return np.sum(size**power, axis=axis, keepdims=keepdim) ** (1 / power)


def _logsumexp(v: Array, dim: Any, keepdim: bool = False) -> Any:
    return np.log(np.sum(np.exp(v), axis=tuple(dim) if isinstance(dim, list) else dim, keepdims=keepdim))


def _median(v: Array, dim: int | None = None, keepdim: bool = False) -> Any:
    if dim is None:
        return np.sort(v, axis=None)[(v.size - 1) // 2]
    order = np.argsort(v, axis=dim, kind="stable").take([(v.shape[dim] - 1) // 2], axis=dim)
    found = np.take_along_axis(v, order, dim), order
    return found if keepdim else tuple(np.squeeze(f, dim) for f in found)


def _quantity(v: Array, dim: Any = None) -> Any:
    return np.count_nonzero(v, axis=tuple(dim) if isinstance(dim, list) else dim)


NAN = math.nan
LARGE = exactly([30000.0, 20000.0, 40000.0])
"""Whose sum and squares a float16 cannot hold."""
FLOAT_EDGES: tuple[Case, ...] = (case(exactly([[1.0, NAN, 3.0], [NAN, NAN, 0.0]]), 1),)
TIES: tuple[Case, ...] = (case(exactly([[2, 1, 2], [1, 1, 0]]), 1), case(exactly([3, 1, 3, 1])))

SAMPLES = samples(
    Sample("sum", over(np.sum), DIMS + EMPTY + (case(x(2, 3), []),), gives="sum", loose=2),
    Sample("prod", over(np.prod), DIMS + EMPTY, gives="sum", loose=2),
    Sample("prod.zeros", over(np.prod), (case(exactly([[2, 0, 3], [0, 0, 1], [1, 2, 3]]), 1),
           case(exactly([2.0, 0.0, 1.5]))), gives="sum", call=lambda v, *args: v.prod(*args)),
    Sample("mean", over(np.mean), (*DIMS, case(LARGE)), takes="float", loose=2),
    Sample("amax", over(np.max), DIMS),
    Sample("amin", over(np.min), DIMS),
    Sample("amax.nan", over(np.max), FLOAT_EDGES, "float", strict=False, grad=False,
           call=lambda v, dim: v.amax(dim)),
    Sample("amin.nan", over(np.min), FLOAT_EDGES, "float", strict=False, grad=False,
           call=lambda v, dim: v.amin(dim)),
    Sample("max", lambda v: np.max(v), (case(x(2, 3)), case(x()))),
    Sample("min", lambda v: np.min(v), (case(x(2, 3)), case(x()))),
    Sample("max.dim", _pair(np.max, np.argmax), ONE_DIM + (case(x(), 0),), gives=("same", "int64"),
           call=lambda v, *args: v.max(*args)),
    Sample("min.dim", _pair(np.min, np.argmin), ONE_DIM + (case(x(), 0),), gives=("same", "int64"),
           call=lambda v, *args: v.min(*args)),
    Sample("max.tensor", np.maximum, (case(x(2, 3), x(3)),), call=lambda a, b: a.max(b)),
    Sample("min.tensor", np.minimum, (case(x(2, 3), x(3)),), call=lambda a, b: a.min(b)),
    Sample("any", over(np.any), DIMS + EMPTY, gives="bool", grad=False),
    Sample("all", over(np.all), DIMS + EMPTY, gives="bool", grad=False),
    Sample("argmax", _arg(np.argmax), (case(x(2, 3)), case(x(2, 3), None, True), case(x()), *ONE_DIM, *TIES),
           gives="int64", grad=False),
    Sample("argmin", _arg(np.argmin), (case(x(2, 3)), case(x(2, 3), None, True), case(x()), *ONE_DIM, *TIES),
           gives="int64", grad=False),
    Sample("argmax.nan", _arg(np.argmax), FLOAT_EDGES, "float", strict=False, gives="int64", grad=False,
           call=lambda v, dim: v.argmax(dim)),
    Sample("argmin.nan", _arg(np.argmin), FLOAT_EDGES, "float", strict=False, gives="int64", grad=False,
           call=lambda v, dim: v.argmin(dim)),
    Sample("var", _spread, SPREADS, "float", loose=8),
    Sample("std", lambda *a, **k: np.sqrt(_spread(*a, **k)), SPREADS, "float", loose=8),
    Sample("var_mean", lambda *a, **k: (_spread(*a, **k), _mean_of(*a, **k)), SPREADS, "float", loose=8),
    Sample("var.of_one", _spread, (case(x(2, 1), 1), case(x(0, 2), 0), case(x(2), correction=3)), "float", grad=False,
           call=lambda v, *a, **k: v.var(*a, **k)),
    Sample("norm", _norm, (
        case(x(2, 3)), case(x(2, 3), 1, 0), case(x(2, 3), 3, [0, 1]), case(x(2, 3), 2, 1, True),
        case(x(2, 3), math.inf), case(x(2, 3), -math.inf, 1), case(x(2, 3), "fro"), case(x()), case(LARGE),
        case(x(0, 3), 2, 0),
    ), "float", strict=False, loose=4),
    Sample("norm.count", lambda v: _norm(v, 0), (case(exactly([1.0, 0.0, 2.0])),), "float", strict=False, grad=False,
           call=lambda v: v.norm(0)),
    Sample("logsumexp", _logsumexp, (
        case(x(2, 3), 0), case(x(2, 3), -1, True), case(x(2, 3, 2), [0, 2]),
        case(x(2, 3, low=-9, high=9), 1)), "float", strict=False, loose=4),
    Sample("logsumexp.infinite", _logsumexp, (
        case(exactly([[-math.inf, -math.inf], [math.inf, 1.0], [-math.inf, 0.0]]), 1),), "float", strict=False,
        grad=False, call=lambda v, dim: v.logsumexp(dim)),
    Sample("cumsum", _along(np.cumsum), (case(x(2, 3), 0), case(x(2, 3, 2), -2), case(x(), 0), case(x(0, 2), 1),
           case(x(2, 0), 1)), gives="sum", loose=2),
    Sample("cumprod", _along(np.cumprod), (case(x(2, 3), 0), case(x(2, 5), -1), case(x(), 0), case(x(0, 2), 1),
           case(exactly([2, 0, 3, 0, 1]), 0)), gives="sum", loose=2),
    Sample("count_nonzero", _quantity, (case(x(2, 3)), case(x(2, 3), 1), case(x(2, 3, 2), [0, 1]), case(x(0, 3), 0)),
           gives="int64", grad=False),
    Sample("median", _median, (case(x(2, 3)), case(x(6))), loose=1),
    Sample("median.dim", _median, (case(x(2, 3), 1), case(x(4, 2), 0, True)), gives=("same", "int64"),
           call=lambda v, *args: v.median(*args)),
)  # fmt: skip
