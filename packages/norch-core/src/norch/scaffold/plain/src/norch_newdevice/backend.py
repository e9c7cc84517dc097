"""The device "newdevice": a whole backend in plain Python over NumPy. Replace the memory and the kernels by your own.

norch.backend.Backend says what each primitive must do; `norch conformance --device newdevice` says whether it does."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from norch.backend import BINARY, COMPARISON, REDUCTION, UNARY, Backend, IndexOutOfBounds, Kernel, Operand
from norch.numpy_backend import philox  # how seed and counter become random numbers is part of the contract

Array = Any
KERNELS: dict[str, Callable[..., None]] = {}


# --- Memory
class Memory:
    """Device memory. norch needs `nbytes` and `modified`, which it writes; the rest is yours."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes, self.modified, self.data = nbytes, None, np.empty(nbytes, np.uint8)


class NewDeviceBackend(Backend):
    device_type, contract = "newdevice", (1, 1)

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
            values = [next(given) if o.is_scalar else view(o, next(given), next(given)) for o in operands]
            with np.errstate(all="ignore"):
                function(*values, **attrs)

        return kernel


def view(operand: Operand, buffer: Memory, offset: int) -> Array:
    """The elements of an operand in its buffer. Offset and strides count elements."""
    shape, size = operand.shape, operand.dtype.itemsize
    if 0 in shape:
        return np.empty(shape, operand.dtype.numpy)
    return np.ndarray(shape, operand.dtype.numpy, buffer.data, offset * size, [s * size for s in operand.strides])


# --- Copy and fill
KERNELS["copy"] = lambda out, x: np.copyto(out, x != 0 if out.dtype == bool else x, "unsafe")
KERNELS["fill"] = lambda out, value: np.copyto(out, value, "unsafe")


# --- Elementwise
def upcast(x: Array) -> Array:
    """16-bit floats are computed in float32 and rounded once, when they are written."""
    return x.astype(np.float32) if getattr(x, "dtype", None) in ("float16", "bfloat16") else x


def gives(function: Callable[..., Array]) -> Callable[..., None]:
    """The kernel that writes what `function` returns."""
    return lambda out, *x, **attrs: np.copyto(out, function(*map(upcast, x), **attrs), "unsafe")


def power(a: Array, b: Array) -> Array:
    if np.result_type(a, b).kind not in "iu":
        return np.power(a, b)
    return np.where(b >= 0, np.power(a, np.maximum(b, 0)), np.where(abs(a) == 1, a ** (b & 1), 0))


OWN: dict[str, Callable[..., Array]] = {
    "div": np.divide, "bitwise_left_shift": np.left_shift, "bitwise_right_shift": np.right_shift, "pow": power,
    "sign": lambda x: np.sign(x * 1), "sigmoid": lambda x: np.exp(np.minimum(x, 0)) / (1 + np.exp(-abs(x))),
}  # fmt: skip


def named(op: str) -> Callable[..., Array]:
    """What an op is called after: in NumPy (acos may be arccos there), or in Python's operator (neg) or math (erf)."""
    found: Any = getattr(np, op, None) or getattr(np, f"arc{op[1:]}", None) or getattr(operator, op, None)
    return found or np.vectorize(getattr(math, op), otypes=[float])


KERNELS |= {op: gives(OWN.get(op) or named(op)) for op in (*UNARY, *BINARY, *COMPARISON, "where")}


# --- Reductions and matmul
def along(name: str) -> Callable[..., None]:
    function, one = getattr(np, name), name.startswith("arg")
    return gives(lambda x, dims: function(x, axis=dims[0] if one and dims else dims or None, keepdims=True))


KERNELS |= {n: along(n) for n in REDUCTION}
KERNELS |= {"matmul": gives(np.matmul), "cumsum": gives(lambda x, dim: np.cumsum(x, dim) if x.ndim else x)}


# --- Indices, sort, random numbers
def places(x: Array, index: Array, dim: int) -> tuple[Array, ...]:
    """Where each element of `index` points in x. A negative one counts from the end."""
    size = x.shape[dim] if x.ndim else 1
    wrong = index[(index < -size) | (index >= size)]
    if wrong.size:
        raise IndexOutOfBounds(int(wrong[0]), size)
    return tuple(index % size if d == dim else at for d, at in enumerate(np.indices(index.shape)))


def scatter_add(out: Array, index: Array, src: Array, dim: int) -> None:
    total = upcast(out).copy()
    np.add.at(total, places(out, index, dim), upcast(src))
    out[...] = total


def sort(values: Array, indices: Array, x: Array, dim: int, descending: bool) -> None:
    """Stable both ways: the last of equals is the first from behind."""
    x, n = (x, x.shape[dim]) if x.ndim else (x.reshape(1), 1)
    order = np.argsort(np.flip(upcast(x), dim) if descending else upcast(x), dim, kind="stable")
    order = np.flip(n - 1 - order, dim) if descending else order
    values[...] = np.take_along_axis(x, order, dim).reshape(values.shape)
    indices[...] = order.reshape(indices.shape)


def random(out: Array, seed: int, offset: int, kind: str) -> None:
    draw = philox.KINDS[kind, str(out.dtype)]
    out[...] = draw(philox.words(seed, offset, 0, out.size // 2 + 1)).reshape(-1)[: out.size].reshape(out.shape)


KERNELS |= {"scatter_add": scatter_add, "sort": sort, "gather": gives(lambda x, index, dim: x[places(x, index, dim)])}
KERNELS |= {"scatter": lambda out, index, src, dim: out.__setitem__(places(out, index, dim), src), "random": random}
KERNELS["arange"] = lambda out, start, step: np.copyto(out, start + np.arange(out.size) * step, "unsafe")
