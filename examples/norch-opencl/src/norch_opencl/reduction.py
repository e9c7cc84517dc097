"""Reductions and cumsum: trees and scans in local memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from norch.backend import Kernel, Operand

from .devices import Runtime
from .types import PRELUDE, CType, ctype
from .walk import Walk

LEAST = {"double": "-INFINITY", "float": "-INFINITY", "long": "LONG_MIN", "int": "INT_MIN"}
MOST = {"double": "INFINITY", "float": "INFINITY", "long": "LONG_MAX", "int": "INT_MAX"}
# op: the neutral value, and what the tree makes of two values a and b. A NaN wins.
FOLDS = {
    "sum": ("0", "a + b"), "prod": ("1", "a * b"), "any": ("0", "a | b"), "all": ("1", "a & b"),
    "amax": (LEAST, "a != a || a > b ? a : b"), "amin": (MOST, "a != a || a < b ? a : b"),
}  # fmt: skip
BETTER = {"argmax": ">", "argmin": "<"}

# A team of work items reduces one row; `team` is a power of two, and 1 for rows that are short.
FOLD = """
__kernel void norch_{op}(__global {out} *o, ulong o_, __global const {stored} *x, ulong x_, uint team{parameters}) {{
    __local T s[WIDTH];
    uint l = get_local_id(0), t = l % team;
    size_t i = get_group_id(0) * (WIDTH / team) + l / team;
    T a = {neutral}, b;
    {outer}
    if (i < i_count) for (size_t j = t; j < j_count; j += team) {{
        {inner}
        b = {load};
        a = {rule};
    }}
    s[l] = a;
    for (uint h = team / 2; h > 0; h /= 2) {{
        barrier(CLK_LOCAL_MEM_FENCE);
        if (t < h) {{
            a = s[l];
            b = s[l + h];
            s[l] = {rule};
        }}
    }}
    if (t == 0 && i < i_count) {{ a = s[l]; {store} }}
}}
"""
# The same with the place of the best value: -1 for none yet. Of equals the first wins, and so does the first NaN.
ARG = """
__kernel void norch_{op}(__global long *o, ulong o_, __global const {stored} *x, ulong x_, uint team{parameters}) {{
    __local T s[WIDTH];
    __local long places[WIDTH];
    uint l = get_local_id(0), t = l % team;
    size_t i = get_group_id(0) * (WIDTH / team) + l / team;
    T a = 0, b;
    long p = -1;
    {outer}
    if (i < i_count) for (size_t j = t; j < j_count; j += team) {{
        {inner}
        b = {load};
        if (p < 0 || b {sign} a || (b != b && a == a)) {{ a = b; p = j; }}
    }}
    s[l] = a;
    places[l] = p;
    for (uint h = team / 2; h > 0; h /= 2) {{
        barrier(CLK_LOCAL_MEM_FENCE);
        if (t < h) {{
            a = s[l];
            b = s[l + h];
            long q = places[l + h];
            p = places[l];
            bool wins = b {sign} a || (b != b && a == a), loses = a {sign} b || (a != a && b == b);
            if (q >= 0 && (p < 0 || wins || (!loses && q < p))) {{ s[l] = b; places[l] = q; }}
        }}
    }}
    if (t == 0 && i < i_count) o[at_o] = places[l];
}}
"""
SCAN = """
__kernel void norch_cumsum(__global {stored} *o, ulong o_, __global const {stored} *x, ulong x_,
                           ulong n, ulong o_step, ulong x_step{parameters}) {{
    __local T s[WIDTH];
    uint l = get_local_id(0);
    size_t i = get_group_id(1);
    T carry = 0;
    {outer}
    for (ulong start = 0; start < n; start += WIDTH) {{
        ulong j = start + l;
        T a = 0;
        if (j < n) {{ ulong at = at_x + j * x_step; a = {load}; }}
        s[l] = a;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint h = 1; h < WIDTH; h *= 2) {{
            if (l >= h) a += s[l - h];
            barrier(CLK_LOCAL_MEM_FENCE);
            s[l] = a;
            barrier(CLK_LOCAL_MEM_FENCE);
        }}
        a += carry;
        if (j < n) {{ ulong at = at_o + j * o_step; {store} }}
        carry += s[WIDTH - 1];
        barrier(CLK_LOCAL_MEM_FENCE);
    }}
}}
"""


def _header(run: Runtime, kind: CType) -> str:
    return f"{PRELUDE}typedef {kind.computed} T;\n#define WIDTH {run.width}\n"


def fold(run: Runtime, op: str, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel:
    out, x = operands
    kind, dims = ctype(x.dtype), set(attrs["dims"])
    kept = [d for d in range(len(x.shape)) if d not in dims]
    outer = Walk("ox", [x.shape[d] for d in kept], [[o.strides[d] for d in kept] for o in operands])
    reduced = sorted(dims)
    inner = Walk("y", [x.shape[d] for d in reduced], [[x.strides[d] for d in reduced]], "j")
    source = _header(run, kind)
    for name in (*FOLDS, *BETTER):
        if name in BETTER:
            template, rule, neutral = ARG, "", ""
        else:
            template, (neutral, rule) = FOLD, FOLDS[name]
        if name in ("any", "all") and kind.is_floating:
            continue
        source += template.format(
            op=name, out=kind.stored, stored=kind.stored, parameters=outer.parameters + inner.parameters,
            outer=outer.code(), inner=inner.code("at_x"), load=kind.load("x", "at_y"), rule=rule, sign=BETTER.get(name),
            neutral=neutral if isinstance(neutral, str) else neutral[kind.computed],
            store=kind.store("o", "at_o", "a"),
        )  # fmt: skip
    team = 1
    while team < run.width and team * 8 <= inner.count:
        team *= 2
    constants = [np.uint32(team), *outer.arguments, *inner.arguments]
    return run.kernel(source, f"norch_{op}", [None, None], constants, (outer.count * team,), (run.width,))


def cumsum(run: Runtime, op: str, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel:
    dim, kind = attrs["dim"], ctype(operands[0].dtype)
    shape = operands[0].shape or (1,)
    steps = [o.strides or (1,) for o in operands]
    lines = Walk("ox", _without(shape, dim), [_without(s, dim) for s in steps])
    source = _header(run, kind) + SCAN.format(
        stored=kind.stored, parameters=lines.parameters, outer=lines.code(), load=kind.load("x", "at"),
        store=kind.store("o", "at", "a"),
    )  # fmt: skip
    constants = [np.uint64(n) for n in (shape[dim], steps[0][dim], steps[1][dim])] + lines.arguments
    items = (run.width if shape[dim] else 0, lines.count)
    return run.kernel(source, "norch_cumsum", [None, None], constants, items, (run.width, 1))


def _without(values: tuple[int, ...], dim: int) -> tuple[int, ...]:
    return (*values[:dim], *values[dim + 1 :])


FAMILY = {**dict.fromkeys((*FOLDS, *BETTER), fold), "cumsum": cumsum}
