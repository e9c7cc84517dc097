"""The kernel for device "cpu", in NumPy over host memory, a piece that fits the cache at a time."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from norch.backend import Backend, Kernel, Operand

PIECE = 16384


def swiglu_on_cpu(backend: Backend, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel | None:
    """The kernel for (out, gate, up), or None where norch does better by decomposing.

    That is so on a backend with a native silu, next to which NumPy is slow, and for operands that are not float32 or
    float64, lying alike and without gaps.
    """
    out, gate, up = operands
    alike = gate.strides == up.strides == out.strides and not any(o.is_scalar for o in operands)
    if out.dtype.name not in ("float32", "float64") or not alike or not _is_dense(out):
        return None
    if backend.compile("silu", (out, gate), {"given": (True,)}) is not None:
        return None
    dtype, size, count = out.dtype.numpy, out.dtype.itemsize, prod(out.shape)
    piece = min(count, PIECE)

    def array(buffer: Any, offset: int, count: int = count) -> Any:
        return np.frombuffer(backend.host_view(buffer), dtype, count, offset * size)  # type: ignore[arg-type]

    def kernel(out: Any, out_at: int, gate: Any, gate_at: int, up: Any, up_at: int) -> None:
        scratch = array(backend.allocate(piece * size, 0), 0, piece)
        to, x, y = array(out, out_at), array(gate, gate_at), array(up, up_at)
        with np.errstate(all="ignore"):
            for start in range(0, count, PIECE):
                here = slice(start, start + PIECE)
                part = x[here]
                t = scratch[: part.size]
                np.negative(part, out=t)
                np.exp(t, out=t)
                t += 1
                np.divide(part, t, out=t)
                np.multiply(t, y[here], out=to[here])

    return kernel


def _is_dense(operand: Operand) -> bool:
    """Whether the elements fill one stretch of memory, whatever the order of the dims."""
    size = 1
    for stride, n in sorted(zip(operand.strides, operand.shape)):
        if n > 1 and stride != size:
            return False
        size *= n
    return size > 0
