"""random and arange. The generator and how its words become numbers are norch.numpy_backend.philox's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from norch.backend import Kernel, Operand

from .devices import Runtime
from .types import PRELUDE, ctype
from .walk import Walk

# One work item makes the elements of one block of four words.
SOURCE = """
__kernel void norch_random(__global {stored} *o, ulong o_, ulong seed, ulong offset{parameters}) {{
    ulong block = get_global_id(0);
    uint w[4] = {{block, block >> 32, offset, offset >> 32}}, key0 = seed, key1 = seed >> 32;
    for (int round = 0; round < 10; round++) {{
        ulong p = 0xD2511F53ul * w[0], q = 0xCD9E8D57ul * w[2];
        w[0] = (uint)(q >> 32) ^ w[1] ^ key0;
        w[1] = q;
        w[2] = (uint)(p >> 32) ^ w[3] ^ key1;
        w[3] = p;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }}
    for (int e = 0; e < {each}; e++) {{
        {word} i = block * {each} + e;
        if (i >= i_count) return;
        {code}
        {value}
        {store}
    }}
}}
__kernel void norch_arange(__global {stored} *o, ulong o_, {number} start, {number} step{parameters}) {{
    {every}
    {code}
    {number} v = start + ({number})i * step;
    {store}
}}
"""
UNIFORM64 = "((double)(w[{0}] >> 5) * 67108864.0 + (w[{0} + 1] >> 6)) * 0x1p-53"
NORMAL = "R u = {0}, t = 2 * (R)M_PI * {1}, r = sqrt(-2 * log1p(-u)); {computed} v = e % 2 ? r * sin(t) : r * cos(t);"
DIGITS = {"float32": 24, "float16": 11, "bfloat16": 8}


def _value(kind: str, name: str, computed: str) -> tuple[int, str]:
    """How many elements a block gives, and the C code of element e."""
    if kind == "bits":
        return 4, "long v = w[e];"
    if kind == "bits64":
        return 2, "long v = ((ulong)w[2 * e] << 32 | w[2 * e + 1]) >> 1;"
    if name == "float64":
        if kind == "uniform":
            return 2, f"double v = {UNIFORM64.format('2 * e')};"
        return 2, NORMAL.format(UNIFORM64.format(0), UNIFORM64.format(2), computed=computed)
    if kind == "uniform":
        return 4, f"float v = (w[e] >> {32 - DIGITS[name]}) * 0x1p-{DIGITS[name]}f;"
    u, v = (f"(w[e / 2 * 2 + {i}] >> 8) * (R)0x1p-24f" for i in (0, 1))
    return 4, NORMAL.format(u, v, computed=computed)


def _program(run: Runtime, out: Operand, each: int, value: str, walk: Walk) -> str:
    kind = ctype(out.dtype)
    real = "double" if run.has_double else "float"
    return f"{PRELUDE}typedef {real} R;\n" + SOURCE.format(
        stored=kind.stored, parameters=walk.parameters, each=each, word=walk.word, code=walk.code(), value=value,
        store=kind.store("o", "at_o", "v"), number="R" if kind.is_floating else "long", every=walk.every,
    )  # fmt: skip


def random(run: Runtime, op: str, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel | None:
    out, kind = operands[0], ctype(operands[0].dtype)
    if kind.is_floating != (attrs["kind"] in ("uniform", "normal")):
        return None
    walk = Walk("o", out.shape, [out.strides])
    each, value = _value(attrs["kind"], kind.name, kind.computed)
    source = _program(run, out, each, value, walk)
    blocks = -(-walk.count // each)
    return run.kernel(source, "norch_random", [None, np.uint64, np.uint64], walk.arguments, (blocks,))


def arange(run: Runtime, op: str, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel:
    out = operands[0]
    walk = Walk("o", out.shape, [out.strides])
    number: Any = np.int64
    if ctype(out.dtype).is_floating:
        number = np.float64 if run.has_double else np.float32
    zero = f"{ctype(out.dtype).computed} v = 0;"
    source = _program(run, out, 4, zero, walk)
    return run.kernel(source, "norch_arange", [None, number, number], walk.arguments, (walk.count,))


FAMILY = {"arange": arange, "random": random}
