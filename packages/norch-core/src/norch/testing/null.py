"""NullBackend: shapes and plans without hardware. What an op costs on it is what norch itself costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..backend.contract import PRIMITIVES, Backend, Kernel, Operand
from ..backend.registry import installed, register
from ..device import Device

_new = object.__new__


class NullBuffer:
    """No memory, of any size. Its defaults are the class's, so that making one costs no `__init__`."""

    modified: tuple[int, str] | None = None
    nbytes: int = 0


def _nothing(*args: Any) -> None:
    pass


class NullBackend(Backend):
    """Device type "null": every primitive compiles, and does nothing; what is read from it is zeros."""

    device_type = "null"

    def device_count(self) -> int:
        return 8

    def allocate(self, nbytes: int, index: int) -> NullBuffer:
        out: NullBuffer = _new(NullBuffer)
        out.nbytes = nbytes
        return out

    def allocating(self, kernel: Kernel, nbytes: int, index: int) -> Callable[..., NullBuffer]:
        def call(*args: Any) -> NullBuffer:
            out: NullBuffer = _new(NullBuffer)
            out.nbytes = nbytes
            return out

        return call

    def copy_in(self, buffer: Any, offset: int, data: memoryview) -> None:
        pass

    def copy_out(self, buffer: Any, offset: int, data: memoryview) -> None:
        data[:] = bytes(data.nbytes)

    def copy(self, out: Any, out_offset: int, source: Any, source_offset: int, nbytes: int) -> None:
        pass

    def compile(self, op: str, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel | None:
        return _nothing if op in PRIMITIVES else None


def null_device() -> Device:
    """The device "null", its backend registered if it was not."""
    return ensure_registered(NullBackend)


def ensure_registered(backend: type[Backend]) -> Device:
    """The device of a backend class, of which an instance is registered unless there is one already."""
    if not any(type(provider.backend) is backend for provider in installed()):  # a subclass is another device
        register(backend(), "norch-core")
    return Device(backend.device_type)
