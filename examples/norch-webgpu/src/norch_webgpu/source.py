"""What kernels are made of: bindings with their numbers, and walks over the elements of operands."""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from .dtypes import Kind, Number

WIDTH = 64
"""Invocations of a workgroup where a kernel does not say otherwise."""


class Tensor(NamedTuple):
    """An argument of a kernel that is a buffer and an offset. Its elements are `get_NAME(i)`, and if it is `written`
    `put_NAME(i, value)`; `i` is a u32 that counts from the tensor's first element. With `element`, a WGSL type, it is
    an array of those without functions. `P.NAME_` is the offset, in elements of the dtype."""

    name: str
    kind: Kind
    written: bool = False
    element: str = ""

    def declare(self, place: int) -> str:
        name, (kind, computed, per, _) = self.name, self.kind
        if self.element:
            return f"@group(0) @binding({place}) var<storage, read_write> {name}: array<{self.element}>;\n"
        word = computed if per == 1 else "atomic<u32>" if self.written else "u32"
        text = f"@group(0) @binding({place}) var<storage, read_write> {name}: array<{word}>;\n"
        if per == 1:
            text += f"fn get_{name}(i: u32) -> {computed} {{ return {name}[P.{name}_ + i]; }}\n"
            if self.written:
                text += f"fn put_{name}(i: u32, v: {computed}) {{ {name}[P.{name}_ + i] = v; }}\n"
            return text
        bits, step = 32 // per, per.bit_length() - 1
        load = f"atomicLoad(&{name}[at >> {step}u])" if self.written else f"{name}[at >> {step}u]"
        text += f"fn get_{name}(i: u32) -> {computed} {{ let at = P.{name}_ + i; "
        text += f"return decode_{kind}(extractBits({load}, (at & {per - 1}u) * {bits}u, {bits}u)); }}\n"
        if self.written:
            mask = (1 << bits) - 1
            text += f"""fn put_{name}(i: u32, v: {computed}) {{
    let at = P.{name}_ + i; let s = (at & {per - 1}u) * {bits}u;
    mask_{name}(at >> {step}u, {mask}u << s, encode_{kind}(v) << s);
}}
fn mask_{name}(at: u32, mask: u32, word: u32) {{ // writes the bits of a word that mask has
    if (mask == 0xffffffffu) {{ atomicStore(&{name}[at], word); return; }}
    if (mask != 0u) {{ atomicAnd(&{name}[at], ~mask); atomicOr(&{name}[at], word); }}
}}
"""
        return text


class Scalar(NamedTuple):
    """An argument of a kernel that is a number: `P.NAME` of the kind's type, after `convert`."""

    name: str
    kind: Kind
    convert: Number


def header(arguments: Sequence[Tensor | Scalar], numbers: Sequence[str]) -> str:
    """What stands before a kernel: the types and functions of its arguments, and `P`, its numbers."""
    tensors, fields = [a for a in arguments if isinstance(a, Tensor)], []
    for a in arguments:
        if isinstance(a, Tensor):
            fields.append(f"{a.name}_: u32")
        elif a.kind.code in "qQ":  # halves, lest the struct be padded
            fields.append(f"{a.name}_0: u32, {a.name}_1: u32")
        else:
            fields.append(f"{a.name}: {a.kind.computed}")
    fields += [f"{name}: u32" for name in numbers]
    text = f"struct Numbers {{ {', '.join(fields)} }}\n"
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
    """WGSL that finds the elements of operands, each given by its strides.

    The number of dims left after merging is baked into the code, and with `bake` strides that are all 0 or 1. Other
    sizes and strides are numbers of the kernel, so that operands of many shapes share a program.
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
        self.flat = bake and len(self.dims) == 1 and max(self.dims[0][1], default=0) <= 1

    @property
    def numbers(self) -> dict[str, int]:
        """The numbers that `code` reads from P, and the count."""
        found = {f"{self.index}_count": self.count}
        for d, (size, steps) in enumerate(() if self.flat else self.dims):
            found[f"{self.index}_size{d}"] = size
            found |= {f"{name}_{self.index}{d}": step for name, step in zip(self.names, steps)}
        return found

    def code(self, start: str = "0u") -> str:
        """Declares `at_NAME`, the place of element `index` of each operand, from `start` on."""
        i = self.index
        if self.flat:
            steps = zip(self.names, self.dims[0][1])
            return " ".join(f"let at_{n} = {start.format(n)}{f' + {i}' * step};" for n, step in steps)
        text = " ".join(f"var at_{n} = {start.format(n)};" for n in self.names) + f" var rest_{i} = {i};\n"
        for d in reversed(range(len(self.dims))):
            place, size = f"rest_{i}", f"P.{i}_size{d}"
            if d:
                text += f"let next_{i}{d} = rest_{i} / {size}; let place_{i}{d} = rest_{i} - next_{i}{d} * {size};"
                place = f"place_{i}{d}"
            text += "".join(f" at_{n} += {place} * P.{n}_{i}{d};" for n in self.names)
            text += f" rest_{i} = next_{i}{d};\n" if d else "\n"
        return text
