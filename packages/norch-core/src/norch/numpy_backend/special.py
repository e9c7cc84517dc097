"""Functions that NumPy lacks, or defines otherwise: `f(*inputs)`, returning a new array in the dtype of its inputs."""

from __future__ import annotations

import math

import numpy as np

from .views import Array


def negative(x: Array) -> Array:
    """-x, never written in place: with AVX2, np.negative of NumPy 2.4.6 takes an input whose stride is 4 elements of 4
    bytes (or 8 of 8) for a dense one where its output has gaps."""
    result: Array = np.negative(x)
    return result


def sigmoid(x: Array) -> Array:
    z = np.exp(-np.abs(x))  # never overflows, and keeps the tiny values of a very negative x
    result: Array = np.where(x < 0, z, x.dtype.type(1)) / (1 + z)
    return result


def erf(x: Array) -> Array:
    """math.erf of each element: 90 ns each, which rational functions in NumPy hardly beat."""
    return np.fromiter(map(math.erf, x.ravel().tolist()), x.dtype, x.size).reshape(x.shape)


def power(a: Array, b: Array) -> Array:
    """Floating a ** b; a square, the most common power by far, is a product."""
    result: Array = np.square(a) if b.ndim == 0 and b == 2 else np.power(a, b)
    return result


def integer_power(a: Array, b: Array) -> Array:
    """a ** b, wrapping around. A negative exponent gives the truncated quotient: 0, or ±1 where a is ±1."""
    negative = b < 0
    result: Array = np.power(a, np.where(negative, 0, b).astype(a.dtype))
    if negative.any():
        unit = np.where((a == -1) & (b % 2 == 0), 1, np.where(np.abs(a) == 1, a, 0))
        result = np.where(negative, unit, result)
    return result


def _refuse_zero(b: Array) -> None:
    if not np.all(b):
        raise ZeroDivisionError("integer division or modulo by zero")


def integer_floor_divide(a: Array, b: Array) -> Array:
    _refuse_zero(b)
    result: Array = np.floor_divide(a, b)
    return result


def integer_remainder(a: Array, b: Array) -> Array:
    _refuse_zero(b)
    result: Array = np.remainder(a, b)
    return result
