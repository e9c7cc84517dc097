"""Every error that norch raises on purpose.

Each also derives from the built-in type that a Python user would catch, and those for which PyTorch raises RuntimeError
from that.
"""

import builtins


class NorchError(Exception):
    """Base of all norch errors: `except norch.NorchError` catches each of them."""


class ShapeError(NorchError, ValueError, RuntimeError):
    """Shapes, strides or sizes that do not fit the op."""


class DTypeError(NorchError, TypeError, RuntimeError):
    """A dtype, or a Python type, that the op does not take."""


class DeviceError(NorchError, RuntimeError):
    """A device that does not exist, is not usable, or differs between operands."""


class BackendError(NorchError, RuntimeError):
    """A backend broke its contract, or lacks a kernel that it owes."""


class OutOfMemoryError(NorchError, MemoryError):
    """A backend could not allocate a buffer."""


class IndexError(NorchError, builtins.IndexError):
    """A dim or an index outside the tensor."""


class AutogradError(NorchError, RuntimeError):
    """The graph cannot be differentiated as asked."""


class CheckpointError(NorchError, ValueError):
    """A file that is not a checkpoint, is damaged, or does not hold what it says."""
