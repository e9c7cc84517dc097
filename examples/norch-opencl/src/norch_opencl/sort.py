"""sort: blocks are ranked in local memory, then merged two by two; it is the order that is sorted, not the values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from norch.backend import Kernel, Operand

from .devices import Memory, Runtime
from .types import PRELUDE, ctype
from .walk import Walk

SOURCE = """
#define WIDTH {width}
bool less(T a, T b, int descending) {{ // NaN is larger than all else
    return descending ? b < a || (a != a && b == b) : a < b || (b != b && a == a);
}}
__kernel void blocks(__global uint *order, ulong order_, __global const {stored} *x, ulong x_,
                     int descending, uint n, ulong x_step{parameters}) {{
    __local T s[WIDTH];
    uint l = get_local_id(0), j = get_global_id(0), first = j - l, length = min((uint)WIDTH, n - first), rank = 0;
    size_t i = get_global_id(1);
    {line}
    ulong at = x_ + at_x + j * x_step;
    T a = 0;
    if (j < n) a = {load};
    s[l] = a;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (j >= n) return;
    for (uint e = 0; e < length; e++) rank += less(s[e], a, descending) || (e < l && !less(a, s[e], descending));
    order[i * n + first + rank] = j;
}}
__kernel void merge(__global uint *to, ulong to_, __global const uint *from, ulong from_, __global const {stored} *x,
                    ulong x_, uint run, int descending, uint n, ulong x_step{parameters}) {{
    uint j = get_global_id(0);
    size_t i = get_global_id(1);
    if (j >= n) return;
    {line}
    from += i * n;
    ulong start = (ulong)(j / run) * run, pair = (ulong)(j / run / 2) * 2 * run;
    bool right = start != pair;
    ulong low = right ? pair : start + run, begin, end = min(low + run, (ulong)n), at = x_ + at_x + from[j] * x_step;
    T a = {load};
    low = begin = min(low, (ulong)n);
    while (low < end) {{ // how many of the other run come before: equals do if they are to the left
        ulong middle = (low + end) / 2;
        at = x_ + at_x + from[middle] * x_step;
        T b = {load};
        if (right ? !less(a, b, descending) : less(b, a, descending)) low = middle + 1; else end = middle;
    }}
    to[i * n + pair + (j - start) + (low - begin)] = from[j];
}}
__kernel void emit(__global {stored} *v, ulong v_, __global long *p, ulong p_, __global const {stored} *x, ulong x_,
                   __global const uint *order, ulong order_, uint n, ulong v_step, ulong p_step, ulong x_step
                   {parameters}) {{
    uint j = get_global_id(0);
    size_t i = get_global_id(1);
    if (j >= n) return;
    {line}
    uint place = order[i * n + j];
    v[v_ + at_v + j * v_step] = x[x_ + at_x + place * x_step];
    p[p_ + at_p + j * p_step] = place;
}}
"""


def sort(run: Runtime, op: str, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel | None:
    kind, dim = ctype(operands[0].dtype), attrs["dim"]
    values, indices, x = (o if o.shape else o._replace(shape=(1,), strides=(1,)) for o in operands)
    n = x.shape[dim]
    if n >= 1 << 31:
        return None
    others = [d for d in range(len(x.shape)) if d != dim]
    lines = Walk("vpx", [x.shape[d] for d in others], [[o.strides[d] for d in others] for o in (values, indices, x)])
    source = f"{PRELUDE}typedef {kind.computed} T;\n" + SOURCE.format(
        width=run.width, stored=kind.stored, parameters=lines.parameters, line=lines.code("0"), load=kind.load("x", "at")
    )
    size, step, down = np.uint32(n), np.uint64(x.strides[dim]), np.int32(attrs["descending"])
    items, group = (n, lines.count), (run.width, 1)
    constants = [down, size, step, *lines.arguments]
    blocks = run.kernel(source, "blocks", [None, None], constants, items, group)
    merge = run.kernel(source, "merge", [None] * 3 + [np.uint32], constants, items, group)
    steps = [np.uint64(o.strides[dim]) for o in (values, indices, x)]
    emit = run.kernel(source, "emit", [None] * 4, [size, *steps, *lines.arguments], items, group)

    def call(v: Memory, v_at: int, p: Memory, p_at: int, x: Memory, x_at: int) -> None:
        order = run.allocate(4 * n * lines.count, v.device.index)
        blocks(order, 0, x, x_at)
        width = run.width
        other = run.allocate(order.nbytes, v.device.index) if width < n else order
        while width < n:
            merge(other, 0, order, 0, x, x_at, width)
            order, other, width = other, order, width * 2
        emit(v, v_at, p, p_at, x, x_at, order, 0)

    return call


FAMILY = {"sort": sort}
