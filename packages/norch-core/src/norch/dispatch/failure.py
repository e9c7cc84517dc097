"""What a user sees of an exception that a backend raised."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any, NoReturn

from ..backend.contract import IndexOutOfBounds
from ..errors import BackendError, IndexError, NorchError, OutOfMemoryError
from ..spec import Spec

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..device import Device
    from .plan import Plan


def _nobody(device: Device) -> str:
    return ""


who_holds: Callable[[Device], str] = _nobody
"""`who_holds(device)` tells, in lines to end an error with, whose the memory of a device is: see norch.memory."""


def provider(device: Device) -> str:
    """The distribution behind a device, with its version, for error messages."""
    from ..backend.registry import provider_of  # loads what finds plug-ins, which `import norch` need not

    found = provider_of(device.backend)
    return f"backend '{device.type}' of {found.distribution} {found.version}"


def raise_failure(plan: Plan, error: Exception) -> NoReturn:
    """Raises what a user should see of an exception from a kernel of `plan`, or from the allocation for it."""
    if isinstance(error, IndexOutOfBounds):
        shapes = ", ".join(str(tuple(s.shape)) for s in plan.inputs if type(s) is Spec)
        raise IndexError(f"{plan.op.name}(): {error} (operands of shapes {shapes})") from None
    if isinstance(error, NorchError | ZeroDivisionError):
        raise error
    if isinstance(error, MemoryError):
        spec = plan.out
        wanted = f"{spec.dtype.name}{list(spec.shape)}, {spec.nbytes:,} bytes"
        raise OutOfMemoryError(
            f"{plan.op.name}(): device {spec.device} has no room for {wanted}: {error}{who_holds(spec.device)}"
        ) from error
    raise BackendError(f"{provider(plan.out.device)}: kernel {plan.op.name} raised {error!r}") from error


def allocate_on(device: Device, nbytes: int) -> Any:
    """A buffer for a tensor that no kernel has made yet. Raises OutOfMemoryError."""
    try:
        return device.backend.allocate(nbytes, device.index)
    except MemoryError as error:
        raise OutOfMemoryError(
            f"device {device} has no room for {nbytes:,} bytes: {error}{who_holds(device)}"
        ) from error


def copy_out(device: Device, buffer: Any, start: int, data: memoryview) -> None:
    """Copies bytes of a buffer, from `start` on, to the host. What that reports gets a note of the lines."""
    try:
        device.backend.copy_out(buffer, start, data)
    except builtins.IndexError as error:
        from .late_errors import located

        raise located(error, device) from None
