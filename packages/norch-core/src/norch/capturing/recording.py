"""Recording: backends that note every kernel call, and plan caches of kernels that do.

While a thread records, each device's backend is replaced by one that passes everything on, and the plan caches hold
plans that were made of its kernels. Other threads go on; their calls are passed on and not noted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import contextmanager
from itertools import count
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any

from .. import switches
from ..device import known_devices
from ..dispatch import plan as planning
from ..settings import on_change

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..backend.contract import Backend, Kernel, Operand
    from .recorder import Recorder

active: Recorder | None = None
"""The recorder at work. There is one at a time in a process."""

recording_lock = Lock()


def recorder_here() -> Recorder | None:
    """The recorder at work, if it records this thread."""
    found = active
    return found if found is not None and found.thread == get_ident() else None


class Compiled:
    """A kernel, and what it was compiled for."""

    __slots__ = ("attrs", "backend", "kernel", "op", "operands")

    def __init__(
        self, op: str, operands: tuple[Operand, ...], attrs: Mapping[str, Any], kernel: Kernel, backend: Backend
    ) -> None:
        self.op, self.operands, self.attrs, self.kernel, self.backend = op, operands, attrs, kernel, backend


class RecordingBackend:
    """A backend, and what is noted of its use by the thread that records."""

    def __init__(self, real: Backend) -> None:
        self.real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def compile(self, op: str, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel | None:
        kernel = self.real.compile(op, operands, attrs)
        if kernel is None:
            return None
        compiled = Compiled(op, operands, attrs, kernel, self.real)

        def call(*args: Any) -> None:
            kernel(*args)
            recorder = recorder_here()
            if recorder is not None:
                recorder.called(compiled, args)

        return call

    def allocating(self, kernel: Kernel, nbytes: int, index: int) -> Callable[..., Any]:
        allocate = self.allocate

        def call(*args: Any) -> Any:
            buffer = allocate(nbytes, index)
            kernel(buffer, 0, *args)
            return buffer

        return call

    def allocate(self, nbytes: int, index: int) -> Any:
        buffer = self.real.allocate(nbytes, index)
        recorder = recorder_here()
        if recorder is not None:
            recorder.allocated(buffer, nbytes, self.real, index)
        return buffer

    def from_host(self, data: memoryview) -> Any:
        buffer = self.real.from_host(data)
        recorder = recorder_here()
        if recorder is not None and buffer is not None:
            recorder.made_of_host_data(buffer, data, self.real)
        return buffer

    def copy_in(self, buffer: Any, offset: int, data: memoryview) -> None:
        self.real.copy_in(buffer, offset, data)
        recorder = recorder_here()
        if recorder is not None:
            recorder.copied_in(buffer, offset, data, self.real)

    def copy(self, out: Any, out_offset: int, source: Any, source_offset: int, nbytes: int) -> None:
        self.real.copy(out, out_offset, source, source_offset, nbytes)
        recorder = recorder_here()
        if recorder is not None:
            compiled = Compiled("copy_bytes", (), {}, self.real.copy, self.real)
            recorder.copied(compiled, (out, out_offset, source, source_offset, nbytes))

    def copy_out(self, buffer: Any, offset: int, data: memoryview) -> None:
        self._read(buffer)
        self.real.copy_out(buffer, offset, data)

    def copy_out_later(self, buffer: Any, offset: int, data: memoryview) -> None:
        self._read(buffer)
        self.real.copy_out_later(buffer, offset, data)

    def host_view(self, buffer: Any) -> memoryview | None:
        self._read(buffer)
        return self.real.host_view(buffer)

    def _read(self, buffer: Any) -> None:
        recorder = recorder_here()
        if recorder is not None:
            recorder.read(buffer)


_backends: dict[int, RecordingBackend] = {}
_changes = count(1)
_plans: dict[Any, tuple[dict[Any, Any], dict[Any, Any]]] = {}
"""What the plan caches hold while a thread records, kept for the next recording."""


def _forget() -> None:
    """Kernels are compiled anew from now on, those of programs too."""
    _plans.clear()
    _backends.clear()
    switches.switched(None, "settings", 0, next(_changes))


on_change(_forget)


def _swap_plans() -> None:
    """Exchanges what the plan caches hold for what they held when this was last called."""
    for plans in tuple(planning._caches):
        there = dict(plans), plans.old
        found, old = _plans.get(plans, ({}, {}))
        plans.clear()
        plans.update(found)
        plans.old = old
        _plans[plans] = there


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Within this context what the calling thread has computed is noted by `recorder`. One thread at a time records."""
    global active
    with recording_lock:
        devices = [device for device in known_devices.values() if device._backend is not None and device.type != "meta"]
        real = [device._backend for device in devices]
        # The caches are changed last and put back first: a plan that another thread makes meanwhile of a kernel that
        # notes its calls does no harm, one that this thread makes of another kind would be missing.
        for device, backend in zip(devices, real, strict=True):
            assert backend is not None
            found = _backends.get(id(backend))
            if found is None or found.real is not backend:
                found = _backends[id(backend)] = RecordingBackend(backend)
            device._backend = found  # type: ignore[assignment]
        _swap_plans()
        active = recorder
        try:
            yield
        finally:
            active = None
            _swap_plans()
            for device, backend in zip(devices, real, strict=True):
                device._backend = backend
