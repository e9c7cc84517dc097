"""Reductions and cumsum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..backend import DType, Kernel, Operand
from .views import Array, Compute, Factory, bind


def is_half(dtype: DType) -> bool:
    """Whether `dtype` is float16 or bfloat16, which are computed in float32."""
    return dtype.is_floating_point and dtype.itemsize == 2


def with_dims(operand: Operand) -> Operand:
    """A 0-d operand as one of shape (1,), so that dim 0 exists."""
    return operand if operand.shape else operand._replace(shape=(1,), strides=(1,))


def _precision(dtype: DType, ufunc: np.ufunc) -> Any:
    """What results of `dtype` are computed in, where that is another: NumPy adds up long columns one by one."""
    if is_half(dtype):
        return np.float32
    return np.float64 if ufunc is np.add and dtype.name == "float32" else None


def _fold(ufunc: np.ufunc) -> Factory:
    def factory(operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel:
        dims, precision = tuple(attrs["dims"]), _precision(operands[0].dtype, ufunc)

        def compute_in_precision(x: Array, out: Array) -> None:
            out[...] = ufunc.reduce(x, dims, precision, keepdims=True)

        def compute(x: Array, out: Array) -> None:
            ufunc.reduce(x, dims, out.dtype, out, keepdims=True)

        return bind(compute_in_precision if precision else compute, operands)

    return factory


def _arg(function: Any) -> Factory:
    def factory(operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel:
        dim = attrs["dims"][0] if operands[1].shape else 0
        half = is_half(operands[1].dtype)

        def compute(x: Array, out: Array) -> None:
            out[...] = function(x.astype(np.float32) if half else x, dim, keepdims=True)

        return bind(compute, tuple([with_dims(o) for o in operands]))

    return factory


def _cumsum(operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel:
    dim, precision = attrs["dim"], _precision(operands[0].dtype, np.add)

    def compute_in_precision(x: Array, out: Array) -> None:
        out[...] = np.add.accumulate(x, dim, precision)

    def compute(x: Array, out: Array) -> None:
        np.add.accumulate(x, dim, out.dtype, out)

    chosen: Compute = compute_in_precision if precision else compute
    return bind(chosen, tuple([with_dims(o) for o in operands]))


KERNELS: dict[str, Factory] = {
    "sum": _fold(np.add),
    "prod": _fold(np.multiply),
    "amax": _fold(np.maximum),
    "amin": _fold(np.minimum),
    "any": _fold(np.logical_or),
    "all": _fold(np.logical_and),
    "argmax": _arg(np.argmax),
    "argmin": _arg(np.argmin),
    "cumsum": _cumsum,
}
