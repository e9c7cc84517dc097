"""The native kernels, and for which operands there are any."""

from __future__ import annotations

from typing import Any

from norch import float32
from norch.backend import Kernel, Operand

from . import _ext


def compile(op: str, operands: tuple[Operand, ...]) -> Kernel | None:
    """A kernel of csrc/kernels.cpp, or None where there is none for these operands."""
    if not _ext.has(op) or any(o.is_scalar or o.dtype is not float32 for o in operands):
        return None
    out, a, *rest = operands
    found = _ext.Kernel(op, out.shape, [out.strides, a.strides, (rest or [a])[0].strides])

    def kernel(*args: Any) -> None:
        places = [buffer.data.ctypes.data + 4 * offset for buffer, offset in zip(args[::2], args[1::2])]
        found(*places, *places[1:] if len(places) == 2 else ())

    return kernel
