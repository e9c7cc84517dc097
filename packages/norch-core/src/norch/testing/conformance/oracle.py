"""What kernels should give: every primitive in NumPy, floats in float64, integers exactly. The elementwise ones are in
their sample records. It shares nothing with the reference backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...dtype import BOOL, FLOATING, DType, as_dtype
from ..samples import SAMPLES

Array = Any


class Expected(NamedTuple):
    """The values of one output, and how far a float may be off: so many units of its dtype's precision relative to the
    value, and so many relative to `scale` (the magnitudes that were added up for it)."""

    values: Array
    units: float = 4.0
    scale: Array = 0.0


EXACT = frozenset("neg abs sign floor ceil round trunc bitwise_not maximum minimum".split())


def widened(values: Array) -> Array:
    """The same numbers in float64, int64 or bool."""
    values = np.asarray(values)
    if values.dtype == np.bool_:
        return values
    return values.astype(np.int64 if values.dtype.kind in "iu" else np.float64)


def as_stored(values: Array, dtype: DType) -> Array:
    """Integers as they wrap around in `dtype`, bools as such, floats as they are."""
    if dtype.category == FLOATING:
        return np.asarray(values, np.float64)
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(dtype.numpy)


def expected(op: str, inputs: Sequence[Any], attrs: Mapping[str, Any], outputs: Sequence[Any]) -> list[Expected]:
    """The values of each output. `inputs` are arrays and numbers; of an op that writes in place `outputs[0]` is what
    the output held before, else its shape and dtype only."""
    dtype = as_dtype(outputs[0].dtype.name)
    arrays = list(inputs) if op == "random" else [widened(x) for x in inputs]  # seeds are too large for int64
    with np.errstate(all="ignore"):
        if op in _OTHER:
            found = _OTHER[op](arrays, attrs, outputs)
            return [e._replace(values=as_stored(e.values, as_dtype(o.dtype.name))) for e, o in zip(found, outputs)]
        values = np.asarray(SAMPLES[op].oracle(*arrays))
    units = 0.51 if op in EXACT else 2 if op in ("add", "sub", "mul", "div", "sqrt") else 16
    return [Expected(as_stored(values, dtype), units)]


def _copy(arrays: list[Array], attrs: Any, outputs: Any) -> list[Expected]:
    to = as_dtype(outputs[0].dtype.name)
    values = arrays[0] != 0 if to.category == BOOL else arrays[0]
    if to.category not in (FLOATING, BOOL) and values.dtype == np.float64:
        values = np.trunc(values)
    return [Expected(values, 0.51)]


def _fill(arrays: list[Array], attrs: Any, outputs: Any) -> list[Expected]:
    return [Expected(np.broadcast_to(arrays[0], outputs[0].shape), 0.51)]


def _where(arrays: list[Array], attrs: Any, outputs: Any) -> list[Expected]:
    return [Expected(np.where(*arrays), 0.51)]


def _reduce(function: Any, adds: bool) -> Callable[..., list[Expected]]:
    def reduced(arrays: list[Array], attrs: Any, outputs: Any) -> list[Expected]:
        x, dims = arrays[0], attrs["dims"]
        values = function(x, axis=dims, keepdims=True)
        scale = np.abs(x).sum(axis=dims, keepdims=True) if adds and x.dtype == np.float64 else 0.0
        return [Expected(values, 32 if adds or function is np.prod else 0.51, scale)]

    return reduced


def _arg(function: Any) -> Callable[..., list[Expected]]:
    def found(arrays: list[Array], attrs: Any, outputs: Any) -> list[Expected]:
        x, dims = arrays[0], attrs["dims"]
        return [Expected(function(x, axis=dims[0], keepdims=True) if dims else np.zeros((), np.int64))]

    return found


def _cumsum(arrays: list[Array], attrs: Any, outputs: Any) -> list[Expected]:
    x, dim = arrays[0], attrs["dim"]
    if not x.ndim:
        return [Expected(x)]
    scale = np.cumsum(np.abs(x), axis=dim) if x.dtype == np.float64 else 0.0
    return [Expected(np.cumsum(x, axis=dim), 32, scale)]


def _matmul(arrays: list[Array], attrs: Any, outputs: Any) -> list[Expected]:
    a, b = arrays
    scale = np.abs(a) @ np.abs(b) if a.dtype == np.float64 else 0.0
    return [Expected(a @ b, 32, scale)]


def _placed(dim: int, index: Array, size: int) -> tuple[Array, ...]:
    """Where each element of `index` points."""
    places = list(np.indices(index.shape)) if index.ndim else []
    if places:
        places[dim] = np.where(index < 0, index + size, index)
    return tuple(places)


def _gather(arrays: list[Array], attrs: Any, outputs: Any) -> list[Expected]:
    x, index = arrays
    return [Expected(x[_placed(attrs["dim"], index, x.shape[attrs["dim"]] if x.ndim else 1)], 0.51)]


def _scatter(adds: bool) -> Callable[..., list[Expected]]:
    def scattered(arrays: list[Array], attrs: Any, outputs: Any) -> list[Expected]:
        index, src = arrays
        values = widened(outputs[0]).copy()
        scale = np.array(np.abs(values))
        places = _placed(attrs["dim"], index, values.shape[attrs["dim"]] if values.ndim else 1)
        if not adds:
            values[places] = src
        elif values.dtype == np.bool_:
            np.logical_or.at(values, places, src)
        else:
            np.add.at(values, places, src)
            np.add.at(scale, places, np.abs(src))
        return [Expected(values, 32 if adds else 0.51, scale if adds else 0.0)]

    return scattered


def _sort(arrays: list[Array], attrs: Any, outputs: Any) -> list[Expected]:
    x, dim = arrays[0], attrs["dim"]
    if not x.ndim:
        return [Expected(x, 0.51), Expected(np.zeros((), np.int64))]
    if not attrs["descending"]:
        order = np.argsort(x, axis=dim, kind="stable")
    else:  # backwards of backwards keeps equals in order
        order = x.shape[dim] - 1 - np.flip(np.argsort(np.flip(x, dim), axis=dim, kind="stable"), dim)
    return [Expected(np.take_along_axis(x, order, dim), 0.51), Expected(order)]


def _arange(arrays: list[Array], attrs: Any, outputs: Any) -> list[Expected]:
    start, step = arrays
    return [Expected(start + np.arange(outputs[0].shape[0]) * step, 1)]


def _random(arrays: list[Array], attrs: Any, outputs: Any) -> list[Expected]:
    from .philox import draw

    shape, dtype = outputs[0].shape, outputs[0].dtype.name
    values = draw(attrs["kind"], dtype, arrays[0], arrays[1], int(np.prod(shape)))
    return [Expected(np.array(values).reshape(shape), 64 if attrs["kind"] == "normal" else 0.51)]


_OTHER: dict[str, Callable[..., list[Expected]]] = {
    "copy": _copy, "fill": _fill, "where": _where, "cumsum": _cumsum, "matmul": _matmul, "gather": _gather,
    "scatter": _scatter(False), "scatter_add": _scatter(True), "sort": _sort, "arange": _arange,
    "sum": _reduce(np.sum, True), "prod": _reduce(np.prod, False), "amax": _reduce(np.max, False),
    "amin": _reduce(np.min, False), "any": _reduce(np.any, False), "all": _reduce(np.all, False),
    "argmax": _arg(np.argmax), "argmin": _arg(np.argmin), "random": _random,
}  # fmt: skip


_PRECISION = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
_SMALLEST = {"float64": 1e-300, "float32": 1e-37, "float16": 2.0**-24, "bfloat16": 1e-37}


def wrong(got: Array, want: Expected, dtype: DType) -> Array:
    """Which elements are further off than allowed. 16-bit floats are computed in float32 and rounded once."""
    if dtype.category != FLOATING:
        return np.asarray(got != want.values)
    given, exact = np.asarray(got).astype(np.float64), np.asarray(want.values, np.float64)
    with np.errstate(all="ignore"):
        stored = exact.astype(dtype.numpy).astype(np.float64)  # overflows where it must
        computed = _PRECISION["float64" if dtype.itemsize == 8 else "float32"]
        allowed = want.units * computed * np.maximum(np.abs(exact), want.scale) + _SMALLEST[dtype.name]
        if dtype.itemsize == 2:
            allowed = allowed + 0.51 * _PRECISION[dtype.name] * np.abs(exact)
        near = np.abs(given - exact) <= allowed
        same = (given == stored) | (np.isnan(given) & np.isnan(stored))
    return np.asarray(~(near | same))
