"""Dtypes in OpenCL C: how elements are stored, and what they are computed in."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from norch.backend import DType

Attrs = Mapping[str, Any]
Number = Callable[[Any], Any]  # from a scalar operand to the NumPy scalar that its kernel takes


class CType(NamedTuple):
    """`stored` is the type in memory, `computed` that of a value in a kernel, `number` the same for NumPy."""

    name: str
    stored: str
    computed: str
    number: type[np.generic]

    @property
    def is_floating(self) -> bool:
        return self.computed in ("float", "double")

    def load(self, pointer: str, at: str) -> str:
        if self.name == "float16":  # needs no cl_khr_fp16, as arithmetic in half would
            return f"vload_half({at}, (__global half *){pointer})"
        if self.name == "bfloat16":
            return f"as_float((uint){pointer}[{at}] << 16)"
        return f"{pointer}[{at}]"

    def store(self, pointer: str, at: str, value: str) -> str:
        if self.name == "float16":
            return f"vstore_half_rte({value}, {at}, (__global half *){pointer});"
        if self.name == "bfloat16":
            return f"{pointer}[{at}] = to_bfloat16({value});"
        if self.name == "bool":
            return f"{pointer}[{at}] = ({value}) != 0;"
        return f"{pointer}[{at}] = ({self.stored})({value});"

    def prelude(self, **constants: int) -> str:
        """The start of a program that computes in this type, T."""
        defines = "".join(f"#define {name} {value}\n" for name, value in constants.items())
        return f"{BFLOAT16}typedef {self.computed} T;\n{defines}"


CTYPES = {
    name: CType(name, *rest)
    for name, *rest in (
        ("float64", "double", "double", np.float64),
        ("float32", "float", "float", np.float32),
        ("float16", "ushort", "float", np.float32),
        ("bfloat16", "ushort", "float", np.float32),
        ("int64", "long", "long", np.int64),
        ("int32", "int", "int", np.int32),
        ("int16", "short", "int", np.int32),
        ("int8", "char", "int", np.int32),
        ("uint8", "uchar", "int", np.int32),
        ("bool", "uchar", "int", np.int32),
        ("1 byte", "uchar", "uchar", np.uint8),  # these four are moved and not computed with
        ("2 bytes", "ushort", "ushort", np.uint16),
        ("4 bytes", "uint", "uint", np.uint32),
        ("8 bytes", "ulong", "ulong", np.uint64),
    )
}
BFLOAT16 = """
ushort to_bfloat16(float x) {
    uint u = as_uint(x);
    return x != x ? 0x7fc0 : (u + 0x7fff + (u >> 16 & 1)) >> 16;
}
"""


def ctype(dtype: DType) -> CType:
    return CTYPES[dtype.name]


def raw(dtype: DType) -> CType:
    """The type of the bytes of an element, for what only moves them: dtypes of one size share a program."""
    return CTYPES[f"{dtype.itemsize} byte{'s' * (dtype.itemsize > 1)}"]


def as_bits(dtype: DType) -> Number:
    """The number's bytes in a dtype."""
    return np.errstate(all="ignore")(lambda value: np.array(value).astype(dtype.numpy).view(raw(dtype).number)[()])


def as_stored(dtype: DType) -> Number:
    """The number as a dtype holds it, in the type computed in."""
    return np.errstate(all="ignore")(lambda value: ctype(dtype).number(np.array(value).astype(dtype.numpy)))


def as_computed(dtype: DType) -> Number:
    """The number in the type computed in, which for 16-bit floats has more digits."""
    return np.errstate(all="ignore")(ctype(dtype).number)
