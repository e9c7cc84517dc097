"""Running an op that a device lacks on the CPU: only where the user allowed it, and counted."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .. import settings
from ..backend.contract import TWO_OUTPUTS, Kernel, Operand
from ..device import CPU
from ..errors import BackendError
from ..spec import span
from .failure import provider

if TYPE_CHECKING:
    from ..device import Device

_allowed: bool | None = None


class FallbackCount:
    """What the fallback of one op on one device has cost: calls, and bytes moved between device and host."""

    def __init__(self) -> None:
        self.calls = self.bytes_moved = 0

    def __repr__(self) -> str:
        return f"FallbackCount(calls={self.calls}, bytes_moved={self.bytes_moved})"


counts: dict[tuple[str, str], FallbackCount] = {}
"""By (op, device type)."""


def set_cpu_fallback(allowed: bool) -> None:
    """Sets whether ops that a device lacks may run on the CPU (`allowed`). Off by default; `NORCH_CPU_FALLBACK=1` sets
    it too.
    """
    global _allowed
    _allowed = bool(allowed)
    settings.changed()


def is_cpu_fallback_allowed() -> bool:
    """Whether ops that a device lacks may run on the CPU: what `set_cpu_fallback` set, else NORCH_CPU_FALLBACK."""
    return os.environ.get("NORCH_CPU_FALLBACK", "") == "1" if _allowed is None else _allowed


def cpu_fallback(name: str, device: Device, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel:
    """A kernel that moves its operands to the CPU, runs there, and moves the results back.

    Raises BackendError where the fallback is not allowed, or the CPU lacks the op too.
    """
    described = ", ".join(o.dtype.name + str(list(o.shape)) for o in operands)
    if device.type == "cpu" or not is_cpu_fallback_allowed():
        advice = "" if device.type == "cpu" else "; norch.set_cpu_fallback(True) lets it run on the CPU"
        raise BackendError(f"{provider(device)} has no kernel {name}({described}){advice}")
    kernel = CPU.backend.compile(name, operands, attrs)
    if kernel is None:
        raise BackendError(f"{provider(device)} has no kernel {name}({described}), nor has the CPU")
    run, backend, host = kernel, device.backend, CPU.backend
    count = counts.setdefault((name, device.type), FallbackCount())
    outputs = 2 if name in TWO_OUTPUTS else 1

    def fallback(*args: Any) -> None:
        flat: list[Any] = []
        back = []
        at = 0
        count.calls += 1
        for i, operand in enumerate(operands):
            if operand.is_scalar:
                flat.append(args[at])
                at += 1
                continue
            size = operand.dtype.itemsize
            nbytes, start = span(operand.shape, operand.strides) * size, args[at + 1] * size
            staged = host.allocate(nbytes, 0)
            memory = host.host_view(staged)
            assert memory is not None
            # An output is fetched too: its layout may have gaps, and what lies in them must survive.
            backend.copy_out(args[at], start, memory[:nbytes])
            count.bytes_moved += nbytes
            if i < outputs:
                back.append((args[at], start, memory[:nbytes]))
            flat += (staged, 0)
            at += 2
        run(*flat)
        for buffer, start, memory in back:
            backend.copy_in(buffer, start, memory)
            count.bytes_moved += memory.nbytes

    return fallback
