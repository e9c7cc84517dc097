"""Every error that norch raises on purpose.

Each also derives from the built-in type that a Python user would catch, and those for which PyTorch raises RuntimeError
from that.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Sequence
from pickle import UnpicklingError


class NorchError(Exception):
    """Base of all norch errors: `except norch.NorchError` catches each of them."""


class ShapeError(NorchError, ValueError, RuntimeError):
    """Shapes, strides or sizes that do not fit the op."""


class DTypeError(NorchError, TypeError, RuntimeError):
    """A dtype, or a Python type, that the op does not take."""


class MissingDTypeError(DTypeError):
    """A dtype that a device does not have was asked for there.

    what: the op that did. dtype: its name. device_type: the type of the device. reason: what its backend says.
    """

    def __init__(self, what: str, dtype: str, device_type: str, device: str, reason: str) -> None:
        super().__init__(
            f"{what}: device {device} has no {dtype}: {reason}. Convert to another dtype first, or stay on the CPU"
        )
        self.dtype, self.device_type, self.reason = dtype, device_type, reason
        self._given = what, dtype, device_type, device, reason

    def __reduce__(self) -> tuple[type[MissingDTypeError], tuple[str, str, str, str, str]]:
        return MissingDTypeError, self._given


class LackingError(NorchError, NotImplementedError):
    """A name of PyTorch's was called that norch has for its imports only."""


class DeviceError(NorchError, RuntimeError):
    """A device that does not exist, is not usable, or differs between operands."""


class MetaError(DeviceError, NotImplementedError):
    """The values of a tensor on the device "meta", which has none, were asked for. op: what asked for them."""

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


class OutOfMemoryError(NorchError, MemoryError, RuntimeError):
    """A backend could not allocate a buffer. The text begins with PyTorch's "CUDA out of memory.", which programs look
    for, or another type of device."""


class IndexError(NorchError, builtins.IndexError, RuntimeError):
    """A dim or an index outside the tensor. It is a RuntimeError too, which PyTorch's gather and scatter raise."""


class AutogradError(NorchError, RuntimeError):
    """The graph cannot be differentiated as asked."""


class WeightsError(NorchError, ValueError, RuntimeError):
    """What nothing can be drawn by: weights that are NaN, infinite or negative, or none of them positive; parameters of
    a distribution beyond their bounds."""


class NotFiniteError(NorchError, FloatingPointError, RuntimeError):
    """An op made a NaN or an infinity while `norch.detect_nan` looked for them."""


class CaptureError(NorchError, RuntimeError):
    """A step that `norch.capture` was told to replay as a whole does what cannot be replayed."""


def drawn(*rows: tuple[str, Sequence[int], Iterable[int]], why: str = "") -> str:
    """Shapes one below the other, for the end of an error: rows of a name, a shape and the dims to mark.

    Last dims stand below last dims, as in broadcasting. why: what is said beside the last marks.
    """
    places = max(len(shape) for _, shape, _ in rows)
    cells = [[""] * (places - len(shape)) + [str(n) for n in shape] for _, shape, _ in rows]
    wide = [max(map(len, column)) for column in zip(*cells, strict=True)]
    names = max(len(name) for name, _, _ in rows)
    marks = [{places + d % n - n for d in dims if -n <= d < n} for n, dims in ((len(row[1]), row[2]) for row in rows)]
    text, since = "", 0
    for at, (name, shape, _) in enumerate(rows):
        lead = places - len(shape)
        inside = ", ".join([f"{n:>{w}}" for n, w in zip(cells[at][lead:], wide[lead:], strict=True)])
        before = " " * sum(w + 2 for w in wide[:lead])
        text += f"\n    {name:{names}}   {before}({inside}{',' if len(shape) == 1 else ''})"
        if at + 1 < len(rows) and marks[at + 1] == marks[at]:
            continue  # marked once, below the last
        if marks[at]:
            below = [max(len(row[i]) for row in cells[since : at + 1]) if i in marks[at] else 0 for i in range(places)]
            line = "  ".join([f"{'^' * n:>{w}}" for n, w in zip(below, wide, strict=True)]).rstrip()
            text += f"\n    {'':{names}}    {line}{f'   {why}' if why and not any(marks[at + 1 :]) else ''}"
        since = at + 1
    return text


def differing(a: Sequence[int], b: Sequence[int]) -> list[int]:
    """The dims, counted from the back, in which two shapes differ, or that one of them alone has."""
    least = -min(len(a), len(b))
    return [i for i in range(-max(len(a), len(b)), 0) if i < least or a[i] != b[i]]


class CheckpointError(NorchError, ValueError, RuntimeError):
    """A file that is not a checkpoint, is damaged, or does not hold what it says."""


class EmptyFileError(CheckpointError, EOFError):
    """A checkpoint was to be read from a file without a byte."""


class RefusedPickleError(CheckpointError, UnpicklingError):
    """A file holds an object that may run code, and nobody has said that it may."""
