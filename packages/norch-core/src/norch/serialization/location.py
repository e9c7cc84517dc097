"""Where the tensors of a checkpoint go: `map_location`, as PyTorch has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..device import CPU, Device
from ..errors import DeviceError, DTypeError

if TYPE_CHECKING:
    from ..tensor import Tensor

MapLocation = Callable[[Any, str], Any] | Mapping[Any, Any] | Device | str | None


class Locations:
    """What `map_location` says: None for where the tensors were, one device for all, a dict from device to device, or
    a function of a tensor on the CPU and the name of its device, that gives the tensor to use or None."""

    def __init__(self, map_location: MapLocation) -> None:
        self._one: Device | None = None
        self._table: dict[Device, Device] = {}
        self._function: Callable[[Any, str], Any] | None = None
        if map_location is None:
            return
        if isinstance(map_location, Device | str):
            self._one = _usable(Device(map_location))
        elif isinstance(map_location, Mapping):
            self._table = {Device(a): _usable(Device(b)) for a, b in map_location.items()}
        elif callable(map_location):
            self._function = map_location
        else:
            raise DTypeError(
                f"load(): map_location must be a device, a dict, a function or None, got {type(map_location).__name__}"
            )

    def device(self, saved: Device, name: str) -> Device:
        """Where a tensor that was saved on `saved` is to be read to."""
        if self._one is not None:
            return self._one
        if self._function is not None:
            return CPU
        return self._table.get(saved) or self._saved(saved, name)

    def finish(self, tensor: Tensor, saved: Device, name: str) -> Tensor:
        """The tensor that a function puts in place of the one that was read."""
        if self._function is None:
            return tensor
        out = self._function(tensor, str(saved))
        if out is None:
            return tensor.to(self._saved(saved, name))
        if not isinstance(out, type(tensor)):
            raise DTypeError(f"load(): map_location must return a tensor or None, got {type(out).__name__}")
        if out.spec.dtype is not tensor.spec.dtype or out.spec.shape != tensor.spec.shape:
            raise DTypeError(
                f"load(): map_location returned {out.spec.dtype} of shape {tuple(out.shape)} for {name!r}, which is "
                f"{tensor.spec.dtype} of shape {tuple(tensor.shape)}; it may only choose the device"
            )
        return out.detach().contiguous()

    def _saved(self, saved: Device, name: str) -> Device:
        try:
            saved.backend  # noqa: B018
        except DeviceError as error:
            raise DeviceError(
                f"load(): {name!r} was saved on {saved}, which cannot be used here; load it elsewhere with "
                f"map_location, such as map_location='cpu'.\n{error}"
            ) from None
        return saved


def _usable(device: Device) -> Device:
    device.backend  # noqa: B018
    return device


def default_restore_location(storage: Tensor, location: str) -> Tensor:
    """The tensor `storage` on the device of that name: for functions that `load` is given as `map_location`.

    Raises DeviceError for a device that cannot be used.
    """
    return storage.to(_usable(Device(location)))


def location_tag(storage: Any) -> str:
    """The name of the device of a tensor, or of memory, as a checkpoint has it."""
    return str(storage.device)
