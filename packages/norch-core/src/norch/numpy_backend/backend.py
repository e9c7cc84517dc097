"""NumpyBackend: host memory, and a table from primitive to kernel factory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..backend import Backend, Buffer, Kernel, Operand
from . import elementwise, indexing, linalg, random, reduction
from .views import Array, Factory

KERNELS: dict[str, Factory] = {
    **elementwise.KERNELS,
    **reduction.KERNELS,
    **linalg.KERNELS,
    **indexing.KERNELS,
    **random.KERNELS,
}


class HostBuffer(Buffer):
    """Host memory: `data` is a one-dimensional uint8 array."""

    __slots__ = ("data",)

    def __init__(self, data: Array) -> None:
        self.nbytes = data.size
        self.modified = None
        self.data = data


class NumpyBackend(Backend):
    device_type = "cpu"
    priority = -100

    def device_count(self) -> int:
        return 1

    def allocate(self, nbytes: int, index: int) -> HostBuffer:
        try:
            return HostBuffer(np.empty(nbytes, np.uint8))
        except (OverflowError, ValueError) as error:  # more than an address can hold
            raise MemoryError(f"cannot allocate {nbytes} bytes") from error

    def copy_in(self, buffer: HostBuffer, offset: int, data: memoryview) -> None:
        if data.nbytes:
            buffer.data[offset : offset + data.nbytes] = np.frombuffer(data, np.uint8)

    def copy_out(self, buffer: HostBuffer, offset: int, data: memoryview) -> None:
        if data.nbytes:
            np.frombuffer(data, np.uint8)[...] = buffer.data[offset : offset + data.nbytes]

    def copy(self, out: HostBuffer, out_offset: int, source: HostBuffer, source_offset: int, nbytes: int) -> None:
        out.data[out_offset : out_offset + nbytes] = source.data[source_offset : source_offset + nbytes]

    def compile(self, op: str, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel | None:
        factory = KERNELS.get(op)
        return None if factory is None else factory(operands, attrs)

    def data_ptr(self, buffer: HostBuffer) -> int:
        return int(buffer.data.ctypes.data)

    def host_view(self, buffer: HostBuffer) -> memoryview:
        view: memoryview = buffer.data.data
        return view

    def from_host(self, data: memoryview | Array) -> HostBuffer | None:
        """None for read-only memory, which kernels could not write, and for strided memory."""
        view = data if isinstance(data, memoryview) else data.data
        if view.readonly or not view.c_contiguous:
            return None
        return HostBuffer(np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8))
