"""Methods about where a tensor's memory is: pinned, shared, used by streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..device import Device
from ..errors import DeviceError
from ..ops.registry import method

if TYPE_CHECKING:
    from . import Tensor


@method()
def pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """A copy in host memory that a GPU reads directly. Raises DeviceError where no device has such memory."""
    if self.left_to is not None:
        return self.left_to("pin_memory", (self,), {})  # type: ignore[no-any-return]
    if self.spec.device.type != "cpu":
        raise DeviceError(f"pin_memory(): only CPU tensors can be pinned, this one is on {self.spec.device}")
    try:
        backend: Any = Device("cuda" if device is None else device).backend
    except DeviceError as error:
        raise DeviceError(f"pin_memory(): there is no device to pin memory for: {error}") from None
    out: Tensor = backend.module.pin_memory(self)
    (out if out.base is None else out.base).__dict__["_pinned"] = True
    return out


@method()
def is_pinned(self: Tensor, device: Any = None) -> bool:
    """Whether `pin_memory` made this tensor, or what it is a view of."""
    return "_pinned" in (self if self.base is None else self.base).__dict__


@method()
def record_stream(self: Tensor, stream: Any) -> None:
    """Notes that `stream` uses this memory, so that it is not handed out again before the stream's work is done.

    Ops note that themselves; this is for what others give to the stream: collectives, kernels of a program's own.
    Raises NotImplementedError on devices without streams, such as the CPU.
    """
    self.spec.device.backend.record_stream(self.buffer, stream)
