"""What kernels are made of: bindings with their numbers, and walks over the elements of operands."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from .dtypes import Kind, Number

WIDTH = 256
"""Invocations of a workgroup where a kernel does not say otherwise."""
PUT = """fn put_{0}(i: u32, v: {1}) {{
    let at = P.{0}_ + i; let s = at % {3}u * {4}u; mask_{0}(at / {3}u, {5}u << s, encode_{2}(v) << s);
}}
fn mask_{0}(at: u32, mask: u32, word: u32) {{ // writes the bits of a word that mask has
    if (mask == 0xffffffffu) {{ atomicStore(&{0}[at], word); }}
    else if (mask != 0u) {{ atomicAnd(&{0}[at], ~mask); atomicOr(&{0}[at], word); }}
}}
"""


class Tensor(NamedTuple):
    """An argument that is a buffer and an offset, `P.NAME_`, in elements of the dtype. `get_NAME(i)` and, if it is
    `written`, `put_NAME(i, value)` count from there. With `element`, a WGSL type, it is an array of those instead."""

    name: str
    kind: Kind
    written: bool = False
    element: str = ""

    def declare(self, place: int) -> str:
        name, (sort, computed, per, _) = self.name, self.kind
        element = self.element or (computed if per == 1 else "atomic<u32>" if self.written else "u32")
        text = f"@group(0) @binding({place}) var<storage, read_write> {name}: array<{element}>;\n"
        if self.element:
            return text
        load, bits = f"{name}[P.{name}_ + i]", 32 // per
        if per > 1:
            word = f"{name}[(P.{name}_ + i) / {per}u]"
            word = f"atomicLoad(&{word})" if self.written else word
            load = f"decode_{sort}(extractBits({word}, (P.{name}_ + i) % {per}u * {bits}u, {bits}u))"
        text += f"fn get_{name}(i: u32) -> {computed} {{ return {load}; }}\n"
        if not self.written:
            return text
        if per > 1:
            return text + PUT.format(name, computed, sort, per, bits, (1 << bits) - 1)
        return text + f"fn put_{name}(i: u32, v: {computed}) {{ {load} = v; }}\n"


class Scalar(NamedTuple):
    """An argument of a kernel that is a number: `P.NAME` of the kind's type, after `convert`."""

    name: str
    kind: Kind
    convert: Number


Arguments = Sequence[Tensor | Scalar]
Numbers = Mapping[str, int]


def header(arguments: Arguments, numbers: Sequence[str]) -> str:
    """What stands before a kernel: its arguments with their functions, and `P`, its numbers."""
    tensors, fields = [a for a in arguments if isinstance(a, Tensor)], []
    for a in arguments:
        if isinstance(a, Tensor):
            fields.append(f"{a.name}_: u32")
        else:  # what has 8 bytes in halves, lest the struct be padded
            wide = a.kind.code in "qQ"
            fields.append(f"{a.name}_0: u32, {a.name}_1: u32" if wide else f"{a.name}: {a.kind.computed}")
    text = f"struct Numbers {{ {', '.join(fields + [f'{name}: u32' for name in numbers])} }}\n"
    text += "".join(tensor.declare(i) for i, tensor in enumerate(tensors))
    return text + f"@group(0) @binding({len(tensors)}) var<uniform> P: Numbers;\n"


def number(scalar: Scalar) -> str:
    """The WGSL that reads a scalar."""
    name = f"P.{scalar.name}"
    if scalar.kind.code == "Q":
        return f"vec2<u32>({name}_0, {name}_1)"
    return f"i64(u64({name}_1) << 32u | u64({name}_0))" if scalar.kind.code == "q" else name


def main(body: str, width: int = WIDTH) -> str:
    """An entry point: `group` counts workgroups, `l` invocations in theirs, `g` all of them."""
    return f"""@compute @workgroup_size({width}) fn main(@builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>, @builtin(local_invocation_index) l: u32) {{
    let group = workgroup.x + workgroup.y * workgroups.x; let g = group * {width}u + l;
    {body}
}}
"""


class Walk:
    """WGSL that finds the elements of operands, given by strides. The number of dims left after merging is baked into
    the code, and with `bake` strides that are all 0 or 1; else they are numbers, so programs are shared."""

    def __init__(
        self, names: Sequence[str], shape: Sequence[int], strides: Any, index: str = "i", bake: bool = True
    ) -> None:
        self.names, self.count, self.index = names, prod(shape), index
        dims: list[tuple[int, tuple[int, ...]]] = []
        for size, *steps in zip(shape, *strides):
            if size != 1:
                if dims and all(before == step * size for before, step in zip(dims[-1][1], steps)):
                    size *= dims.pop()[0]
                dims.append((size, tuple(steps)))
        self.dims = dims or [(1, (1,) * len(strides))]
        self.flat = bake and len(self.dims) == 1 and max(self.dims[0][1], default=0) <= 1
        self.numbers = {f"{index}_count": self.count}
        for d, (size, each) in enumerate(() if self.flat else self.dims):
            self.numbers[f"{index}_size{d}"] = size
            self.numbers |= {f"{name}_{index}{d}": step for name, step in zip(names, each)}

    def code(self, start: str = "0u") -> str:
        """Declares `at_NAME`, the place of element `index` of each operand, from `start` on."""
        i = self.index
        if self.flat:
            steps = zip(self.names, self.dims[0][1])
            return " ".join(f"let at_{n} = {start.format(n)}{f' + {i}' * step};" for n, step in steps)
        text = " ".join(f"var at_{n} = {start.format(n)};" for n in self.names) + f" var rest_{i} = {i};\n"
        for d in reversed(range(len(self.dims))):
            size, place = f"P.{i}_size{d}", f"rest_{i} % P.{i}_size{d}" if d else f"rest_{i}"
            text += "".join(f" at_{n} += ({place}) * P.{n}_{i}{d};" for n in self.names)
            text += f" rest_{i} /= {size};\n" if d else "\n"
        return text
