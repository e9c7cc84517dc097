"""Walking the elements of operands of one shape: dims that need no index of their own are merged."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np


class Walk:
    """C code that finds the elements of operands, each given by its strides.

    The number of dims left after merging is baked into the code, and that all strides are 0 or 1 if they are; sizes and
    strides are arguments, so that operands of other sizes share the program.
    """

    def __init__(self, names: str, shape: Sequence[int], strides: Sequence[Sequence[int]], index: str = "i") -> None:
        self.names, self.count, self.index = names, prod(shape), index
        dims: list[tuple[int, tuple[int, ...]]] = []
        for size, *steps in zip(shape, *strides):
            if size == 1:
                continue
            if dims and all(before == step * size for before, step in zip(dims[-1][1], steps)):
                size *= dims.pop()[0]
            dims.append((size, tuple(steps)))
        self.dims = dims or [(1, (1,) * len(strides))]
        self.flat = len(self.dims) == 1 and max(self.dims[0][1], default=1) <= 1
        self.word = "uint" if self.count < 1 << 31 else "ulong"

    @property
    def parameters(self) -> str:
        """Of the kernel, each with a comma before it: the count, then sizes and strides where they are not baked in."""
        text = f", {self.word} {self.index}_count"
        if not self.flat:
            for d in range(len(self.dims)):
                text += f", {self.word} {self.index}_size{d}" if d else ""
                text += "".join(f", ulong {name}_{self.index}{d}" for name in self.names)
        return text

    @property
    def arguments(self) -> list[np.generic]:
        word = np.uint32 if self.word == "uint" else np.uint64
        values: list[np.generic] = [word(self.count)]
        if not self.flat:
            for d, (size, steps) in enumerate(self.dims):
                values += [word(size)] if d else []
                values += [np.uint64(step) for step in steps]
        return values

    def code(self, start: str = "{name}_") -> str:
        """Declares `at_NAME`, the place of element `index` of each operand, counted from `start`."""
        if self.flat:
            steps = self.dims[0][1]
            found = [f"at_{n} = {start.format(name=n)}{f' + {self.index}' * step}" for n, step in zip(self.names, steps)]
            return f"ulong {', '.join(found)};"
        lines = [f"ulong {', '.join(f'at_{n} = {start.format(name=n)}' for n in self.names)};"]
        lines.append(f"{self.word} {self.index}_rest = {self.index};")
        for d in reversed(range(len(self.dims))):
            place = f"({self.index}_rest % {self.index}_size{d})" if d else f"{self.index}_rest"
            lines += [f"at_{n} += (ulong){place} * {n}_{self.index}{d};" for n in self.names]
            lines += [f"{self.index}_rest /= {self.index}_size{d};"] if d else []
        return "\n    ".join(lines)

    @property
    def every(self) -> str:
        """The start of a kernel with one work item an element: its index, and no more than there are."""
        return f"size_t {self.index} = get_global_id(0);\n    if ({self.index} >= {self.index}_count) return;"
