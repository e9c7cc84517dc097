"""The kernels for device "cpu", in NumPy over host memory: all steps on a piece that fits the cache, then the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from norch.backend import Backend, Kernel, Operand
from norch.plugin_ops import KernelFactory

Array = Any
PIECE = 16384


def swiglu(out: Array, gate: Array, up: Array) -> None:
    np.negative(gate, out=out)
    np.exp(out, out=out)
    out += 1
    np.divide(gate, out, out=out)
    out *= up


def swiglu_grad(into_gate: Array, into_up: Array, g: Array, gate: Array, up: Array) -> None:
    s = into_up  # 1 / (1 + exp(-gate)), until the end
    np.negative(gate, out=s)
    np.exp(s, out=s)
    s += 1
    np.reciprocal(s, out=s)
    np.subtract(1, s, out=into_gate)
    into_gate *= gate
    into_gate += 1
    for factor in (s, g, up):
        into_gate *= factor
    into_up *= gate
    into_up *= g


def in_pieces(function: Callable[..., None]) -> KernelFactory:
    """The factory of kernels that call `function` with a piece of every operand, outputs first.

    It returns None where norch does better by decomposing: on a backend with a native silu, next to which NumPy is
    slow, and for operands that are not float32 or float64, lying alike and without gaps.
    """

    def factory(backend: Backend, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel | None:
        out = operands[0]
        if out.dtype.name not in ("float32", "float64") or any(o != out for o in operands) or not _is_dense(out):
            return None
        if backend.compile("silu", (out, out), {"given": (True,)}) is not None:
            return None
        dtype, size, count = out.dtype.numpy, out.dtype.itemsize, prod(out.shape)

        def kernel(*args: Any) -> None:
            arrays = [
                np.frombuffer(backend.host_view(buffer), dtype, count, offset * size)  # type: ignore[arg-type]
                for buffer, offset in zip(args[::2], args[1::2])
            ]
            with np.errstate(all="ignore"):
                for start in range(0, count, PIECE):
                    function(*[array[start : start + PIECE] for array in arrays])

        return kernel

    return factory


def _is_dense(operand: Operand) -> bool:
    """Whether the elements fill one stretch of memory, whatever the order of the dims."""
    size = 1
    for stride, n in sorted(zip(operand.strides, operand.shape)):
        if n > 1 and stride != size:
            return False
        size *= n
    return size > 0
