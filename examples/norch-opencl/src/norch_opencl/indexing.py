"""gather, scatter, scatter_add. A first kernel looks for wrong indices; if it finds one, the second does nothing."""

from math import prod
from typing import Any

import numpy as np

from norch.backend import Kernel, Operand
from norch.dtype import float32

from .devices import CHECKED, Memory, Runtime
from .elementwise import copy
from .reduction import across, with_dims
from .source import Attrs, Operands, Walk, ctype, each, raw, tensor

CHECK = """long index = p[at_p];
    if (index >= -size && index < size) return;
    record[0] = call;
    bool first = atomic_cmpxchg((volatile __global int *)(record + 1), 0, 1) == 0;
    if (first) record[2] = index, record[3] = size, record[4] = op;"""
GATHER = """long index = p[at_p];
    if (record[0] != call) o[at_o] = x[at_x + (index < 0 ? index + size : index) * step];"""
# A work item writes all elements of one line, in order: two indices may be equal, and sums must be repeatable.
SCATTER = """if (record[0] == call) return;
    for (ulong j = 0; j < n; j++, at_p += p_step, at_x += x_step) {{
        long index = p[at_p];
        o[at_o + (index < 0 ? index + size : index) * step] {assign} {value};
    }}"""
CALL, TAKES = [tensor("record", "long"), "long call", "long size"], [None] * 4 + [np.int64]


def gather(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel:
    (out, x, index), dim = (with_dims(o) for o in operands), attrs["dim"]
    steps = [step * (d != dim) for d, step in enumerate(x.strides)]
    walk, stored = Walk("oxp", out.shape, [out.strides, steps, index.strides]), raw(x).stored
    tensors = [tensor("o", stored), tensor("x", stored), tensor("p", "long")]
    source = each(op, [*tensors, *CALL, "ulong step"], walk, GATHER)
    constants = [np.int64(x.shape[dim]), np.uint64(x.strides[dim]), *walk.arguments]
    return _checked(run, op, index, 2, x.shape[dim], run.kernel(source, op, TAKES, constants, (walk.count,)))


def scatter(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel:
    (out, index, src), dim, adds = (with_dims(o) for o in operands), attrs["dim"], op == "scatter_add"
    kind, given = (ctype(o) if adds else raw(o) for o in (out, src))
    if kind.is_floating and out.dtype.itemsize == 2:
        return _in_float32(run, op, (out, index, src), attrs)
    walk = across("opx", dim, out, index, src)
    tensors = [tensor("o", kind.stored), tensor("p", "long"), tensor("x", given.stored)]
    assign = "=" if not adds else "|=" if kind.name == "bool" else "+="
    body = SCATTER.format(assign=assign, value=given.load("x", "at_x"))
    source = each(op, [*tensors, *CALL, "ulong step, ulong n, ulong p_step, ulong x_step"], walk, body)
    steps = (out.strides[dim], index.shape[dim], index.strides[dim], src.strides[dim])
    constants = [np.int64(out.shape[dim]), *map(np.uint64, steps), *walk.arguments]
    return _checked(run, op, index, 1, out.shape[dim], run.kernel(source, op, TAKES, constants, (walk.count,)))


def _in_float32(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel:
    """scatter_add of 16-bit floats: the sums are made in a float32 copy of the output, and rounded once."""
    out, *inputs = operands
    sums = Operand(float32, out.shape, tuple([prod(out.shape[d + 1 :]) for d in range(len(out.shape))]))
    widen, narrow = copy(run, "copy", (sums, out), {}), copy(run, "copy", (out, sums), {})
    add = scatter(run, op, (sums, *inputs), attrs)

    def call(buffer: Memory, offset: int, *rest: Any) -> None:
        wide = run.allocate(4 * prod(out.shape), buffer.device.index)
        widen(wide, 0, buffer, offset)
        add(wide, 0, *rest)
        narrow(buffer, offset, wide, 0)

    return call


def _checked(run: Runtime, op: str, index: Operand, at: int, size: int, kernel: Kernel) -> Kernel:
    """`kernel`, which takes the error record and the call's number at the end, behind a check of its index."""
    walk = Walk("p", index.shape, [index.strides])
    values = [np.int64(size), np.int64(CHECKED.index(op)), *walk.arguments]
    text = each("check", [tensor("p", "long"), *CALL, "long op"], walk, CHECK)
    check = run.kernel(text, "check", [None, None, np.int64], values, (walk.count,))

    def call(*args: Any) -> None:
        device, number = args[0].device, next(run.calls)
        with run.lock:  # another call between the two would write its number
            check(*args[2 * at : 2 * at + 2], device.record, 0, number)
            kernel(*args, device.record, 0, number)
            device.unchecked = True

    return call
