"""What `norch.cuda` says of a device's load, temperature and power, as `nvidia-smi` does.

Raises DeviceError where NVIDIA's management library cannot be opened or does not know it, as of parts of a GPU (MIG).
"""

from __future__ import annotations

from typing import Any

from . import _ext, nvml
from .stream import device_index


def _uuid(device: Any) -> str:
    found: str = _ext.properties(device_index(device))["uuid"]
    return found


def utilization(device: Any = None) -> int:
    """Percent of the last sample period, of a sixth of a second to a second, in which kernels ran on a device."""
    return nvml.library().utilization(_uuid(device))[0]


def memory_usage(device: Any = None) -> int:
    """Percent of the last sample period in which a device's memory was read or written."""
    return nvml.library().utilization(_uuid(device))[1]


def temperature(device: Any = None) -> int:
    """Degrees Celsius of a device."""
    return nvml.library().temperature(_uuid(device))


def power_draw(device: Any = None) -> int:
    """Milliwatts that a device draws."""
    return nvml.library().power(_uuid(device))


def clock_rate(device: Any = None) -> int:
    """MHz of the clock of a device's multiprocessors."""
    return nvml.library().clock(_uuid(device))


def device_memory_used(device: Any = None) -> int:
    """Bytes of a device's memory that all processes hold, and its driver."""
    return nvml.library().memory_used(_uuid(device))


def list_gpu_processes(device: Any = None) -> str:
    """A line for each process that computes on a device, with the memory that it holds. For people to read."""
    index = device_index(device)
    lines = [f"GPU:{index}"]
    for process in nvml.library().processes(_uuid(index)):
        used = "?" if process.used is None else f"{process.used / 2**20:.3f}"
        lines.append(f"process {process.pid:>10d} uses {used:>12} MB GPU memory")
    return "\n".join(lines if len(lines) > 1 else [*lines, "no processes are running"])
