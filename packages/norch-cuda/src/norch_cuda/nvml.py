"""What NVIDIA's management library, which `nvidia-smi` uses too, says of a device: load, temperature, power, memory.

It is opened when it is first asked for. Devices are known to it by their UUIDs, whatever CUDA_VISIBLE_DEVICES says.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, NamedTuple

from norch.backend import DeviceError

FILE = "libnvidia-ml.so.1"

_TOO_SMALL = 7  # NVML_ERROR_INSUFFICIENT_SIZE
_SM = 1  # NVML_CLOCK_SM


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class Process(NamedTuple):
    """A process that computes on a device, and the bytes of device memory that it holds; None where that is hidden."""

    pid: int
    used: int | None


class Nvml:
    """The open library. Raises DeviceError where it cannot be opened, and where it says that something is wrong."""

    def __init__(self, file: str = FILE) -> None:
        try:
            self._library = ctypes.CDLL(file)
        except OSError as error:
            raise DeviceError(f"{file} cannot be loaded; NVIDIA's driver brings it ({error})") from None
        self._library.nvmlErrorString.restype = ctypes.c_char_p
        self._call("nvmlInit_v2")

    def _call(self, name: str, *arguments: Any, also: int = 0) -> int:
        """The code that a function returns: 0 or `also`. Raises DeviceError for others."""
        code: int = getattr(self._library, name)(*arguments)
        if code not in (0, also):
            why = self._library.nvmlErrorString(code)
            raise DeviceError(f"{name}: {why.decode() if why else 'unknown error'} ({code})")
        return code

    def _device(self, uuid: str) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByUUID", f"GPU-{uuid}".encode(), ctypes.byref(handle))
        return handle

    def _number(self, name: str, uuid: str, *arguments: int) -> int:
        found = ctypes.c_uint()
        self._call(name, self._device(uuid), *arguments, ctypes.byref(found))
        return found.value

    def utilization(self, uuid: str) -> tuple[int, int]:
        """Percent of the last sample period in which kernels ran, and in which memory was read or written."""
        found = _Utilization()
        self._call("nvmlDeviceGetUtilizationRates", self._device(uuid), ctypes.byref(found))
        return found.gpu, found.memory

    def temperature(self, uuid: str) -> int:
        """Degrees Celsius of the GPU's sensor."""
        return self._number("nvmlDeviceGetTemperature", uuid, 0)

    def power(self, uuid: str) -> int:
        """Milliwatts that the device draws."""
        return self._number("nvmlDeviceGetPowerUsage", uuid)

    def clock(self, uuid: str) -> int:
        """MHz of the multiprocessors' clock."""
        return self._number("nvmlDeviceGetClockInfo", uuid, _SM)

    def memory_used(self, uuid: str) -> int:
        """Bytes of device memory that all processes and the driver hold."""
        found = _Memory()
        self._call("nvmlDeviceGetMemoryInfo", self._device(uuid), ctypes.byref(found))
        return int(found.used)

    def processes(self, uuid: str) -> list[Process]:
        """Those that compute on the device."""
        device, count = self._device(uuid), ctypes.c_uint(0)
        name, found = "nvmlDeviceGetComputeRunningProcesses_v3", (_Process * 0)()
        while self._call(name, device, ctypes.byref(count), found, also=_TOO_SMALL):
            count = ctypes.c_uint(count.value + 8)  # some may start meanwhile
            found = (_Process * count.value)()
        hidden = 2**64 - 1
        return [Process(p.pid, None if p.used == hidden else p.used) for p in found[: count.value]]


library = cache(Nvml)
"""`library()`, the one that all share."""
