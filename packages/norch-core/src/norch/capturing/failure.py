"""What a user sees of an exception that a kernel of a captured step raised."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from ..backend.contract import IndexOutOfBounds
from ..dispatch import failure
from ..dispatch.failure import provider
from ..errors import BackendError, IndexError, NorchError

if TYPE_CHECKING:
    from .calls import Call


def raise_failure_of(call: Call, error: Exception) -> NoReturn:
    """Raises what eager code would: with the op, its operands, and the line that called it."""
    if "::" in call.op:  # an op of norch.library: its Python
        raise error
    where = f"{call.op}(), replayed from {call.line}"
    if isinstance(error, IndexOutOfBounds):
        shapes = ", ".join(str(o.shape) for o in call.operands if not o.is_scalar)
        raise IndexError(f"{where}: {error} (operands of shapes {shapes})") from None
    if isinstance(error, NorchError | ZeroDivisionError):
        raise error
    if isinstance(error, MemoryError):
        raise failure.out_of_memory(f"{where}: ", call.device, f"has no room: {error}") from error
    raise BackendError(f"{where}: {provider(call.device)} raised {error!r}") from error
