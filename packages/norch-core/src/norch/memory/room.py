"""How much memory a device has, and how much of it is free."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..device import Device


def free_memory(device: Device) -> int | None:
    """Bytes that can still be allocated on a device, those that its allocator keeps for later included; None where
    the device does not say."""
    module = getattr(device.backend, "module", None)
    if device.type == "cpu":
        free = free_host_memory()
        stats = getattr(module, "memory_stats", None)
        return None if free is None else free + (stats()["cached_bytes"] if stats else 0)
    ask = getattr(module, "mem_get_info", None)
    if ask is None:
        return None
    free = ask(device)[0]
    stats = getattr(module, "memory_stats", None)
    if stats is not None:
        found = stats(device)
        free += found.get("reserved_bytes", 0) - found.get("allocated_bytes", 0)
    return int(free)


def free_host_memory() -> int | None:
    """What the system says is available, or less where this process or its control group (a container) is limited."""
    found = [_available(), _of_control_group(), _of_process()]
    known = [n for n in found if n is not None]
    return max(min(known), 0) if known else None


def _available() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows; macOS, which knows no such name
        return None


def _of_control_group() -> int | None:
    """Version 2; version 1 keeps the same two numbers in files of other names."""
    for folder, limit, used in (
        ("/sys/fs/cgroup", "memory.max", "memory.current"),
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        try:
            most = (Path(folder) / limit).read_text().strip()
            if most != "max":
                held = int((Path(folder) / used).read_text())
                return int(most) - held + _reclaimable(Path(folder) / "memory.stat")
        except (OSError, ValueError):
            continue
    return None


def _reclaimable(path: Path) -> int:
    """Of what a control group uses, pages of files that the system gives up when it needs room."""
    for line in path.read_text().splitlines():
        if line.startswith("inactive_file "):
            return int(line.split()[1])
    return 0


def _of_process() -> int | None:
    """What the limit of the address space (`ulimit -v`) leaves."""
    try:
        import resource

        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        if most == resource.RLIM_INFINITY:
            return None
        return most - int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (ImportError, OSError):
        return None
