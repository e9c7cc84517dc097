"""matmul: a work group computes a square of the output, from squares of its operands in local memory."""

import numpy as np

from norch.backend import Kernel

from .devices import Runtime
from .source import Attrs, Operands, Walk, ctype

SIDE, EACH = 8, 4
"""A group has SIDE x SIDE work items, and each computes EACH x EACH elements."""

SOURCE = """
__kernel void norch_matmul(__global {stored} *o, ulong o_, __global const {stored} *a, ulong a_,
                           __global const {stored} *b, ulong b_, uint m, uint n, uint k, ulong o_row, ulong o_column,
                           ulong a_row, ulong a_column, ulong b_row, ulong b_column{parameters}) {{
    __local T left[DEPTH][TILE], right[DEPTH][TILE];
    uint x = get_local_id(0), y = get_local_id(1), item = y * SIDE + x;
    uint row = get_group_id(1) * TILE, column = get_group_id(0) * TILE;
    size_t i = get_group_id(2);
    {batch}
    T sums[EACH][EACH];
    for (uint r = 0; r < EACH; r++) for (uint c = 0; c < EACH; c++) sums[r][c] = 0;
    for (uint start = 0; start < k; start += DEPTH) {{
        for (uint e = item; e < TILE * DEPTH; e += SIDE * SIDE) {{
            uint d = e % DEPTH, r = e / DEPTH;
            ulong at = at_a + (row + r) * a_row + (start + d) * a_column;
            left[d][r] = row + r < m && start + d < k ? {load_a} : 0;
            d = e / TILE, r = e % TILE;
            at = at_b + (start + d) * b_row + (column + r) * b_column;
            right[d][r] = column + r < n && start + d < k ? {load_b} : 0;
        }}
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint d = 0; d < DEPTH; d++) for (uint r = 0; r < EACH; r++) for (uint c = 0; c < EACH; c++)
            sums[r][c] += left[d][y + r * SIDE] * right[d][x + c * SIDE];
        barrier(CLK_LOCAL_MEM_FENCE);
    }}
    for (uint r = 0; r < EACH; r++) for (uint c = 0; c < EACH; c++) {{
        uint at_row = row + y + r * SIDE, at_column = column + x + c * SIDE;
        ulong at = at_o + at_row * o_row + at_column * o_column;
        if (at_row < m && at_column < n) {{ {store} }}
    }}
}}
"""


def matmul(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel:
    kind = ctype(operands[0])
    batch = Walk("oab", operands[0].shape[:-2], [o.strides[:-2] for o in operands], bake=False)
    source = kind.prelude(SIDE=SIDE, EACH=EACH, TILE=SIDE * EACH, DEPTH=16) + SOURCE.format(
        stored=kind.stored, parameters=batch.parameters, batch=batch.code(), load_a=kind.load("a", "at"),
        load_b=kind.load("b", "at"), store=kind.store("o", "at", "sums[r][c]"),
    )  # fmt: skip
    (m, n), k = operands[0].shape[-2:], operands[1].shape[-1]
    steps = [np.uint64(step) for o in operands for step in o.strides[-2:]]
    constants = [np.uint32(m), np.uint32(n), np.uint32(k), *steps, *batch.arguments]
    items = (-(-n // EACH), -(-m // EACH), batch.count)
    return run.kernel(source, "norch_matmul", [None] * 3, constants, items, (SIDE, SIDE, 1))
