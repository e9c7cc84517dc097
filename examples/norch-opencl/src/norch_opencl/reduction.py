"""Reductions and cumsum: trees and scans in local memory."""

import numpy as np

from norch.backend import Kernel, Operand

from .devices import Runtime
from .source import Attrs, Operands, Walk, ctype

LARGEST = {"double": "INFINITY", "float": "INFINITY", "long": "LONG_MAX", "int": "INT_MAX"}
# op: the neutral value, and what becomes of a and b, where b comes after a if a work item is alone. A NaN wins.
RULES = {
    "sum": ("0", "a + b"), "prod": ("1", "a * b"), "any": ("0", "(T)(a || b)"), "all": ("1", "(T)(a && b)"),
    "amax": ("-LARGEST - 1", "a != a || a > b ? a : b"), "amin": ("LARGEST", "a != a || a < b ? a : b"),
    "argmax": ("{0, -1}", "chosen(a.v > b.v, b.v > a.v, a, b)"),
    "argmin": ("{0, -1}", "chosen(a.v < b.v, b.v < a.v, a, b)"),
}  # fmt: skip
ARG = """
typedef struct { T v; long p; } Placed; // a value and its place, -1 for none
Placed chosen(bool first, bool second, Placed a, Placed b) { // of equals, and of NaNs, that of the lower place
    bool nan_a = a.v != a.v, nan_b = b.v != b.v;
    if (a.p < 0 || b.p < 0) return a.p < 0 ? b : a;
    if (nan_a != nan_b) return nan_a ? a : b;
    return first ? a : second ? b : a.p < b.p ? a : b;
}
"""
# A team of work items reduces one row; `team` is a power of two, and 1 for rows that are short.
FOLD = """
__kernel void norch_{op}(__global {to} *o, ulong o_, __global const {stored} *x, ulong x_, uint team{parameters}) {{
    __local {state} s[WIDTH];
    uint l = get_local_id(0), t = l % team;
    size_t i = get_group_id(0) * (WIDTH / team) + l / team;
    {state} a = {neutral}, b;
    {outer}
    for (size_t j = t; i < i_count && j < j_count; j += team) {{
        {inner}
        b = {item};
        a = {rule};
    }}
    s[l] = a;
    for (uint h = team / 2; h > 0; h /= 2) {{
        barrier(CLK_LOCAL_MEM_FENCE);
        if (t < h) {{ a = s[l]; b = s[l + h]; s[l] = a = {rule}; }}
    }}
    if (t == 0 && i < i_count) {{ {store} }}
}}
"""
SCAN = """
__kernel void norch_cumsum(__global {stored} *o, ulong o_, __global const {stored} *x, ulong x_,
                           ulong n, ulong o_step, ulong x_step{parameters}) {{
    __local T s[WIDTH];
    uint l = get_local_id(0);
    size_t i = get_group_id(1);
    T carry = 0;
    {lines}
    for (ulong start = 0; start < n; start += WIDTH) {{
        ulong j = start + l, at = at_x + j * x_step;
        T a = 0;
        if (j < n) a = {load};
        for (uint h = 1; h <= WIDTH; h *= 2) {{
            s[l] = a;
            barrier(CLK_LOCAL_MEM_FENCE);
            if (l >= h) a += s[l - h];
            barrier(CLK_LOCAL_MEM_FENCE);
        }}
        a += carry;
        at = at_o + j * o_step;
        if (j < n) {{ {store} }}
        carry += s[WIDTH - 1];
        barrier(CLK_LOCAL_MEM_FENCE);
    }}
}}
"""


def fold(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel:
    x, kind = operands[1], ctype(operands[1])
    dims = [d for d in range(len(x.shape)) if d in attrs["dims"]]
    kept = [d for d in range(len(x.shape)) if d not in attrs["dims"]]
    outer = Walk("ox", [x.shape[d] for d in kept], [[o.strides[d] for d in kept] for o in operands], bake=False)
    inner = Walk("y", [x.shape[d] for d in dims], [[x.strides[d] for d in dims]], "j", False)
    source, load = kind.prelude(WIDTH=run.width, LARGEST=LARGEST[kind.computed]) + ARG, kind.load("x", "at_y")
    for name, (neutral, rule) in RULES.items():
        is_arg = name.startswith("arg")
        source += FOLD.format(
            op=name, to="long" if is_arg else kind.stored, stored=kind.stored, state="Placed" if is_arg else "T",
            parameters=outer.parameters + inner.parameters, outer=outer.code(), inner=inner.code("at_x"), rule=rule,
            neutral=neutral, item=f"(Placed){{{load}, j}}" if is_arg else load,
            store="o[at_o] = a.p;" if is_arg else kind.store("o", "at_o", "a"),
        )  # fmt: skip
    team = 1 << max(1, min(run.width, inner.count // 4)).bit_length() - 1
    constants = [np.uint32(team), *outer.arguments, *inner.arguments]
    return run.kernel(source, f"norch_{op}", [None, None], constants, (outer.count * team,), (run.width,))


def cumsum(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel:
    (out, x), dim = (with_dims(o) for o in operands), attrs["dim"]
    lines, kind = across("ox", dim, out, x), ctype(x)
    source = kind.prelude(WIDTH=run.width) + SCAN.format(
        stored=kind.stored, parameters=lines.parameters, lines=lines.code(), load=kind.load("x", "at"),
        store=kind.store("o", "at", "a"),
    )  # fmt: skip
    constants = [np.uint64(n) for n in (x.shape[dim], out.strides[dim], x.strides[dim])] + lines.arguments
    items = (run.width if x.shape[dim] else 0, lines.count)
    return run.kernel(source, "norch_cumsum", [None, None], constants, items, (run.width, 1))


def with_dims(operand: Operand) -> Operand:
    """A 0-d operand as one of shape (1,), so that dim 0 exists."""
    return operand if operand.shape else operand._replace(shape=(1,), strides=(1,))


def across(names: str, dim: int, *operands: Operand) -> Walk:
    """Over the starts of the lines that lie along a dim, as many as the last operand has."""
    shape, *strides = [(*n[:dim], *n[dim + 1 :]) for n in (operands[-1].shape, *(o.strides for o in operands))]
    return Walk(names, shape, strides, bake=False)
