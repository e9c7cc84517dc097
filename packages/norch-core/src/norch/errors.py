"""Every error that norch raises on purpose.

Each also derives from the built-in type that a Python user would catch, and those for which PyTorch raises RuntimeError
from that.
"""

from __future__ import annotations

import builtins


class NorchError(Exception):
    """Base of all norch errors: `except norch.NorchError` catches each of them."""


class ShapeError(NorchError, ValueError, RuntimeError):
    """Shapes, strides or sizes that do not fit the op."""


class DTypeError(NorchError, TypeError, RuntimeError):
    """A dtype, or a Python type, that the op does not take."""


class DeviceError(NorchError, RuntimeError):
    """A device that does not exist, is not usable, or differs between operands."""


class MetaError(DeviceError, NotImplementedError):
    """The values of a tensor on the device "meta", which has none, were asked for."""

    def __init__(self, op: str) -> None:
        super().__init__(
            f"{op}(): a tensor on the device 'meta' has a shape and no values. Make it on a real device, or give its "
            "module memory by to_empty(device=...) and values by load_state_dict(), or both by "
            "load_state_dict(..., assign=True)"
        )
        self.op = op

    def __reduce__(self) -> tuple[type[MetaError], tuple[str]]:
        return MetaError, (self.op,)


class BackendError(NorchError, RuntimeError):
    """A backend broke its contract, or lacks a kernel that it owes."""


class OutOfMemoryError(NorchError, MemoryError):
    """A backend could not allocate a buffer."""


class IndexError(NorchError, builtins.IndexError):
    """A dim or an index outside the tensor."""


class AutogradError(NorchError, RuntimeError):
    """The graph cannot be differentiated as asked."""


class NotFiniteError(NorchError, FloatingPointError, RuntimeError):
    """An op made a NaN or an infinity while `norch.detect_nan` looked for them."""


class CaptureError(NorchError, RuntimeError):
    """A step that `norch.capture` was told to replay as a whole does what cannot be replayed."""


class CheckpointError(NorchError, ValueError):
    """A file that is not a checkpoint, is damaged, or does not hold what it says."""
