"""From a function on ndarrays to a kernel on buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import Context
from functools import partial
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
    special = _BINDERS.get(tuple([o.is_scalar for o in operands])) if outputs == 1 else None
    return special(compute, operands, number) if special else _bind_any(compute, operands, number, outputs)


def _bind_any(
    compute: Compute, operands: tuple[Operand, ...], number: Callable[[DType], Number], outputs: int
) -> Kernel:
    plan = [number(o.dtype) if o.is_scalar else layout(o) for o in operands]

    def kernel(*args: Any) -> None:
        given = iter(args)
        token = enter_quiet()
        try:
            values: list[Any] = []
            for step in plan:
                if isinstance(step, tuple):
                    shape, dtype, itemsize, strides = step
                    values.append(ndarray(shape, dtype, next(given).data, next(given) * itemsize, strides))
                else:
                    values.append(step(next(given)))
            compute(*values[outputs:], *values[:outputs])
        finally:
            leave_quiet(token)

    return kernel


# The common cases of _bind_any, written out: they are what a small op costs.


def _bind_x(compute: Compute, operands: tuple[Operand, ...], number: Callable[[DType], Number]) -> Kernel:
    (o_shape, o_dtype, o_size, o_strides), (x_shape, x_dtype, x_size, x_strides) = map(layout, operands)

    def kernel(out: Any, o: int, x: Any, i: int) -> None:
        token = enter_quiet()
        try:
            compute(
                ndarray(x_shape, x_dtype, x.data, i * x_size, x_strides),
                ndarray(o_shape, o_dtype, out.data, o * o_size, o_strides),
            )
        finally:
            leave_quiet(token)

    return kernel


def _bind_a_b(compute: Compute, operands: tuple[Operand, ...], number: Callable[[DType], Number]) -> Kernel:
    out_layout, a_layout, b_layout = map(layout, operands)
    o_shape, o_dtype, o_size, o_strides = out_layout
    a_shape, a_dtype, a_size, a_strides = a_layout
    b_shape, b_dtype, b_size, b_strides = b_layout

    def kernel(out: Any, o: int, a: Any, i: int, b: Any, j: int) -> None:
        token = enter_quiet()
        try:
            compute(
                ndarray(a_shape, a_dtype, a.data, i * a_size, a_strides),
                ndarray(b_shape, b_dtype, b.data, j * b_size, b_strides),
                ndarray(o_shape, o_dtype, out.data, o * o_size, o_strides),
            )
        finally:
            leave_quiet(token)

    return kernel


def _bind_a_scalar(compute: Compute, operands: tuple[Operand, ...], number: Callable[[DType], Number]) -> Kernel:
    (o_shape, o_dtype, o_size, o_strides), (a_shape, a_dtype, a_size, a_strides) = map(layout, operands[:2])
    convert = number(operands[2].dtype)

    def kernel(out: Any, o: int, a: Any, i: int, b: Any) -> None:
        token = enter_quiet()
        try:
            compute(
                ndarray(a_shape, a_dtype, a.data, i * a_size, a_strides),
                convert(b),
                ndarray(o_shape, o_dtype, out.data, o * o_size, o_strides),
            )
        finally:
            leave_quiet(token)

    return kernel


def _bind_scalar_b(compute: Compute, operands: tuple[Operand, ...], number: Callable[[DType], Number]) -> Kernel:
    out, a, b = operands
    swapped = _bind_a_scalar(lambda b, a, out: compute(a, b, out), (out, b, a), number)
    return lambda out, o, a, b, j: swapped(out, o, b, j, a)


_BINDERS = {
    (False, False): _bind_x,
    (False, False, False): _bind_a_b,
    (False, False, True): _bind_a_scalar,
    (False, True, False): _bind_scalar_b,
}
