"""sort: runs of one element are merged two by two; it is the order that is sorted, not the values."""

import numpy as np

from norch.backend import Kernel

from .devices import Memory, Runtime
from .reduction import across, with_dims
from .source import Attrs, Operands, ctype

SOURCE = """
#define FROM(j) (width == 1 ? (j) : from[j]) // at first the order is that of the elements
bool less(T a, T b, int descending) {{ // NaN is larger than all else
    return descending ? b < a || (a != a && b == b) : a < b || (b != b && a == a);
}}
__kernel void merge(__global uint *to, ulong to_, __global const uint *from, ulong from_, __global const {stored} *x,
                    ulong x_, uint width, int descending, uint n, ulong x_step{parameters}) {{
    uint j = get_global_id(0);
    size_t i = get_global_id(1);
    if (j >= n) return;
    {line}
    from += i * n;
    ulong start = (ulong)(j / width) * width, pair = (ulong)(j / width / 2) * 2 * width;
    bool right = start != pair; // which of the two runs this element is in
    ulong other = min(right ? pair : start + width, (ulong)n), low = other, end = min(other + width, (ulong)n);
    ulong at = x_ + at_x + FROM(j) * x_step;
    T a = {load};
    while (low < end) {{ // how many of the other run come before: equals do if they are to the left
        ulong middle = (low + end) / 2;
        at = x_ + at_x + FROM(middle) * x_step;
        T b = {load};
        if (right ? !less(a, b, descending) : less(b, a, descending)) low = middle + 1; else end = middle;
    }}
    to[i * n + pair + (j - start) + (low - other)] = FROM(j);
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


def sort(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel:
    values, indices, x = (with_dims(o) for o in operands)
    dim, kind = attrs["dim"], ctype(x)
    lines = across("vpx", dim, values, indices, x)
    source = kind.prelude() + SOURCE.format(
        stored=kind.stored, parameters=lines.parameters, line=lines.code("0"), load=kind.load("x", "at")
    )
    n, steps = x.shape[dim], [np.uint64(o.strides[dim]) for o in (values, indices, x)]
    constants = [np.int32(attrs["descending"]), np.uint32(n), steps[2], *lines.arguments]
    merge = run.kernel(source, "merge", [None, None, None, np.uint32], constants, (n, lines.count))
    emit = run.kernel(source, "emit", [None] * 4, [np.uint32(n), *steps, *lines.arguments], (n, lines.count))

    def call(v: Memory, v_at: int, p: Memory, p_at: int, x: Memory, x_at: int) -> None:
        order, other = (run.allocate(4 * n * lines.count, v.device.index) for _ in range(2))
        width = 1
        while width < n or width == 1:  # the first one writes the order, of a single element too
            merge(other, 0, order, 0, x, x_at, width)
            order, other, width = other, order, width * 2
        emit(v, v_at, p, p_at, x, x_at, order, 0)

    return call
