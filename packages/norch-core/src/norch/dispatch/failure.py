"""What a user sees of an exception that a backend raised."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any, NoReturn

from ..backend.contract import IndexOutOfBounds
from ..dtype import int64
from ..errors import BackendError, DTypeError, IndexError, MissingDTypeError, NorchError, OutOfMemoryError
from ..spec import Spec

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..device import Device
    from ..dtype import DType
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
    if isinstance(error, OverflowError):
        raise DTypeError(f"{plan.op.name}(): a number is out of range for {plan.out.dtype}: {error}") from error
    if isinstance(error, MemoryError):
        spec = plan.out
        wanted = f"{spec.dtype.name}{list(spec.shape)}, {spec.nbytes:,} bytes"
        raise out_of_memory(f"{plan.op.name}(): ", spec.device, f"has no room for {wanted}: {error}") from error
    raise BackendError(f"{provider(plan.out.device)}: kernel {plan.op.name} raised {error!r}") from error


def out_of_memory(where: str, device: Device, what: str) -> OutOfMemoryError:
    """The error of a device that has no room. where: what was called, such as "add(): ", or "". what: the rest of a
    sentence about the device."""
    name = f"{where}device {device}" if where else f"Device {device}"
    return OutOfMemoryError(f"{device.type.upper()} out of memory. {name} {what}{who_holds(device)}")


def check_dtype(device: Device, dtype: DType, what: str, computes: bool = False) -> None:
    """Raises MissingDTypeError where a device does not have a dtype. what: who asks for it.

    computes: whether it computes in it, for which int64 may be missing; tensors of indices are everywhere.
    """
    reason = device.backend.missing_dtypes.get(dtype.name)
    if reason is not None and (computes or dtype is not int64):
        raise MissingDTypeError(what, dtype.name, device.type, str(device), reason)


def allocate_for(spec: Spec, nbytes: int | None = None) -> Any:
    """A buffer for a tensor that no kernel has made yet, of `nbytes` where that is not `spec.nbytes`.

    Raises OutOfMemoryError, and MissingDTypeError where the device does not have the dtype.
    """
    device, wanted = spec.device, spec.nbytes if nbytes is None else nbytes
    check_dtype(device, spec.dtype, f"a tensor of shape {tuple(spec.shape)}")
    try:
        return device.backend.allocate(wanted, device.index)
    except MemoryError as error:
        raise out_of_memory("", device, f"has no room for {wanted:,} bytes: {error}") from error


def copy_out(device: Device, buffer: Any, start: int, data: memoryview) -> None:
    """Copies bytes of a buffer, from `start` on, to the host. Raises what `late` makes of what that reports."""
    try:
        device.backend.copy_out(buffer, start, data)
    except Exception as error:
        raise late(error, device) from None


def late(error: Exception, device: Device) -> Exception:
    """What a user should see of an exception that a device which does not wait has raised when the host did. An index
    out of range gets a note of the lines that called the op."""
    if isinstance(error, IndexOutOfBounds):
        error = IndexError(f"{f'{error.op}(): ' if error.op else ''}{error} (found late)")
    if isinstance(error, builtins.IndexError):
        from .late_errors import located

        return located(error, device)
    if isinstance(error, NorchError | RuntimeError):  # a RuntimeError is a sentence of the backend's own
        return error
    if isinstance(error, MemoryError):
        return out_of_memory("", device, f"had no room (found late): {error}")
    found = BackendError(f"{provider(device)}: {error!r} (found when the host waited for {device})")
    found.__cause__ = error
    return found
