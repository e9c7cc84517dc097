"""Streams and events of whichever device has them, by one name each: `norch.Stream`, `norch.Event`."""

from __future__ import annotations

from typing import Any

from ..backend import registry
from ..device import Device
from ..errors import DeviceError
from .queries import _get_device_module


class _OfDevice(type):
    """A class that makes what the module of a device has of its name, and knows that as its instances."""

    def __call__(cls, device: Any = None, *args: Any, **kwargs: Any) -> Any:
        kind = registry.accelerator() if device is None else Device(device).type
        found = None if kind is None else _class_of(kind, cls.__name__)
        if found is None:
            where = "no device but the CPU can be used" if kind is None else f"{kind} has none"
            raise DeviceError(f"{cls.__name__}(): {where}")
        return cls._made(found, device, *args, **kwargs)  # type: ignore[attr-defined]

    def __instancecheck__(cls, instance: Any) -> bool:
        kind = registry.accelerator()
        found = None if kind is None else _class_of(kind, cls.__name__)
        return found is not None and isinstance(instance, found)


def _class_of(device_type: str, name: str) -> Any:
    return getattr(_get_device_module(device_type)._module(), name, None)


class Stream(metaclass=_OfDevice):
    """A queue of work on a device, such as `norch.cuda.Stream`: `Stream(device)`, of the accelerator unless given.

    Within `with stream:` the work of this thread goes to it. Raises DeviceError where the device has no streams.
    """

    @staticmethod
    def _made(found: Any, device: Any, *, priority: int = 0) -> Any:
        return found(device, priority)


class Event(metaclass=_OfDevice):
    """A place in the work of a device, such as `norch.cuda.Event`: `Event(device)`, of the accelerator unless given.

    enable_timing: whether `elapsed_time` can be asked of it. Raises DeviceError where the device has no events.
    """

    @staticmethod
    def _made(found: Any, device: Any, *, enable_timing: bool = False, **flags: bool) -> Any:
        return found(enable_timing=enable_timing, **flags)
