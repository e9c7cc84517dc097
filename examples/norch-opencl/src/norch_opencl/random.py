"""random. The generator, and how its words become numbers, are defined by norch.numpy_backend.philox."""

import numpy as np

from norch.backend import Kernel

from .devices import Runtime
from .source import Attrs, Operands, Walk, ctype

# A work item makes the elements of a block of four words.
SOURCE = """
__kernel void norch_random(__global {stored} *o, ulong o_, ulong seed, ulong offset{parameters}) {{
    ulong block = get_global_id(0);
    uint w[4] = {{block, block >> 32, offset, offset >> 32}}, key0 = seed, key1 = seed >> 32;
    for (int round = 0; round < 10; round++) {{
        ulong p = 0xD2511F53ul * w[0], q = 0xCD9E8D57ul * w[2];
        w[0] = (uint)(q >> 32) ^ w[1] ^ key0, w[1] = q;
        w[2] = (uint)(p >> 32) ^ w[3] ^ key1, w[3] = p;
        key0 += 0x9E3779B9u, key1 += 0xBB67AE85u;
    }}
    for (int e = 0; e < {each}; e++) {{
        {word} i = block * {each} + e;
        if (i >= i_count) return;
        {code}
        {value}
        {store}
    }}
}}
"""
UNIFORM64 = "((double)(w[{0}] >> 5) * 67108864.0 + (w[{0} + 1] >> 6)) * 0x1p-53"
NORMAL = "{0} u = {1}, t = 2 * ({0})M_PI * {2}, r = sqrt(-2 * log1p(-u)), v = e % 2 ? r * sin(t) : r * cos(t);"
DIGITS = {"float32": 24, "float16": 11, "bfloat16": 8}


def _value(kind: str, dtype: str, real: str) -> tuple[int, str]:
    """How many elements a block gives, and the C code of element e."""
    if kind == "bits":
        return 4, "long v = w[e];"
    if kind == "bits64":
        return 2, "long v = ((ulong)w[2 * e] << 32 | w[2 * e + 1]) >> 1;"
    if dtype == "float64":
        pair = [UNIFORM64.format(n) for n in (0, 2)]
        return 2, f"double v = {UNIFORM64.format('2 * e')};" if kind == "uniform" else NORMAL.format(real, *pair)
    if kind == "uniform":
        return 4, f"float v = (w[e] >> {32 - DIGITS[dtype]}) * 0x1p-{DIGITS[dtype]}f;"
    return 4, NORMAL.format(real, *[f"(w[e / 2 * 2 + {n}] >> 8) * ({real})0x1p-24f" for n in (0, 1)])


def random(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel:
    out, kind = operands[0], ctype(operands[0])
    walk = Walk("o", out.shape, [out.strides])
    each, value = _value(attrs["kind"], kind.name, run.real.computed)
    source = kind.prelude() + SOURCE.format(
        stored=kind.stored, parameters=walk.parameters, each=each, word=walk.word, code=walk.code(), value=value,
        store=kind.store("o", "at_o", "v"),
    )  # fmt: skip
    return run.kernel(source, "norch_random", [None] + 2 * [np.uint64], walk.arguments, (-(-walk.count // each),))
