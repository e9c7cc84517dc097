"""What kernels are made of: dtypes in OpenCL C, and walks over the elements of operands."""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from norch.backend import Operand

Attrs = Mapping[str, Any]
Operands = tuple[Operand, ...]
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

    def prelude(self, **constants: Any) -> str:
        """The start of a program that computes in this type, T."""
        defines = "".join(f"#define {name} {value}\n" for name, value in constants.items())
        return f"{BFLOAT16}typedef {self.computed} T;\n{defines}"


CTYPES = {
    name: CType(name, *rest)
    for name, *rest in (
        ("float64", "double", "double", np.float64), ("float32", "float", "float", np.float32),
        ("float16", "ushort", "float", np.float32), ("bfloat16", "ushort", "float", np.float32),
        ("int64", "long", "long", np.int64), ("int32", "int", "int", np.int32), ("int16", "short", "int", np.int32),
        ("int8", "char", "int", np.int32), ("uint8", "uchar", "int", np.int32), ("bool", "uchar", "int", np.int32),
        # These are moved and not computed with:
        ("bytes1", "uchar", "uchar", np.uint8), ("bytes2", "ushort", "ushort", np.uint16),
        ("bytes4", "uint", "uint", np.uint32), ("bytes8", "ulong", "ulong", np.uint64),
    )
}  # fmt: skip
BFLOAT16 = """
ushort to_bfloat16(float x) {
    return x != x ? 0x7fc0 : (as_uint(x) + 0x7fff + (as_uint(x) >> 16 & 1)) >> 16;
}
"""


def ctype(operand: Operand) -> CType:
    return CTYPES[operand.dtype.name]


def raw(operand: Operand) -> CType:
    """The type of the bytes of an element, for what only moves them: dtypes of one size share a program."""
    return CTYPES[f"bytes{operand.dtype.itemsize}"]


def as_bits(o: Operand) -> Number:
    """A number's bytes in the dtype."""
    return np.errstate(all="ignore")(lambda value: np.array(value).astype(o.dtype.numpy).view(raw(o).number)[()])


def as_stored(o: Operand) -> Number:
    """A number as the dtype holds it, in the type computed in."""
    return np.errstate(all="ignore")(lambda value: ctype(o).number(np.array(value).astype(o.dtype.numpy)))


def as_computed(o: Operand) -> Number:
    """A number in the type computed in, which for 16-bit floats has more digits."""
    return np.errstate(all="ignore")(ctype(o).number)


class Walk:
    """C code that finds the elements of operands, each given by its strides.

    The number of dims left after merging is baked into the code, made even, and with `bake` strides that are all 1.
    Other sizes and strides are arguments of the kernel, so that operands of many shapes share a program.
    """

    def __init__(self, names: str, shape: Sequence[int], strides: Any, index: str = "i", bake: bool = True) -> None:
        self.names, self.count, self.index = names, prod(shape), index
        dims: list[tuple[int, tuple[int, ...]]] = []
        for size, *steps in zip(shape, *strides):
            if size != 1:
                if dims and all(before == step * size for before, step in zip(dims[-1][1], steps)):
                    size *= dims.pop()[0]
                dims.append((size, tuple(steps)))
        self.dims = dims or [(1, (1,) * len(strides))]
        self.flat = bake and len(self.dims) == 1 and set(self.dims[0][1]) == {1}
        if not self.flat and len(self.dims) % 2:
            self.dims.insert(0, (1, (0,) * len(strides)))
        self.word = "uint" if self.count < 1 << 31 else "ulong"

    @property
    def parameters(self) -> str:
        """Of the kernel, each after a comma: the count, then sizes and strides where they are not baked in."""
        text = f", {self.word} {self.index}_count"
        for d in range(0 if self.flat else len(self.dims)):
            text += f", {self.word} {self.index}_size{d}"
            text += "".join(f", ulong {name}_{self.index}{d}" for name in self.names)
        return text

    @property
    def arguments(self) -> list[np.generic]:
        word = np.uint32 if self.word == "uint" else np.uint64
        values: list[np.generic] = [word(self.count)]
        for size, steps in () if self.flat else self.dims:
            values += [word(size), *map(np.uint64, steps)]
        return values

    def code(self, start: str = "{}_") -> str:
        """Declares `at_NAME`, the place of element `index` of each operand, counted from `start`."""
        text = f"ulong {', '.join(f'at_{name} = {start.format(name)}' for name in self.names)};"
        if self.flat:
            return text + "".join(f" at_{name} += {self.index};" for name in self.names)
        text += f"\n    {self.word} rest_{self.index} = {self.index};"
        for d in reversed(range(len(self.dims))):
            rest, size = f"rest_{self.index}", f"{self.index}_size{d}"
            place = f"({rest} % {size})" if d else rest
            text += "".join(f"\n    at_{n} += (ulong){place} * {n}_{self.index}{d};" for n in self.names)
            text += f"\n    {rest} /= {size};" if d else ""
        return text


def tensor(name: str, stored: str) -> str:
    """The two parameters of a tensor operand."""
    return f"__global {stored} *{name}, ulong {name}_"


def each(name: str, parameters: Sequence[str], walk: Walk, body: str) -> str:
    """A kernel with one work item for each element of a walk."""
    i = walk.index
    start = f"size_t {i} = get_global_id(0);\n    if ({i} >= {i}_count) return;\n    {walk.code()}"
    return f"__kernel void {name}({', '.join(parameters)}{walk.parameters}) {{\n    {start}\n    {body}\n}}\n"
