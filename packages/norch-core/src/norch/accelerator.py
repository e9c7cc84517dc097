"""`norch.accelerator`: the device other than the CPU, whichever a backend is installed for."""

from __future__ import annotations

from .backend import registry
from .backend.device_module import lookup
from .device import Device
from .errors import DeviceError


def _found() -> str | None:
    """The device type, of those that can be used, first by name."""
    for provider in sorted(registry.installed(), key=lambda p: p.device_type):
        if provider.device_type != "cpu":
            module = lookup(provider.device_type)
            if module is not None and module.is_available():
                return provider.device_type
    return None


def is_available() -> bool:
    """Whether there is a device other than the CPU that can be used."""
    return _found() is not None


def current_accelerator(check_available: bool = False) -> Device | None:
    """The first such device type, by name, as a device; None where there is none."""
    found = _found()
    return None if found is None else Device(found)


def device_count() -> int:
    """How many devices of that type there are."""
    found = _found()
    module = None if found is None else lookup(found)
    return 0 if module is None else module.device_count()


def current_device_index() -> int:
    """The index of the device that the type alone means. Raises DeviceError where there is none."""
    return _device("current_device_index").index


def synchronize(device: Device | str | int | None = None) -> None:
    """Waits until all work given to a device is done. Raises DeviceError where there is none."""
    chosen = _device("synchronize")
    module = lookup(chosen.type)
    assert module is not None
    module.synchronize(device)


def _device(op: str) -> Device:
    found = current_accelerator()
    if found is None:
        raise DeviceError(f"accelerator.{op}(): no device but the CPU can be used")
    return found
