"""Devices: a type, which names a backend, and an index."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import switches
from .errors import DeviceError

if TYPE_CHECKING:
    from .backend.contract import Backend

known_devices: dict[tuple[str, int], Device] = {}
current_index: dict[str, Callable[[], int]] = {}
"""For device types that have a current device: its index, which a type without an index means."""

_SINGLE = ("cpu", "meta")
"""Device types that are written without an index."""

stand_in: Callable[[Device], Device] | None = None


def set_stand_in(function: Callable[[Device], Device] | None) -> Callable[[Device], Device] | None:
    """Has `function` give, for each device that is asked for, the one that stands for it in the calling thread, until
    it is set to what this returns, what there was before: see norch.memory.counting."""
    global stand_in
    before, stand_in = stand_in, function
    return before


def has_stand_in() -> bool:
    """Whether devices stand for others."""
    return stand_in is not None


_registry: Callable[[], Any]


def set_registry(load: Callable[[], Any]) -> None:
    """Says how to load the module that finds backends: norch.backend calls it, whose part that is."""
    global _registry
    _registry = load


def get_registry() -> Callable[[], Any]:
    """What `set_registry` was given last."""
    return _registry


class Device:
    """Where a tensor lives, such as `norch.device("cpu")`. Equal devices are the same object.

    type: "cpu", "cuda" or that of a plug-in, which may be followed by ":" and the index. index: 0, or the device that
    the backend has as its current one, unless given.
    """

    __slots__ = ("_backend", "index", "type")

    type: str
    index: int
    _backend: Backend | None

    def __new__(
        cls, device: str | Device | int | None = None, index: int | None = None, *, type: str | None = None
    ) -> Device:
        """`device` (or `type`) is "cpu", "cuda", "cuda:1", …. The backend is looked up when the device is first used.
        An int is an index of the accelerator (`norch.accelerator`).

        In a `with` block, it is where tensors are made that no device is given for. Raises DeviceError for a string
        that does not name a device.
        """
        device = type if device is None else device
        if isinstance(device, Device):
            return device if stand_in is None else stand_in(device)
        if isinstance(device, int) and not isinstance(device, bool) and device >= 0:
            accelerator = _registry().accelerator()
            if accelerator is None:
                raise DeviceError(f"device(): {device} means an accelerator, but no device but the CPU can be used")
            return Device(accelerator, device)
        if not isinstance(device, str):
            raise DeviceError(f"device(): expected a string such as 'cpu' or 'cuda:1', got {device!r}")
        kind, _, number = device.partition(":")
        if not kind.isidentifier() or (number and not number.isdecimal()) or device.endswith(":"):
            raise DeviceError(f"device(): expected a type, or a type and an index such as 'cuda:1', got {device!r}")
        if number:
            at = int(number)
        elif index is not None:
            at = index
        else:
            at = current_index[kind]() if kind in current_index else 0
        found = known_devices.get((kind, at))
        if found is None:
            found = object.__new__(cls)
            found.type, found.index, found._backend = kind, at, None
            found = known_devices.setdefault((kind, at), found)
        return found if stand_in is None else stand_in(found)

    @property
    def is_meta(self) -> bool:
        """Whether tensors have no values there."""
        return self.type == "meta"

    @property
    def backend(self) -> Backend:
        """The backend that runs this device. Raises DeviceError, with what to do, where it cannot be used."""
        if self._backend is None:
            backend: Backend = _registry().find(self.type)
            count = backend.device_count()
            if self.index >= count:
                raise DeviceError(f"device {self}: there {'is' if count == 1 else 'are'} {count} of type {self.type!r}")
            self._backend = backend
        return self._backend

    def __enter__(self) -> Device:
        _entered.append(_default)
        set_default_device(self)
        return self

    def __exit__(self, *exception: object) -> None:
        set_default_device(_entered.pop())

    def __str__(self) -> str:
        return self.type if self.type in _SINGLE else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        return f"device(type='{self.type}'" + (")" if self.type in _SINGLE else f", index={self.index})")

    def __reduce__(self) -> tuple[Any, tuple[str, int]]:
        return Device, (self.type, self.index)


CPU = Device("cpu")

_default = CPU
_entered: list[Device] = []
"""What the default was before each `with` block on a device that is still open."""


on_default_change: list[Callable[[], None]] = []
"""Called whenever another device becomes the default."""


def get_default_device() -> Device:
    """Where tensors are made that no device was given for: the CPU at first."""
    return _default if stand_in is None else stand_in(_default)


def set_default_device(device: Device | str | None) -> None:
    """Sets `get_default_device()`; None sets the CPU. Raises DeviceError for one that cannot be used."""
    global _default
    chosen = CPU if device is None else Device(device)
    chosen.backend  # noqa: B018
    switches.switched(Device, "default", _default, chosen)
    _default = chosen
    for callback in on_default_change:
        callback()
