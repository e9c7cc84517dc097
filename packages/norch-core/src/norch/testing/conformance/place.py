"""Operands for kernels: values laid out in device memory, between bytes that nobody may touch."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ...backend.contract import Operand
from ...device import Device
from ...dtype import FLOATING, DType, as_dtype
from ...spec import contiguous_strides

Array = Any
GUARD, POISON = 0xA5, 0x55
AROUND = 64  # bytes that are not the operand's, behind it and, where it has an offset, before it

LAYOUTS = ("dense", "offset", "transposed", "stepped", "pitched", "broadcast")
"""How an operand may lie: densely, from the start of its buffer; the same further on; with reversed strides; further on
with gaps between all elements; further on with gaps between rows; the first dim repeated with stride 0 (inputs)."""


@dataclass(frozen=True)
class Place:
    """A tensor operand of a kernel: dtype, shape and how it lies in memory (a word of LAYOUTS)."""

    dtype: str
    shape: tuple[int, ...]
    layout: str = "dense"

    @property
    def type(self) -> DType:
        return as_dtype(self.dtype)

    @property
    def offset(self) -> int:
        """Of the first element, in elements."""
        return AROUND // self.type.itemsize + 3 if self.layout in ("offset", "stepped", "pitched") else 0

    @property
    def strides(self) -> tuple[int, ...]:
        shape = self.shape
        if self.layout == "transposed":
            return contiguous_strides(shape[::-1])[::-1]
        if self.layout == "stepped":
            return tuple(2 * s for s in contiguous_strides(shape))
        if self.layout == "pitched" and shape:
            return contiguous_strides((*shape[:-1], shape[-1] + 3))
        if self.layout == "broadcast" and shape:
            return (0, *contiguous_strides(shape)[1:])
        return contiguous_strides(shape)

    @property
    def operand(self) -> Operand:
        return Operand(self.type, self.shape, self.strides)

    @property
    def nbytes(self) -> int:
        """Of a buffer with this operand and the guards around it."""
        span = 1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides)) if prod(self.shape) else 0
        return (self.offset + span) * self.type.itemsize + AROUND

    def view(self, memory: Array) -> Array:
        """The operand in a copy of its buffer's bytes."""
        size = self.type.itemsize
        strides = tuple(s * size for s in self.strides)
        return np.ndarray(self.shape, self.type.numpy, memory, self.offset * size, strides)

    def shown(self, values: Array) -> Array:
        """`values` as this layout can hold them: one that repeats its first slice has no others."""
        values = np.asarray(values).astype(self.type.numpy).reshape(self.shape)
        if self.layout == "broadcast" and values.ndim and values.shape[0]:
            return np.ascontiguousarray(np.broadcast_to(values[:1], values.shape))
        return values

    def memory(self, values: Array = None, *, poisoned: bool = False) -> Array:
        """Bytes for a buffer: guards, and in them `values`, zeros, or what no kernel may leave there."""
        found = np.full(self.nbytes, GUARD, np.uint8)
        view = self.view(found)
        if values is not None:
            view[...] = values
        elif not poisoned:
            view[...] = np.zeros((), self.type.numpy)
        elif self.type.category == FLOATING:
            view[...] = np.nan
        else:
            view[...] = np.frombuffer(bytes([POISON]) * 8, self.type.numpy if self.dtype != "bool" else np.uint8)[0]
        return found

    def outside(self, memory: Array) -> Array:
        """The bytes of a buffer that are none of the operand's."""
        size = self.type.itemsize
        inside = np.zeros(self.nbytes, np.bool_)
        strides = (*(s * size for s in self.strides), 1)
        np.ndarray((*self.shape, size), np.bool_, inside, self.offset * size, strides)[...] = True
        return memory[~inside]


@dataclass(frozen=True)
class Number:
    """A scalar operand of a kernel, passed by value."""

    dtype: str
    value: Any

    @property
    def operand(self) -> Operand:
        return Operand(as_dtype(self.dtype), (), (), True)


def put(device: Device, memory: Array) -> Any:
    """A new buffer with these bytes."""
    buffer = device.backend.allocate(memory.nbytes, device.index or 0)
    if memory.nbytes:
        device.backend.copy_in(buffer, 0, memory.data)
    return buffer


def get(device: Device, buffer: Any, nbytes: int) -> Array:
    """The bytes of a buffer, after all work on it."""
    memory = np.zeros(nbytes, np.uint8)
    if nbytes:
        device.backend.copy_out(buffer, 0, memory.data)
    return memory
