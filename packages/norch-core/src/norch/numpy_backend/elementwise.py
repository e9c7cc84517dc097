"""Elementwise kernels: unary, binary, comparisons, where, copy, fill."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from ..backend import DType, Kernel, Operand
from . import special
from .views import Array, Compute, Factory, bind, numpy_scalar


def store(x: Any, out: Array) -> None:
    out[...] = x


class Floating:
    """How floating dtypes are computed: 16-bit ones in float32, float32 in float64 with `upcast`, float64 as it is.

    NumPy's float32 loops of most transcendental functions are 2 to 4 ulp off on some processors: those are upcast.
    """

    def __init__(self, function: Callable[..., Any], upcast: bool = False) -> None:
        self.function = function
        self.upcast = upcast

    def precision(self, dtype: DType) -> type[Any]:
        if dtype.itemsize == 2:
            return np.float32
        return np.float64 if self.upcast or dtype.itemsize == 8 else np.float32


exact = Floating
upcast = partial(Floating, upcast=True)

Rule = Callable[..., Any] | Floating | None
"""A ufunc; or a function `f(*inputs)` that returns its result; None where the op takes no such dtype."""


def same(x: Array) -> Array:
    return x


# op: (bool, integers, floating)
UNARY: dict[str, tuple[Rule, Rule, Rule]] = {
    "neg": (same, special.negative, exact(special.negative)),
    "abs": (same, np.absolute, exact(np.absolute)),
    "sign": (same, np.sign, exact(np.sign)),
    "exp": (None, None, upcast(np.exp)),
    "expm1": (None, None, upcast(np.expm1)),
    "log": (None, None, upcast(np.log)),
    "log1p": (None, None, upcast(np.log1p)),
    "log2": (None, None, upcast(np.log2)),
    "log10": (None, None, upcast(np.log10)),
    "sqrt": (None, None, exact(np.sqrt)),
    "sin": (None, None, exact(np.sin)),
    "cos": (None, None, exact(np.cos)),
    "tan": (None, None, upcast(np.tan)),
    "asin": (None, None, upcast(np.arcsin)),
    "acos": (None, None, upcast(np.arccos)),
    "atan": (None, None, upcast(np.arctan)),
    "sinh": (None, None, upcast(np.sinh)),
    "cosh": (None, None, upcast(np.cosh)),
    "tanh": (None, None, upcast(np.tanh)),
    "asinh": (None, None, upcast(np.arcsinh)),
    "acosh": (None, None, upcast(np.arccosh)),
    "atanh": (None, None, upcast(np.arctanh)),
    "sigmoid": (None, None, upcast(special.sigmoid)),
    "erf": (None, None, upcast(special.erf)),
    "floor": (same, same, exact(np.floor)),
    "ceil": (same, same, exact(np.ceil)),
    "round": (same, same, exact(np.rint)),
    "trunc": (same, same, exact(np.trunc)),
    "bitwise_not": (np.invert, np.invert, None),
}

BINARY: dict[str, tuple[Rule, Rule, Rule]] = {
    "add": (np.logical_or, np.add, exact(np.add)),
    "sub": (None, np.subtract, exact(np.subtract)),
    "mul": (np.logical_and, np.multiply, exact(np.multiply)),
    "div": (None, None, exact(np.divide)),
    "floor_divide": (None, special.integer_floor_divide, exact(np.floor_divide)),
    "remainder": (None, special.integer_remainder, exact(np.remainder)),
    "pow": (None, special.integer_power, upcast(special.power)),
    "atan2": (None, None, upcast(np.arctan2)),
    "maximum": (np.logical_or, np.maximum, exact(np.maximum)),
    "minimum": (np.logical_and, np.minimum, exact(np.minimum)),
    "bitwise_and": (np.bitwise_and, np.bitwise_and, None),
    "bitwise_or": (np.bitwise_or, np.bitwise_or, None),
    "bitwise_xor": (np.bitwise_xor, np.bitwise_xor, None),
    "bitwise_left_shift": (None, np.left_shift, None),
    "bitwise_right_shift": (None, np.right_shift, None),
}

COMPARISON: dict[str, np.ufunc] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _ufunc(ufunc: np.ufunc, **options: Any) -> Compute:
    if ufunc in (np.maximum, np.minimum):  # of these NumPy 2.4 wants the output by name
        return lambda a, b, out: ufunc(a, b, out=out, **options)
    return partial(ufunc, **options) if options else ufunc


def _computed_in(precision: Any, function: Callable[..., Any]) -> Compute:
    """`function` with its inputs cast to `precision`, and its result to the dtype of the output."""
    if isinstance(function, np.ufunc):
        return _ufunc(function, dtype=precision, casting="unsafe")

    def compute(*args: Any) -> None:
        *inputs, out = args
        out[...] = function(*[np.asarray(x, precision) for x in inputs])

    return compute


def _by_dtype(rules: tuple[Rule, Rule, Rule]) -> Factory:
    def factory(operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel | None:
        dtype = operands[0].dtype
        rule = rules[dtype.category]
        if rule is None:
            return None
        if isinstance(rule, Floating):
            precision = np.dtype(rule.precision(dtype))
            if precision == dtype.numpy and isinstance(rule.function, np.ufunc):
                return bind(_ufunc(rule.function), operands)
            # A 16-bit tensor meets its scalar in float32; a float32 one must not see more digits of it.
            number = np.float32 if dtype.itemsize < 8 else np.float64
            return bind(_computed_in(precision, rule.function), operands, lambda _: lambda x: number(float(x)))
        all_scalars = all(o.is_scalar for o in operands[1:])
        if isinstance(rule, np.ufunc) and not all_scalars:
            return bind(_ufunc(rule), operands)
        return bind(_computed_in(dtype.numpy, rule), operands)

    return factory


def _comparison(ufunc: np.ufunc) -> Factory:
    return lambda operands, attrs: bind(ufunc, operands, numpy_scalar)


def _where(operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel:
    return bind(lambda condition, a, b, out: store(np.where(condition, a, b), out), operands, numpy_scalar)


KERNELS: dict[str, Factory] = {
    "copy": lambda operands, attrs: bind(store, operands),
    "fill": lambda operands, attrs: bind(store, operands),
    "where": _where,
    **{op: _by_dtype(rules) for op, rules in {**UNARY, **BINARY}.items()},
    **{op: _comparison(ufunc) for op, ufunc in COMPARISON.items()},
}
