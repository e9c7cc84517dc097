"""Dtypes in OpenCL C: how elements are stored, and what they are computed in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from norch.backend import DType


class CType(NamedTuple):
    """`stored` is the type in memory, `computed` the type of a value in a kernel, `number` that of a scalar operand."""

    name: str
    stored: str
    computed: str
    number: type[np.generic]

    def load(self, pointer: str, at: str) -> str:
        if self.name == "float16":
            return f"vload_half({at}, {pointer})"
        if self.name == "bfloat16":
            return f"as_float((uint){pointer}[{at}] << 16)"
        return f"{pointer}[{at}]"

    def store(self, pointer: str, at: str, value: str) -> str:
        if self.name == "float16":
            return f"vstore_half_rte({value}, {at}, {pointer});"
        if self.name == "bfloat16":
            return f"{pointer}[{at}] = to_bfloat16({value});"
        if self.name == "bool":
            return f"{pointer}[{at}] = ({value}) != 0;"
        return f"{pointer}[{at}] = ({self.stored})({value});"

    @property
    def is_floating(self) -> bool:
        return self.computed in ("float", "double")


_ROWS = [
    CType("float64", "double", "double", np.float64),
    CType("float32", "float", "float", np.float32),
    CType("float16", "half", "float", np.float32),
    CType("bfloat16", "ushort", "float", np.float32),
    CType("int64", "long", "long", np.int64),
    CType("int32", "int", "int", np.int32),
    CType("int16", "short", "int", np.int32),
    CType("int8", "char", "int", np.int32),
    CType("uint8", "uchar", "int", np.int32),
    CType("bool", "uchar", "int", np.int32),
]
CTYPES = {row.name: row for row in _ROWS}
RAW = {n: CType(f"raw{n}", c, c, t) for n, c, t in [
    (1, "uchar", np.uint8), (2, "ushort", np.uint16), (4, "uint", np.uint32), (8, "ulong", np.uint64),
]}  # fmt: skip
"""Bytes that are moved and not computed with, by their number."""

PRELUDE = """
ushort to_bfloat16(float x) {
    uint u = as_uint(x);
    return x != x ? 0x7fc0 : (u + 0x7fff + (u >> 16 & 1)) >> 16;
}
"""


def ctype(dtype: DType) -> CType:
    return CTYPES[dtype.name]


def raw(dtype: DType) -> CType:
    return RAW[dtype.itemsize]


def as_bits(dtype: DType) -> Callable[[Any], Any]:
    """From a Python number to the bytes of an element, as a NumPy whole number."""
    kind, bits = dtype.numpy, RAW[dtype.itemsize].number

    def convert(value: Any) -> Any:
        with np.errstate(all="ignore"):
            return np.array(value).astype(kind).view(bits)[()]

    return convert


def as_number(dtype: DType, rounded: bool = False) -> Callable[[Any], Any]:
    """From a Python number to one of the type computed in; `rounded` to the dtype first, which is narrower if 16-bit."""
    number, kind = ctype(dtype).number, dtype.numpy

    def convert(value: Any) -> Any:
        with np.errstate(all="ignore"):
            return number(np.array(value).astype(kind)) if rounded else number(value)

    return convert
