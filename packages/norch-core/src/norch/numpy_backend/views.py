"""From a function on ndarrays to a kernel on buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import Context
from functools import cache, partial
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np
from numpy import ndarray

from ..backend import DType, Kernel, Operand

Array = np.ndarray[Any, Any]
Compute = Callable[..., object]
"""Called as a ufunc is: `compute(*inputs, *outputs)`, on arrays and, for scalar operands, numbers."""
Factory = Callable[[tuple[Operand, ...], Mapping[str, Any]], Kernel | None]
Number = Callable[[Any], Any]
Layout = tuple[tuple[int, ...], "np.dtype[Any]", int, tuple[int, ...] | None]


def _quiet() -> tuple[Callable[[], Any], Callable[[Any], object]]:
    """Two functions: the first silences NumPy's floating-point warnings, the second takes its result and undoes that.

    np.errstate would do, at 1 us a call. NumPy 2 keeps the state in a context variable; setting that takes 0.1 us.
    """
    context = Context()
    context.run(np.seterr, all="ignore")
    for variable, ignore in context.items():
        return partial(variable.set, ignore), variable.reset
    return partial(np.seterr, all="ignore"), lambda old: np.seterr(**old)  # NumPy 1


enter_quiet, leave_quiet = _quiet()


def layout(operand: Operand) -> Layout:
    """What `ndarray` needs beside the buffer: shape, dtype, bytes an element of offset, byte strides (None: dense)."""
    dtype, shape, strides, _ = operand
    if 0 in shape:
        return tuple(shape), dtype.numpy, 0, None  # an empty view may start past the end of its buffer
    if strides == tuple(accumulate(shape[:0:-1], mul, initial=1))[::-1]:
        return tuple(shape), dtype.numpy, dtype.itemsize, None
    return tuple(shape), dtype.numpy, dtype.itemsize, tuple(s * dtype.itemsize for s in strides)


def python_number(dtype: DType) -> Number:
    """The conversion of a scalar to a Python number that NumPy takes as `dtype`: integers wrap around, as in C."""
    if dtype.is_floating_point:
        return float
    if dtype.name == "bool":
        return bool
    half = 1 << (8 * dtype.itemsize - 1) if dtype.is_signed else 0
    mask = (1 << 8 * dtype.itemsize) - 1
    return lambda value: ((int(value) + half) & mask) - half


def numpy_scalar(dtype: DType) -> Number:
    """The conversion of a scalar to a NumPy scalar of `dtype`."""
    number, kind = python_number(dtype), dtype.numpy.type
    return lambda value: kind(number(value))


def as_is(dtype: DType) -> Number:
    """No conversion."""
    return lambda value: value


def bind(
    compute: Compute,
    operands: tuple[Operand, ...],
    number: Callable[[DType], Number] = python_number,
    outputs: int = 1,
) -> Kernel:
    """The kernel that calls `compute` on views of its operands; `number` makes the conversion of each scalar."""
    make = _kernel_maker(tuple([o.is_scalar for o in operands]), outputs)
    kernel: Kernel = make(compute, *[number(o.dtype) if o.is_scalar else layout(o) for o in operands])
    return kernel


@cache
def _kernel_maker(are_scalars: tuple[bool, ...], outputs: int) -> Callable[..., Kernel]:
    """Makes kernels for operands of which these are scalars.

    Written out for them, as dataclasses write `__init__`: what a loop over the operands costs is what a small op costs.
    """
    parameters, unpacked, values = [], [], []
    for i, is_scalar in enumerate(are_scalars):
        if is_scalar:
            parameters.append(f"value{i}")
            values.append(f"operand{i}(value{i})")
        else:
            parameters.append(f"buffer{i}, offset{i}")
            unpacked.append(f"    shape{i}, dtype{i}, size{i}, strides{i} = operand{i}")
            values.append(f"ndarray(shape{i}, dtype{i}, buffer{i}.data, offset{i} * size{i}, strides{i})")
    lines = [
        f"def make(compute, {', '.join(f'operand{i}' for i in range(len(are_scalars)))}):",
        *unpacked,
        f"    def kernel({', '.join(parameters)}):",
        "        token = enter_quiet()",
        "        try:",
        f"            compute({', '.join(values[outputs:] + values[:outputs])})",
        "        finally:",
        "            leave_quiet(token)",
        "    return kernel",
    ]
    names: dict[str, Any] = {"ndarray": ndarray, "enter_quiet": enter_quiet, "leave_quiet": leave_quiet}
    exec("\n".join(lines), names)
    make: Callable[..., Kernel] = names["make"]
    return make
