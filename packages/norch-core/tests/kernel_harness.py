"""Calls kernels of the NumPy backend on operands of any layout, and measures how far results are off."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from norch.backend.contract import Operand
from norch.dtype import (
    BOOL,
    DTYPES,
    FLOATING,
    INTEGER,
    DType,
    bool_,
)
from norch.numpy_backend.backend import NumpyBackend
from norch.spec import contiguous_strides

BACKEND = NumpyBackend()
FLOATS = [d for d in DTYPES if d.category == FLOATING]
INTS = [d for d in DTYPES if d.category == INTEGER]
DIGITS = {"float64": (53, -1022), "float32": (24, -126), "float16": (11, -14), "bfloat16": (8, -126)}
NAN, INF = math.nan, math.inf
GUARD = 0x5A
LAYOUTS = ["dense", "gaps"]
ids = {"ids": lambda v: v.name if isinstance(v, DType) else None}


class Placed:
    """A tensor operand: values in a buffer, either densely or transposed, with gaps and an offset."""

    def __init__(self, values: Any, dtype: DType, layout: str = "dense", shape: tuple[int, ...] | None = None) -> None:
        array = None if shape is not None else np.asarray(values).astype(dtype.numpy)
        self.shape = shape if array is None else array.shape
        self.dtype, size = dtype, dtype.itemsize
        if layout == "dense":
            strides, self.offset = contiguous_strides(self.shape), 0
        else:
            strides, self.offset = tuple(2 * s for s in contiguous_strides(self.shape[::-1]))[::-1], 5
        span = 1 + sum((n - 1) * s for n, s in zip(self.shape, strides)) if 0 not in self.shape else 0
        self.buffer = BACKEND.allocate((self.offset + span + 3) * size, 0)
        self.buffer.data[...] = GUARD
        self.operand = Operand(dtype, self.shape, strides)
        if array is not None:
            self.view()[...] = array

    def view(self) -> Any:
        strides = tuple(s * self.dtype.itemsize for s in self.operand.strides)
        start = self.offset * self.dtype.itemsize
        return np.ndarray(self.shape, self.dtype.numpy, self.buffer.data, start, strides)

    def expanded(self, shape: tuple[int, ...]) -> Placed:
        strides = (0,) * (len(shape) - len(self.shape)) + tuple(
            0 if n == 1 else s for n, s in zip(self.shape, self.operand.strides)
        )
        self.shape, self.operand = shape, self.operand._replace(shape=shape, strides=strides)
        return self

    def assert_gaps_untouched(self) -> None:
        touched = np.zeros(self.buffer.nbytes, bool)
        size = self.dtype.itemsize
        strides = (*(s * size for s in self.operand.strides), 1)
        np.ndarray((*self.shape, size), bool, touched, self.offset * size, strides)[...] = True
        assert (self.buffer.data[~touched] == GUARD).all()


def call(op: str, outputs: Sequence[Placed], inputs: Sequence[Any], attrs: dict[str, Any] | None = None) -> None:
    """Runs a primitive; an input that is no Placed is a scalar of the last output's dtype."""
    operands, args = [], []
    for x in (*outputs, *inputs):
        if isinstance(x, Placed):
            operands.append(x.operand)
            args += [x.buffer, x.offset]
        else:
            tensors = [i.dtype for i in inputs if isinstance(i, Placed) and i.dtype is not bool_]
            operands.append(Operand(tensors[0] if tensors else outputs[0].dtype, (), (), True))
            args.append(x)
    kernel = BACKEND.compile(op, tuple(operands), attrs or {})
    assert kernel is not None
    assert kernel(*args) is None
    for out in outputs:
        out.assert_gaps_untouched()


def result(
    op: str, dtype: DType, shape: tuple[int, ...], inputs: Sequence[Any], layout: str = "dense", **attrs: Any
) -> Any:
    out = Placed(None, dtype, layout, shape)
    call(op, [out], inputs, attrs)
    return out.view()


def wrap(value: int, dtype: DType) -> int:
    if dtype.category == BOOL:
        return bool(value)
    half = 1 << (8 * dtype.itemsize - 1) if dtype.is_signed else 0
    return (value + half) % (1 << 8 * dtype.itemsize) - half


def ulps(got: float, want: float, dtype: DType) -> float:
    """How far `got` is from the float64 value `want`, in units in the last place of `dtype`."""
    digits, lowest = DIGITS[dtype.name]
    if math.isnan(want) or math.isnan(got):
        return 0 if math.isnan(want) and math.isnan(got) else INF
    if got == want:
        return 0
    largest = (2 - 2.0 ** (1 - digits)) * 2.0 ** (1 - lowest)
    if abs(want) >= largest or math.isinf(got):
        return 0 if math.copysign(1, got) == math.copysign(1, want) and abs(got) >= largest <= abs(want) else INF
    exponent = max(math.frexp(want)[1] - 1, lowest) if want else lowest
    return abs(got - want) / 2.0 ** (exponent - digits + 1)


def assert_close(got: Any, want: Sequence[float], dtype: DType, limit: float | None = None) -> None:
    """16-bit results may be 0.51 ulp off (rounded once, from a float32 that is 3 off), the others 2."""
    limit = limit or (2 if dtype.itemsize > 2 else 0.51)
    values = np.asarray(got).astype(np.float64).ravel().tolist()
    worst = max(zip(map(ulps, values, want, itertools.repeat(dtype)), values, want), default=(0,))
    assert worst[0] <= limit, f"{worst[0]} ulp: got, expected {worst[1:]}"


def grid(values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """All pairs, as two columns."""
    pairs = list(itertools.product(values, values))
    return [a for a, _ in pairs], [b for _, b in pairs]
