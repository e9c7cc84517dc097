"""Walking the elements of operands of one shape: dims that need no index of their own are merged."""

from collections.abc import Sequence
from math import prod

import numpy as np


class Walk:
    """C code that finds the elements of operands, each given by its strides.

    The number of dims left after merging is baked into the code, and that all strides are 0 or 1 if they are. Other
    sizes and strides are arguments of the kernel, so that operands of many shapes share a program.
    """

    def __init__(self, names: str, shape: Sequence[int], strides: Sequence[Sequence[int]], index: str = "i") -> None:
        self.names, self.count, self.index = names, prod(shape), index
        dims: list[tuple[int, tuple[int, ...]]] = []
        for size, *steps in zip(shape, *strides):
            if size != 1:
                if dims and all(before == step * size for before, step in zip(dims[-1][1], steps)):
                    size *= dims.pop()[0]
                dims.append((size, tuple(steps)))
        self.dims = dims or [(1, (1,) * len(strides))]
        self.flat = len(self.dims) == 1 and max(self.dims[0][1]) <= 1
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
            return text + "".join(f" at_{n} += {self.index};" for n, step in zip(self.names, self.dims[0][1]) if step)
        rest = f"{self.index}_rest"
        text += f"\n    {self.word} {rest} = {self.index};"
        for d in reversed(range(len(self.dims))):
            place, size = (f"({rest} % {self.index}_size{d})", f"{self.index}_size{d}") if d else (rest, "1")
            text += "".join(f"\n    at_{n} += (ulong){place} * {n}_{self.index}{d};" for n in self.names)
            text += f"\n    {rest} /= {size};" * (d > 0)
        return text


def tensor(name: str, stored: str) -> str:
    """The two parameters of a tensor operand."""
    return f"__global {stored} *{name}, ulong {name}_"


def each(name: str, parameters: Sequence[str], walk: Walk, body: str) -> str:
    """A kernel with one work item for each element of a walk."""
    i = walk.index
    start = f"size_t {i} = get_global_id(0);\n    if ({i} >= {i}_count) return;\n    {walk.code()}"
    return f"__kernel void {name}({', '.join(parameters)}{walk.parameters}) {{\n    {start}\n    {body}\n}}\n"
