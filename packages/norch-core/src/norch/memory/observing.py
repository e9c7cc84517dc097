"""Where allocations are observed: while something watches, each backend's `allocate` is one that tells of it.

Nothing is in the way while nothing watches: the instance attribute is gone and plans are made again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from types import FrameType, MethodType
from typing import Any, NamedTuple

from ..autograd.passes import BackwardPass
from ..backend.contract import Backend, Kernel
from ..device import Device, get_registry, known_devices, set_registry
from ..dispatch import plan as planning
from ..source_lines import Line, own_files
from ..spec import Spec


class Allocation(NamedTuple):
    """A buffer that was just made. spec: that of the tensor that it is for, where an op made it as its only result."""

    buffer: Any
    nbytes: int
    device: str
    op: str
    line: Line | None
    spec: Spec | None


_one_at_a_time = Lock()


@contextmanager
def observing(told: Callable[[Allocation], None]) -> Iterator[None]:
    """Within it `told` is called of each buffer that any thread makes through a backend.

    What captured steps take for themselves, and kernels while they run, is not made so, and is not told of.
    """
    if not _one_at_a_time.acquire(blocking=False):
        raise RuntimeError("norch.memory: allocations are being recorded already; one recording at a time")
    watched: list[Any] = []
    find = get_registry()

    def watch(backend: Any) -> Any:
        real = getattr(backend, "real", backend)  # while norch.capture records
        if not any(real is b for b in watched):
            try:
                real.allocate, real.from_host = _observed(real, told), _adopting(real, told)
                real.allocating = MethodType(_allocating, real)
            except AttributeError:  # a backend without attributes of its own: not seen
                return backend
            watched.append(real)
        return backend

    class Registry:
        """The module that finds backends, while it is watched too."""

        def __getattr__(self, name: str) -> Any:
            return getattr(find(), name)

        def find(self, device_type: str) -> Any:
            return watch(find().find(device_type))

    registry = Registry()
    try:
        for device in tuple(known_devices.values()):
            if device._backend is not None and not device.is_meta:
                watch(device._backend)
        set_registry(lambda: registry)
        planning.forget_plans()
        yield
    finally:
        set_registry(find)
        for real in watched:
            del real.allocate, real.allocating, real.from_host
        planning.forget_plans()
        _one_at_a_time.release()


def _observed(backend: Any, told: Callable[[Allocation], None]) -> Callable[[int, int], Any]:
    allocate, kind = backend.allocate, backend.device_type

    def call(nbytes: int, index: int, spec: Spec | None = None) -> Any:
        buffer = allocate(nbytes, index)
        op, line = _whence(sys._getframe(1))
        told(Allocation(buffer, nbytes, str(Device(kind, index)), op, line, spec))
        return buffer

    return call


def _adopting(backend: Any, told: Callable[[Allocation], None]) -> Callable[[Any], Any]:
    """`Backend.from_host`: the memory of an array, which a tensor then holds."""
    from_host, kind = backend.from_host, backend.device_type

    def call(data: Any) -> Any:
        buffer = from_host(data)
        if buffer is not None:
            op, line = _whence(sys._getframe(1))
            told(Allocation(buffer, buffer.nbytes, str(Device(kind, 0)), op, line, None))
        return buffer

    return call


def _allocating(backend: Backend, kernel: Kernel, nbytes: int, index: int) -> Callable[..., Any]:
    """`Backend.allocating`, which knows what it allocates for from the plan that is being made."""
    plan = sys._getframe(1).f_locals.get("plan")
    spec = getattr(plan, "out", None)
    allocate: Any = backend.allocate

    def call(*args: Any) -> Any:
        buffer = allocate(nbytes, index, spec)
        kernel(buffer, 0, *args)
        return buffer

    return call


def _whence(frame: FrameType | None) -> tuple[str, Line | None]:
    """The op that is the nearest to the user's program, and the line of that. No frame's variables are asked for,
    which would keep tensors alive."""
    op, is_backward = "", False
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith("<norch "):
            op = code.co_filename[7:-1].removeprefix("rule ")
        elif code is BackwardPass.run.__code__:
            is_backward = True
        elif not own_files[code.co_filename]:
            return f"{op} in backward" if is_backward else op, Line(code, frame.f_lasti)
        frame = frame.f_back
    return op, None
