"""Layers that put elements around the last one, two or three dims."""

from __future__ import annotations

from typing import Any, ClassVar

import norch

from . import functional as F
from .module import Module


class _Pad(Module):
    """padding: an int for every side, or (before, after) of the last dim, then of the one before, and so on."""

    mode: ClassVar[str]
    dims: ClassVar[int]

    def __init__(self, padding: Any) -> None:
        super().__init__()
        sides = 2 * self.dims
        self.padding = tuple(padding) if isinstance(padding, tuple | list) else (padding,) * sides
        if len(self.padding) != sides:
            raise norch.ShapeError(f"{type(self).__name__}: padding must be an int or {sides}, got {padding!r}")

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        """Raises ShapeError for pads that do not fit."""
        return F.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _Constant(_Pad):
    mode = "constant"

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_Constant):
    """`value` around the last dim."""

    dims = 1


class ConstantPad2d(_Constant):
    """`value` around the last two dims."""

    dims = 2


class ConstantPad3d(_Constant):
    """`value` around the last three dims."""

    dims = 3


class _Zero(_Constant):
    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad1d(_Zero):
    """Zeros around the last dim."""

    dims = 1


class ZeroPad2d(_Zero):
    """Zeros around the last two dims."""

    dims = 2


class ZeroPad3d(_Zero):
    """Zeros around the last three dims."""

    dims = 3


class ReflectionPad1d(_Pad):
    """The last dim mirrored at its ends, which are not repeated."""

    mode, dims = "reflect", 1


class ReflectionPad2d(_Pad):
    """The last two dims mirrored at their ends, which are not repeated."""

    mode, dims = "reflect", 2


class ReflectionPad3d(_Pad):
    """The last three dims mirrored at their ends, which are not repeated."""

    mode, dims = "reflect", 3


class ReplicationPad1d(_Pad):
    """The ends of the last dim repeated."""

    mode, dims = "replicate", 1


class ReplicationPad2d(_Pad):
    """The ends of the last two dims repeated."""

    mode, dims = "replicate", 2


class ReplicationPad3d(_Pad):
    """The ends of the last three dims repeated."""

    mode, dims = "replicate", 3


class CircularPad1d(_Pad):
    """The last dim going on from its other end."""

    mode, dims = "circular", 1


class CircularPad2d(_Pad):
    """The last two dims going on from their other ends."""

    mode, dims = "circular", 2


class CircularPad3d(_Pad):
    """The last three dims going on from their other ends."""

    mode, dims = "circular", 3
