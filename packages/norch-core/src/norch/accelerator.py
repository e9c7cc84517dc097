"""`norch.accelerator`: the device other than the CPU, whichever a backend is installed for."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from .backend import registry
from .device import Device
from .device_module import DeviceModule
from .errors import DeviceError

DeviceLike = Device | str | int | None


def is_available() -> bool:
    """Whether there is a device other than the CPU that can be used."""
    return registry.accelerator() is not None


def current_accelerator(check_available: bool = False) -> Device | None:
    """The first such device type, by name, as a device; None where there is none.

    `check_available` changes nothing: it is usable.
    """
    found = registry.accelerator()
    return None if found is None else Device(found)


def device_count() -> int:
    """How many devices of that type there are."""
    found = registry.accelerator()
    return 0 if found is None else DeviceModule(found).device_count()


def current_device_index() -> int:
    """The index of the device that the type alone means. Raises DeviceError where there is none."""
    return Device(_device_type("current_device_index")).index


current_device_idx = current_device_index


def set_device_index(device: DeviceLike) -> None:
    """Makes a device the one that its type alone means, as `norch.cuda.set_device`.

    Raises DeviceError where there is none.
    """
    _module("set_device_index").set_device(device)


set_device_idx = set_device_index


def device_index(device: int | None) -> Any:
    """A context within which the type alone means the device of an index; None changes nothing.

    Raises DeviceError where there is no such device.
    """
    found = _module("device_index")
    return nullcontext() if device is None else found.device(device)


def synchronize(device: DeviceLike = None) -> None:
    """Waits until all work given to a device is done. Raises DeviceError where there is none."""
    _module("synchronize").synchronize(device)


def current_stream(device: DeviceLike = None) -> Any:
    """The stream that this thread's work on a device goes to. Raises DeviceError where there is none."""
    return _module("current_stream").current_stream(device)


def set_stream(stream: Any) -> None:
    """Makes `stream` the one that this thread's work on its device goes to. Raises DeviceError where there is none."""
    _module("set_stream").set_stream(stream)


def empty_cache() -> None:
    """Returns memory that is kept for later tensors to the device, if there is one."""
    found = registry.accelerator()
    if found is not None:
        DeviceModule(found).empty_cache()


def get_memory_info(device: DeviceLike = None) -> tuple[int, int]:
    """Free bytes of a device, and how many there are in all. Raises DeviceError where there is none."""
    free, total = _module("get_memory_info").mem_get_info(device)
    return free, total


def memory_stats(device: DeviceLike = None) -> dict[str, int]:
    """What the device's module counts; nothing where there is no device."""
    found: dict[str, int] = _counted("memory_stats", device, {})
    return found


def memory_allocated(device: DeviceLike = None) -> int:
    """Bytes in use by tensors on a device, 0 where there is none, or its backend does not count them."""
    found: int = _counted("memory_allocated", device, 0)
    return found


def max_memory_allocated(device: DeviceLike = None) -> int:
    """The most bytes in use since the start, or since `reset_peak_memory_stats()`; 0 where there is no device."""
    found: int = _counted("max_memory_allocated", device, 0)
    return found


def memory_reserved(device: DeviceLike = None) -> int:
    """Bytes taken from a device, in use or kept for later; 0 where there is none."""
    found: int = _counted("memory_reserved", device, 0)
    return found


def max_memory_reserved(device: DeviceLike = None) -> int:
    """The most bytes taken since the start, or since `reset_peak_memory_stats()`; 0 where there is no device."""
    found: int = _counted("max_memory_reserved", device, 0)
    return found


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Counts the `max_memory_…` from now on, where there is a device."""
    _counted("reset_peak_memory_stats", device, None)


def _counted(name: str, device: DeviceLike, otherwise: Any) -> Any:
    """What a function of memory statistics says; `otherwise` where there is no device, or its backend has none."""
    found = registry.accelerator()
    count = None if found is None else getattr(DeviceModule(found)._module(), name, None)
    return otherwise if count is None else count(device)


def _module(op: str) -> Any:
    """What the module of the accelerator's type offers."""
    return DeviceModule(_device_type(op))


def _device_type(op: str) -> str:
    found = registry.accelerator()
    if found is None:
        raise DeviceError(f"accelerator.{op}(): no device but the CPU can be used")
    return found
