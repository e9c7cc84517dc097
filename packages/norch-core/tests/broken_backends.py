"""Backends that are each wrong in one way, for the tests of the conformance kit: memory, values, dtypes and layouts.

`broken_contract` adds those of the levels above to the same table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from norch.dtype import bfloat16, float16, float32, int64, uint8
from norch.numpy_backend.backend import HostBuffer, NumpyBackend

FAULTS: dict[str, tuple[int, str, type[NumpyBackend]]] = {}
"""By what is wrong: the level that must catch it, an op to try (several, separated by commas), and the backend."""


def view(operand: Any, buffer: HostBuffer, offset: int) -> Any:
    size = operand.dtype.itemsize
    strides = tuple(s * size for s in operand.strides)
    return np.ndarray(operand.shape, operand.dtype.numpy, buffer.data, offset * size, strides)


class Broken(NumpyBackend):
    """The reference under a name of its own, its memory hidden."""

    device_type = "broken"

    def host_view(self, buffer: Any) -> Any:
        return None

    def from_host(self, data: Any) -> Any:
        return None


def fault(level: int, ops: str, what: str) -> Callable[[type[NumpyBackend]], type[NumpyBackend]]:
    def add(backend: type[NumpyBackend]) -> type[NumpyBackend]:
        FAULTS[what] = level, ops, backend
        return backend

    return add


def wrong_kernel(level: int, ops: str, what: str, **only: Any) -> Callable[[Any], Any]:
    """A backend whose kernels of `ops` are `function(operands, attrs, good)(*args)`, `good` being the right kernel."""

    def add(function: Any) -> Any:
        names = ops.split(",")

        class Wrong(Broken):
            def compile(self, op: str, operands: Any, attrs: Any) -> Any:
                good = super().compile(op, operands, attrs)
                return function(operands, attrs, good) if op in names else good

        FAULTS[what] = level, ops, Wrong
        return function

    return add


# --- Level 1: memory ------------------------------------------------------------------------------------------------


@fault(1, "memory", "copy_out starts at 0 whatever its offset")
class CopiesOutFromZero(Broken):
    def copy_out(self, buffer: Any, offset: int, data: memoryview) -> None:
        super().copy_out(buffer, 0, data)


@fault(1, "memory", "copy ignores the source's offset")
class CopiesFromZero(Broken):
    def copy(self, out: Any, out_offset: int, source: Any, source_offset: int, nbytes: int) -> None:
        super().copy(out, out_offset, source, 0, nbytes)


@fault(1, "memory", "memory that is in use is given out again")
class SharesMemory(Broken):
    def __init__(self) -> None:
        self.pool: dict[int, Any] = {}

    def allocate(self, nbytes: int, index: int) -> Any:
        if nbytes > 1 << 30:
            raise MemoryError
        return HostBuffer(self.pool.setdefault(nbytes, np.empty(nbytes, np.uint8)))


@fault(1, "memory", "copy_in writes whole words")
class RoundsUp(Broken):
    def copy_in(self, buffer: Any, offset: int, data: memoryview) -> None:
        super().copy_in(buffer, offset, data)
        end = offset + data.nbytes
        buffer.data[end : min(-(-end // 4) * 4, buffer.nbytes)] = 0


# --- Level 2: values ------------------------------------------------------------------------------------------------


@wrong_kernel(2, "add", "the last element is not written")
def last_element(operands: Any, attrs: Any, good: Any) -> Any:
    def kernel(*args: Any) -> None:
        out = view(operands[0], *args[:2])
        before = out[(-1,) * out.ndim].copy()
        good(*args)
        out[(-1,) * out.ndim] = before

    return kernel


@wrong_kernel(2, "amax", "NaN is dropped in max")
def dropped_nan(operands: Any, attrs: Any, good: Any) -> Any:
    def kernel(*args: Any) -> None:
        x = view(operands[1], *args[2:])
        least = np.where(np.isnan(x), -np.inf, x) if x.dtype.kind == "f" else x
        view(operands[0], *args[:2])[...] = least.max(attrs["dims"], keepdims=True)

    return kernel


@wrong_kernel(2, "argmax", "the last of equals is found")
def last_of_equals(operands: Any, attrs: Any, good: Any) -> Any:
    def kernel(*args: Any) -> None:
        x = view(operands[1], *args[2:])
        if not x.ndim:
            return good(*args)
        (dim,) = attrs["dims"]
        found = x.shape[dim] - 1 - np.argmax(np.flip(x, dim), dim, keepdims=True)
        view(operands[0], *args[:2])[...] = found

    return kernel


@wrong_kernel(2, "sort", "sorting is not stable")
def unstable(operands: Any, attrs: Any, good: Any) -> Any:
    def kernel(*args: Any) -> None:
        good(*args)
        values, indices = view(operands[0], *args[:2]), view(operands[1], *args[2:4])
        if values.ndim == 1 and values.size > 1:
            ties = np.flatnonzero(values[1:] == values[:-1])
            for i in ties[:1]:
                indices[i], indices[i + 1] = indices[i + 1], indices[i]

    return kernel


@wrong_kernel(2, "gather", "a negative index counts from the start")
def negative_index(operands: Any, attrs: Any, good: Any) -> Any:
    def kernel(*args: Any) -> None:
        index = view(operands[2], *args[4:])
        given = HostBuffer(np.abs(index).astype(np.int64).reshape(-1).view(np.uint8).copy())
        fitting = np.minimum(np.abs(index), operands[1].shape[attrs["dim"]] - 1 if operands[1].shape else 0)
        given.data[...] = np.ascontiguousarray(fitting).reshape(-1).view(np.uint8)
        plain = NumpyBackend().compile("gather", (*operands[:2], dense(operands[2])), attrs)
        plain(*args[:4], given, 0)

    return kernel


def dense(operand: Any) -> Any:
    from norch.spec import contiguous_strides

    return operand._replace(strides=contiguous_strides(operand.shape))


@wrong_kernel(2, "erf", "erf is good to four digits")
def rough(operands: Any, attrs: Any, good: Any) -> Any:
    def kernel(*args: Any) -> None:
        good(*args)
        out = view(operands[0], *args[:2])
        out[...] = np.round(out.astype(np.float64), 4)

    return kernel


@wrong_kernel(2, "random", "random numbers begin with another counter")
def other_stream(operands: Any, attrs: Any, good: Any) -> Any:
    return lambda out, at, seed, offset: good(out, at, seed, offset + 1)


@wrong_kernel(2, "matmul", "the last of the elements to add is left out")
def short_product(operands: Any, attrs: Any, good: Any) -> Any:
    def kernel(*args: Any) -> None:
        a, b = view(operands[1], *args[2:4]), view(operands[2], *args[4:])
        view(operands[0], *args[:2])[...] = a[..., :-1] @ b[..., :-1, :]

    return kernel


@wrong_kernel(2, "where", "the two choices are exchanged")
def exchanged(operands: Any, attrs: Any, good: Any) -> Any:
    return lambda *args: good(*args[:4], *args[6:], *args[4:6])


@fault(2, "tanh", "a primitive has no kernel")
class Lacks(Broken):
    def compile(self, op: str, operands: Any, attrs: Any) -> Any:
        return None if op == "tanh" else super().compile(op, operands, attrs)


# --- Level 3: dtypes ------------------------------------------------------------------------------------------------


@wrong_kernel(3, "sum", "sums of int64 are added up in float32")
def wrong_dtype(operands: Any, attrs: Any, good: Any) -> Any:
    def kernel(*args: Any) -> None:
        good(*args)
        if operands[0].dtype is uint8:
            out = view(operands[0], *args[:2])
            out[...] = np.minimum(view(operands[1], *args[2:]).sum(attrs["dims"], keepdims=True, dtype=int), 255)

    return kernel


@wrong_kernel(3, "lt", "uint8 is compared as if it had a sign")
def signed(operands: Any, attrs: Any, good: Any) -> Any:
    if operands[1].dtype is not uint8:
        return good

    def kernel(*args: Any) -> None:
        if len(args) == 6:
            a, b = (view(o, *args[i : i + 2]).astype(np.int8) for o, i in ((operands[1], 2), (operands[2], 4)))
            view(operands[0], *args[:2])[...] = a < b
        else:
            good(*args)

    return kernel


@wrong_kernel(3, "add", "int64 goes through float64")
def through_float(operands: Any, attrs: Any, good: Any) -> Any:
    if operands[0].dtype is not int64 or any(o.is_scalar for o in operands):
        return good

    def kernel(*args: Any) -> None:
        a, b = (view(o, *args[i : i + 2]).astype(np.float64) for o, i in ((operands[1], 2), (operands[2], 4)))
        view(operands[0], *args[:2])[...] = (a + b).astype(np.int64)

    return kernel


@wrong_kernel(3, "sum", "float16 is added up in float16")
def short_sum(operands: Any, attrs: Any, good: Any) -> Any:
    if operands[0].dtype not in (float16, bfloat16):
        return good

    def kernel(*args: Any) -> None:
        x = view(operands[1], *args[2:])
        total = np.zeros(operands[0].shape, x.dtype)
        for place in np.ndindex(x.shape):
            at = tuple(0 if d in attrs["dims"] else i for d, i in enumerate(place))
            total[at] = (total[at] + x[place]).astype(x.dtype)
        view(operands[0], *args[:2])[...] = total

    return kernel


@wrong_kernel(3, "copy", "bfloat16 is cut off, not rounded")
def cut_off(operands: Any, attrs: Any, good: Any) -> Any:
    if operands[0].dtype is not bfloat16 or operands[1].dtype is not float32:
        return good

    def kernel(*args: Any) -> None:
        bits = view(operands[1], *args[2:]).copy().view(np.uint32) >> 16
        view(operands[0], *args[:2])[...] = bits.astype(np.uint16).view(bfloat16.numpy)

    return kernel


@wrong_kernel(3, "floor_divide", "whole numbers are divided as in C")
def as_in_c(operands: Any, attrs: Any, good: Any) -> Any:
    if operands[0].dtype.is_floating_point or any(o.is_scalar for o in operands):
        return good

    def kernel(*args: Any) -> None:
        a, b = (view(o, *args[i : i + 2]).astype(np.int64) for o, i in ((operands[1], 2), (operands[2], 4)))
        quotient = np.abs(a) // np.maximum(np.abs(b), 1)
        view(operands[0], *args[:2])[...] = np.where((a < 0) ^ (b < 0), -quotient, quotient)

    return kernel


# --- Level 4: layouts -----------------------------------------------------------------------------------------------


def ignoring(change: Callable[[Any], Any]) -> Callable[..., Any]:
    """Kernels for operands that are not the ones given."""

    def kernel(operands: Any, attrs: Any, good: Any) -> Any:
        changed = (operands[0], *(o if o.is_scalar else change(o) for o in operands[1:]))
        return NumpyBackend().compile("exp" if len(operands) == 2 else "mul", changed, attrs)

    return kernel


wrong_kernel(4, "exp", "strides are ignored")(ignoring(dense))
wrong_kernel(4, "mul", "a broadcast dim is read as if it were dense")(
    ignoring(lambda o: dense(o) if 0 in o.strides and len(o.shape) > 1 else o)
)


@wrong_kernel(4, "exp", "the offset is ignored")
def no_offset(operands: Any, attrs: Any, good: Any) -> Any:
    return lambda out, at, x, start: good(out, at, x, 0)


@wrong_kernel(4, "add", "the output's strides are ignored")
def dense_output(operands: Any, attrs: Any, good: Any) -> Any:
    return NumpyBackend().compile("add", (dense(operands[0]), *operands[1:]), attrs)


@wrong_kernel(4, "sum", "nothing is written where there is nothing to add")
def no_write(operands: Any, attrs: Any, good: Any) -> Any:
    return (lambda *args: None) if 0 in operands[1].shape else good
