"""Recording: backends that note every kernel call, and plan caches of kernels that do.

While a thread records, each device's backend is replaced by one that passes everything on, and the plan caches hold
plans that were made of its kernels. Other threads go on; their calls are passed on and not noted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import contextmanager
from importlib import import_module
from itertools import count
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any

from .. import switches
from ..backend.contract import unseen
from ..device import known_devices
from ..dispatch import kernels
from ..dispatch import plan as planning
from ..dispatch.traced import plain
from ..library import op as library_op
from ..living import Newborn
from ..settings import on_change
from .python import note

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..backend.contract import Backend, Kernel, Operand
    from ..device import Device
    from .recorder import Recorder

active: Recorder | None = None
"""The recorder at work. There is one at a time in a process."""

turn: object = None
"""Whose turn it is to record: what was taken by `take`. Who took it gives it back in a `finally`, without a call, in
which Ctrl-C could come."""
_taking = Lock()


def take(mine: object) -> bool:
    """Makes it the turn of `mine`, an object of the caller's own, unless another thread records."""
    global turn
    with _taking:
        if turn is None:
            turn = mine
    return turn is mine


def recorder_here() -> Recorder | None:
    """The recorder at work, if it records this thread."""
    found = active
    return found if found is not None and found.thread == get_ident() else None


class Compiled:
    """A kernel, and what it was compiled for."""

    __slots__ = ("attrs", "backend", "kernel", "op", "operands", "own")

    def __init__(
        self,
        op: str,
        operands: tuple[Operand, ...],
        attrs: Mapping[str, Any],
        kernel: Kernel,
        backend: Backend,
        own: bool = True,
    ) -> None:
        self.op, self.operands, self.attrs, self.kernel, self.backend = op, operands, attrs, kernel, backend
        self.own = own  # whether the backend's `compile` made it

    def noted(self) -> Kernel:
        """The kernel, and what the recorder is told of its calls."""
        kernel = self.kernel

        def call(*args: Any) -> None:
            recorder = active
            kernel(*(args if recorder is None else [plain(x) for x in args]))  # no tuple that grows while gc sees it
            if recorder is not None:
                if recorder.thread == get_ident():
                    recorder.called(self, args)
                else:
                    recorder.others = True

        return call

    def noted_as_one(self) -> Kernel:
        """The same for a kernel that copies and calls others itself."""
        kernel = self.kernel

        def call(*args: Any) -> None:
            recorder = recorder_here()
            if recorder is None:
                kernel(*args)
                return
            recorder.hidden += 1
            try:
                kernel(*[plain(x) for x in args])
            finally:
                recorder.hidden -= 1
            recorder.called(self, args)

        return call


class RecordingBackend:
    """A backend, and what is noted of its use by the thread that records."""

    def __init__(self, real: Backend) -> None:
        self.real = real
        self.kept = real.kept - {"fused"}  # what is recorded is fused when it is known what comes after it

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def compile(self, op: str, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel | None:
        kernel = self.real.compile(op, operands, attrs)
        if kernel is None:
            return None
        return Compiled(op, operands, attrs, kernel, self.real).noted()

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

    def data_ptr(self, buffer: Any) -> int:
        recorder = recorder_here()
        if recorder is not None and not recorder.hidden:  # what a library does there is not seen
            recorder.refuse("a tensor's address is read by Python")
        return self.real.data_ptr(buffer)

    def _read(self, buffer: Any) -> None:
        recorder = recorder_here()
        if recorder is not None:
            recorder.read(buffer)


def _refuse_unseen(what: str) -> None:
    recorder = recorder_here()
    if recorder is not None and not recorder.hidden:
        recorder.refuse(f"{what} gives the device work that no recording sees")


unseen.append(_refuse_unseen)


def _note(method: Any, owner: Any, args: Any, kwargs: Any) -> Any:
    recorder = recorder_here()
    if recorder is None or recorder.inside is not None or recorder.refusal is not None:
        return method(owner, *args, **kwargs)
    return note(recorder, method, owner, args, kwargs)


def _note_op(op: Any, args: Any, kwargs: Any) -> Any:
    return import_module(f"{__package__}.opaque").run_op(op, args, kwargs)  # which stands above


_backends: dict[int, RecordingBackend] = {}
_changes = count(1)


def _forget() -> None:
    """Kernels are compiled anew from now on, those of programs too."""
    planning.forget_plans_aside()
    _backends.clear()
    switches.switched(None, "settings", 0, next(_changes))


on_change(_forget)


def _of_others(
    op: str, device: Device, operands: tuple[Operand, ...], attrs: Mapping[str, Any], kernel: Kernel, whose: str
) -> Kernel:
    """A kernel that is not the backend's: that of an op's own package, or of the fallback on the CPU."""
    if whose == kernels.OWN:
        return kernel
    backend = device.backend
    return Compiled(op, operands, attrs, kernel, getattr(backend, "real", backend), False).noted_as_one()


_inside = False
"""Whether the plan caches hold what they hold while a thread records."""


def _swap_plans(inside: bool) -> None:
    """Exchanges what the plan caches hold for what they held when this was last called."""
    global _inside
    if _inside is inside:
        return
    try:
        planning.exchange_plans()
        _inside = inside
    except BaseException:  # Ctrl-C in the middle
        planning.forget_plans()
        planning.forget_plans_aside()
        _inside = inside
        raise


def _restore(devices: list[tuple[Device, Backend]]) -> None:
    global active
    active = switches.noting = library_op.noting = None
    _swap_plans(False)
    kernels.watchers = tuple([watcher for watcher in kernels.watchers if watcher is not _of_others])
    for device, backend in devices:
        device._backend = backend


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Within this context what the calling thread has computed is noted by `recorder`. The caller holds the lock: one
    thread at a time records."""
    global active
    devices = [
        (device, getattr(device._backend, "real", device._backend))
        for device in known_devices.values()
        if device._backend is not None and device.type != "meta"
    ]
    try:
        # The caches are changed last and put back first: a plan that another thread makes meanwhile of a kernel that
        # notes its calls does no harm, one that this thread makes of another kind would be missing.
        for device, backend in devices:
            found = _backends.get(id(backend))
            if found is None or found.real is not backend:
                found = _backends[id(backend)] = RecordingBackend(backend)
            device._backend = found  # type: ignore[assignment]
        kernels.watchers = (*kernels.watchers, _of_others)
        _swap_plans(True)
        active = recorder
        switches.noting, library_op.noting = _note, _note_op
        switches.recorded_since = recorder.start
        recorder.newborn = Newborn()
        yield
    finally:
        if recorder.newborn is not None:
            recorder.newborn.over()
        try:
            _restore(devices)
        except KeyboardInterrupt:
            _restore(devices)
            raise
