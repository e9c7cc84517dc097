"""gather, scatter, scatter_add. A first kernel looks for wrong indices; if it finds one, the second does nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from norch.backend import Kernel, Operand
from norch.dtype import float32

from .devices import CHECKED, Memory, Runtime
from .elementwise import copy
from .types import PRELUDE, CType, ctype, raw
from .walk import Walk

RECORD = "__global long *record, ulong record_, long call"
CHECK = """
__kernel void check(__global const long *p, ulong p_, {record}, long size, long op{parameters}) {{
    {every}
    {code}
    long index = p[at_p];
    if (index >= -size && index < size) return;
    record[0] = call;
    if (atomic_cmpxchg((volatile __global int *)(record + 1), 0, 1) == 0) {{
        record[2] = index;
        record[3] = size;
        record[4] = op;
    }}
}}
"""
GATHER = """
__kernel void gather(__global {stored} *o, ulong o_, __global const {stored} *x, ulong x_,
                     __global const long *p, ulong p_, {record}, long size, ulong step{parameters}) {{
    {every}
    {code}
    long index = p[at_p];
    if (record[0] != call) o[at_o] = x[at_x + (index < 0 ? index + size : index) * step];
}}
"""
# A work item writes all elements of one line, in order: two indices may be equal, and sums must be repeatable.
SCATTER = """
__kernel void scatter(__global {stored} *o, ulong o_, __global const long *p, ulong p_, __global const {given} *x,
                      ulong x_, {record}, long size, ulong step, ulong n, ulong p_step, ulong x_step{parameters}) {{
    {every}
    {code}
    if (record[0] == call) return;
    for (ulong j = 0; j < n; j++, at_p += p_step, at_x += x_step) {{
        long index = p[at_p];
        ulong at = at_o + (index < 0 ? index + size : index) * step;
        {write}
    }}
}}
"""


def _with_dims(operands: tuple[Operand, ...]) -> list[Operand]:
    return [o if o.shape else o._replace(shape=(1,), strides=(1,)) for o in operands]


def _checked(run: Runtime, op: str, index: Operand, size: int, at: int, kernel: Kernel) -> Kernel:
    """`kernel`, which gets the error record and the call's number beside its operands, after a check of its index."""
    walk = Walk("p", index.shape, [index.strides])
    source = CHECK.format(record=RECORD, parameters=walk.parameters, every=walk.every, code=walk.code())
    constants = [np.int64(size), np.int64(CHECKED.index(op)), *walk.arguments]
    check = run.kernel(source, "check", [None, None, np.int64], constants, (walk.count,))

    def call(*args: Any) -> None:
        device, number = args[0].device, next(run.calls)
        record = device.record
        device.unchecked = True
        with run.lock:  # no other call may come between: it would write its number
            check(args[2 * at], args[2 * at + 1], record, 0, number)
            kernel(*args, record, 0, number)

    return call


def gather(run: Runtime, op: str, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel:
    (out, x, index), dim = _with_dims(operands), attrs["dim"]
    steps = [s * (d != dim) for d, s in enumerate(x.strides)]
    walk = Walk("oxp", out.shape, [out.strides, steps, index.strides])
    source = GATHER.format(
        stored=raw(x.dtype).stored, record=RECORD, parameters=walk.parameters, every=walk.every, code=walk.code()
    )
    constants = [np.int64(x.shape[dim]), np.uint64(x.strides[dim]), *walk.arguments]
    kernel = run.kernel(source, "gather", [None] * 4 + [np.int64], constants, (walk.count,))
    return _checked(run, op, index, x.shape[dim], 2, kernel)


def scatter(run: Runtime, op: str, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel:
    out, index, src = _with_dims(operands)
    if op == "scatter":
        moved = raw(out.dtype)
        return _checked(run, op, index, *_lines(run, out, index, src, moved, moved, "o[at] = x[at_x];", attrs["dim"]))
    kind = ctype(out.dtype)
    if out.dtype.itemsize == 2 and kind.is_floating:
        return _scatter_add_wide(run, out, index, src, attrs["dim"])
    add = f"o[at] {'|' if kind.name == 'bool' else '+'}= x[at_x];"
    return _checked(run, op, index, *_lines(run, out, index, src, kind, kind, add, attrs["dim"]))


def _lines(
    run: Runtime, out: Operand, index: Operand, src: Operand, to: CType, given: CType, write: str, dim: int
) -> tuple[int, int, Kernel]:
    """What `_checked` takes after the index: the size of the dim, the index's place in the operands, the kernel."""
    shape = tuple(1 if d == dim else n for d, n in enumerate(index.shape))
    walk = Walk("opx", shape, [out.strides, index.strides, src.strides])
    source = PRELUDE + SCATTER.format(
        stored=to.stored, given=given.stored, record=RECORD, parameters=walk.parameters, every=walk.every,
        code=walk.code(), write=write,
    )  # fmt: skip
    steps = (out.strides[dim], index.shape[dim], index.strides[dim], src.strides[dim])
    constants = [np.int64(out.shape[dim]), *map(np.uint64, steps), *walk.arguments]
    kernel = run.kernel(source, "scatter", [None] * 4 + [np.int64], constants, (walk.count,))
    return out.shape[dim], 1, kernel


def _scatter_add_wide(run: Runtime, out: Operand, index: Operand, src: Operand, dim: int) -> Kernel:
    """scatter_add of 16-bit floats: the sums are made in a float32 copy of the output, and rounded once."""
    strides, count = [0] * len(out.shape), 1
    for d in reversed(range(len(out.shape))):
        strides[d], count = count, count * out.shape[d]
    wide = Operand(float32, out.shape, tuple(strides))
    given = ctype(src.dtype)
    add = f"o[at] += {given.load('x', 'at_x')};"
    widen, narrow = copy(run, "copy", (wide, out), {}), copy(run, "copy", (out, wide), {})
    lines = _lines(run, wide, index, src, ctype(float32), given, add, dim)
    add_up = _checked(run, "scatter_add", index, *lines)

    def call(buffer: Memory, offset: int, *rest: Any) -> None:
        sums = run.allocate(4 * count, buffer.device.index)
        widen(sums, 0, buffer, offset)
        add_up(sums, 0, *rest)
        narrow(buffer, offset, sums, 0)

    return call


FAMILY = {"gather": gather, "scatter": scatter, "scatter_add": scatter}
