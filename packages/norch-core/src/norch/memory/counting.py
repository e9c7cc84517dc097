"""Devices that stand for real ones in a dry run: they count bytes, allocate none, and their kernels do nothing.

A stand-in has the type and the index of the device that it stands for, and asks its backend which ops it has kernels
for, so that composites fall apart on both alike.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import RLock, get_ident
from typing import Any

from .. import settings
from ..backend.contract import PRIMITIVES, Backend, Buffer, Kernel, Operand
from ..device import Device, set_stand_in
from ..errors import MetaError
from ..ops import creation
from ..ops.generator import default_generator


class StandIn(Device):
    """The device that stands for another one."""

    __slots__ = ()

    @property
    def is_meta(self) -> bool:
        return True


class CountedBuffer(Buffer):
    """No memory, which is counted as long as the buffer lives. `size`: the bytes that an allocator would count."""

    __slots__ = ("counter", "size")

    def __init__(self, nbytes: int, counter: CountingBackend, size: int) -> None:
        self.nbytes, self.modified, self.counter, self.size = nbytes, None, counter, size

    def __del__(self) -> None:
        self.counter.used -= self.size


def _nothing(*args: Any) -> None:
    """The kernel of every op."""


class CountingBackend(Backend):
    """used: bytes in use. peak: the most there were since it was last set."""

    def __init__(self, real: Backend) -> None:
        self.real = real
        self.device_type = real.device_type
        self.channels_last, self.kept = real.channels_last, real.kept
        self.missing_dtypes = real.missing_dtypes
        self.used = self.peak = 0
        self.rounded = getattr(getattr(real, "module", None), "allocated_size", None)
        self.scratch_of = getattr(real, "scratch_bytes", None)

    def device_count(self) -> int:
        return self.real.device_count()

    def size_of(self, nbytes: int) -> int:
        """What the real allocator counts for a buffer of that many bytes."""
        return nbytes if self.rounded is None else int(self.rounded(nbytes))

    def allocate(self, nbytes: int, index: int) -> CountedBuffer:
        size = self.size_of(nbytes)
        self.used += size
        if self.used > self.peak:
            self.peak = self.used
        return CountedBuffer(nbytes, self, size)

    def copy_in(self, buffer: Any, offset: int, data: memoryview) -> None:
        return None

    def copy_out(self, buffer: Any, offset: int, data: memoryview) -> None:
        if data.nbytes:
            raise MetaError("copy_out")

    def copy(self, out: Any, out_offset: int, source: Any, source_offset: int, nbytes: int) -> None:
        return None

    def compile(self, op: str, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel | None:
        if op in PRIMITIVES:
            return _nothing
        kernel = self.real.compile(op, operands, attrs)
        if kernel is None:
            return None
        scratch = 0 if self.scratch_of is None else self.scratch_of(kernel)
        return self._taking(self.size_of(scratch)) if scratch else _nothing

    def _taking(self, scratch: int) -> Kernel:
        """The kernel of an op that takes memory while it runs."""

        def kernel(*args: Any) -> None:
            self.peak = max(self.peak, self.used + scratch)

        return kernel


_stand_ins: dict[Device, StandIn] = {}
settings.on_change(_stand_ins.clear)
_one_at_a_time = RLock()


def stand_in_for(device: Device) -> Device:
    """The device that counts for `device`; "meta", which has no bytes, stands for itself."""
    if device.is_meta:
        return device
    found = _stand_ins.get(device)
    if found is None:
        found = object.__new__(StandIn)
        real = getattr(device.backend, "real", device.backend)  # while norch.capture records
        found.type, found.index, found._backend = device.type, device.index, CountingBackend(real)
        _stand_ins[device] = found
    return found


def counters() -> dict[str, CountingBackend]:
    """By the names of the devices that are stood for so far, what counts there."""
    return {str(device): found._backend for device, found in _stand_ins.items()}  # type: ignore[misc]


@contextmanager
def counting() -> Iterator[None]:
    """Within it this thread gets the stand-in of each device that it asks for, by name or as the default.

    Random numbers are drawn afterwards as if nothing had been drawn within. The garbage collector does not run: what it
    frees of an earlier run would be missing in what this one holds.
    """
    thread = get_ident()

    def stand_in(device: Device) -> Device:
        return stand_in_for(device) if get_ident() == thread else device

    with _one_at_a_time:
        drawn = default_generator._state()
        before = set_stand_in(stand_in)
        creation._specs.clear()
        collecting = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if collecting:
                gc.enable()
            set_stand_in(before)
            if default_generator._state() != drawn:
                default_generator.set_state(drawn)
