"""A plug-in as they were written for contract 1.0, kept as it is: every later norch of major version 1 must run it.

It does not inherit from Backend and has the methods of 1.0 alone. Never change this file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from norch.backend import IndexOutOfBounds, Kernel, Operand, hookimpl
from norch.numpy_backend import philox  # how seed and counter become random numbers is part of the contract

Array = Any


class Memory:
    """Device memory. norch needs `nbytes` and `modified`, which it writes; the rest is yours."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes, self.modified, self.data = nbytes, None, np.empty(nbytes, np.uint8)


class FrozenBackend:
    device_type = "frozen"
    contract = (1, 0)

    def device_count(self) -> int:
        return 1

    def allocate(self, nbytes: int, index: int) -> Memory:
        return Memory(nbytes)  # raises MemoryError where there is no room

    def copy_in(self, buffer: Memory, offset: int, data: memoryview) -> None:
        buffer.data[offset : offset + data.nbytes] = np.frombuffer(data, np.uint8) if data.nbytes else 0

    def copy_out(self, buffer: Memory, offset: int, data: memoryview) -> None:
        data[:] = buffer.data[offset : offset + data.nbytes].data

    def copy(self, out: Memory, out_offset: int, source: Memory, source_offset: int, nbytes: int) -> None:
        out.data[out_offset : out_offset + nbytes] = source.data[source_offset : source_offset + nbytes]

    def compile(self, op: str, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel | None:
        function = KERNELS.get(op)
        if function is None:
            return None  # norch makes it from the primitives

        def kernel(*args: Any) -> None:
            given = iter(args)
            arrays = [next(given) if o.is_scalar else view(o, next(given), next(given)) for o in operands]
            with np.errstate(all="ignore"):
                if op in WRITERS:
                    function(*arrays, **attrs)
                else:
                    arrays[0][...] = function(*map(wide, arrays[1:]), **attrs)

        return kernel

    def synchronize(self, index: int) -> None:
        pass


@hookimpl
def norch_backend() -> FrozenBackend:
    return FrozenBackend()


def view(operand: Operand, buffer: Memory, offset: int) -> Array:
    """The elements of an operand in its buffer. Offset and strides count elements."""
    size = operand.dtype.itemsize
    if 0 in operand.shape:
        return np.empty(operand.shape, operand.dtype.numpy)
    strides = [s * size for s in operand.strides]
    return np.ndarray(operand.shape, operand.dtype.numpy, buffer.data, offset * size, strides)


def wide(x: Array) -> Array:
    """16-bit floats are computed in float32 and rounded once, when they are written."""
    return x.astype(np.float32) if getattr(x, "dtype", None) in ("float16", "bfloat16") else x


def power(a: Array, b: Array) -> Array:
    a, b = np.broadcast_arrays(a, b)
    if a.dtype.kind not in "iu" or b.dtype.kind not in "iu":
        return np.power(a, b)
    return np.where(b >= 0, np.power(a, np.maximum(b, 0)), np.where(abs(a) == 1, a ** (b & 1), 0))


def shift(function: Callable[..., Array], rest: int) -> Callable[..., Array]:
    """Too far a shift leaves `rest` of a negative number and 0 of others."""
    return lambda a, b: np.where((b >= 0) & (b < 64), function(np.int64(a), np.int64(b) & 63), np.where(a < 0, rest, 0))


def sigmoid(x: Array) -> Array:
    e = np.exp(-abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


def along(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x, dims: function(x, axis=dims, keepdims=True)


def places(x: Array, index: Array, dim: int) -> tuple[Array, ...]:
    """Where each element of `index` points in x. A negative one counts from the end."""
    size = x.shape[dim] if x.ndim else 1
    wrong = index[(index < -size) | (index >= size)]
    if wrong.size:
        raise IndexOutOfBounds(int(wrong[0]), size)
    return tuple(index % size if d == dim else at for d, at in enumerate(np.indices(index.shape)))


def scatter(out: Array, index: Array, src: Array, dim: int) -> None:
    out[places(out, index, dim)] = src


def scatter_add(out: Array, index: Array, src: Array, dim: int) -> None:
    total = wide(out).copy()
    np.add.at(total, places(out, index, dim), wide(src))
    out[...] = total


def sort(values: Array, indices: Array, x: Array, dim: int, descending: bool) -> None:
    """Stable both ways: the last of equals is the first from behind."""
    x, n = (x, x.shape[dim]) if x.ndim else (x.reshape(1), 1)
    order = np.argsort(np.flip(wide(x), dim) if descending else wide(x), dim, kind="stable")
    order = np.flip(n - 1 - order, dim) if descending else order
    values[...] = np.take_along_axis(x, order, dim).reshape(values.shape)
    indices[...] = order.reshape(indices.shape)


def random(out: Array, seed: int, offset: int, kind: str) -> None:
    draw = philox.KINDS[kind, str(out.dtype)]
    out[...] = draw(philox.words(seed, offset, 0, out.size // 2 + 1)).reshape(-1)[: out.size].reshape(out.shape)


WRITERS: dict[str, Callable[..., None]] = {
    "scatter": scatter, "scatter_add": scatter_add, "sort": sort, "random": random,
    "copy": lambda out, x: np.copyto(out, x != 0 if out.dtype == bool else x, "unsafe"),
    "arange": lambda out, start, step: np.copyto(out, start + np.arange(out.size) * step, "unsafe"),
}  # fmt: skip
KERNELS: dict[str, Callable[..., Any]] = {
    **{n: getattr(np, n) for n in "abs exp expm1 log log1p log2 log10 sqrt sin cos tan sinh cosh tanh".split()},
    **{n: getattr(np, f"arc{n[1:]}") for n in "asin acos atan asinh acosh atanh".split()},
    **{n: getattr(np, n) for n in "floor ceil round trunc floor_divide remainder maximum minimum where matmul".split()},
    **{n: getattr(np, n) for n in "bitwise_and bitwise_or bitwise_xor".split()},
    **{n: along(getattr(np, n)) for n in "sum prod amax amin any all".split()},
    "sign": lambda x: np.sign(x * 1), "neg": np.negative, "bitwise_not": np.invert, "sigmoid": sigmoid,
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": power, "atan2": np.arctan2,
    "bitwise_left_shift": shift(np.left_shift, 0), "bitwise_right_shift": shift(np.right_shift, -1),
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "fill": lambda value: value, "cumsum": lambda x, dim: np.cumsum(x, dim) if x.ndim else x,
    "argmax": lambda x, dims: np.argmax(x, dims[0], keepdims=True) if dims else 0,
    "argmin": lambda x, dims: np.argmin(x, dims[0], keepdims=True) if dims else 0,
    "gather": lambda x, index, dim: x[places(x, index, dim)], "erf": np.vectorize(math.erf, otypes=[float]), **WRITERS,
}  # fmt: skip
