"""`norch.accelerator`: the device other than the CPU, whichever a backend is installed for."""

from __future__ import annotations

from .backend import registry
from .device import Device
from .device_module import DeviceModule
from .errors import DeviceError


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


def synchronize(device: Device | str | int | None = None) -> None:
    """Waits until all work given to a device is done. Raises DeviceError where there is none."""
    DeviceModule(_device_type("synchronize")).synchronize(device)


def _device_type(op: str) -> str:
    found = registry.accelerator()
    if found is None:
        raise DeviceError(f"accelerator.{op}(): no device but the CPU can be used")
    return found
