"""Layers that put elements around the last one, two or three dims."""

from __future__ import annotations

from typing import Any, ClassVar

import norch

from . import functional as F
from .module import Module


class _Pad(Module):
    """padding: an int for every side, or (before, after) of the last dim, then of the one before, and so on."""

    mode: ClassVar[str] = "constant"
    dims: ClassVar[int] = 1

    def __init_subclass__(cls, mode: str | None = None, dims: int | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.mode, cls.dims = mode or cls.mode, dims or cls.dims

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


class _ConstantPadNd(_Pad):
    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPadNd, dims=1):
    """`value` around the last dim."""


class ConstantPad2d(_ConstantPadNd, dims=2):
    """`value` around the last two dims."""


class ConstantPad3d(_ConstantPadNd, dims=3):
    """`value` around the last three dims."""


class _Zero(_ConstantPadNd):
    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad1d(_Zero, dims=1):
    """Zeros around the last dim."""


class ZeroPad2d(_Zero, dims=2):
    """Zeros around the last two dims."""


class ZeroPad3d(_Zero, dims=3):
    """Zeros around the last three dims."""


class _ReflectionPadNd(_Pad, mode="reflect"):
    pass


class _ReplicationPadNd(_Pad, mode="replicate"):
    pass


class ReflectionPad1d(_ReflectionPadNd, dims=1):
    """The last dim mirrored at its ends, which are not repeated."""


class ReflectionPad2d(_ReflectionPadNd, dims=2):
    """The last two dims mirrored at their ends, which are not repeated."""


class ReflectionPad3d(_ReflectionPadNd, dims=3):
    """The last three dims mirrored at their ends, which are not repeated."""


class ReplicationPad1d(_ReplicationPadNd, dims=1):
    """The ends of the last dim repeated."""


class ReplicationPad2d(_ReplicationPadNd, dims=2):
    """The ends of the last two dims repeated."""


class ReplicationPad3d(_ReplicationPadNd, dims=3):
    """The ends of the last three dims repeated."""


class CircularPad1d(_Pad, mode="circular", dims=1):
    """The last dim going on from its other end."""


class CircularPad2d(_Pad, mode="circular", dims=2):
    """The last two dims going on from their other ends."""


class CircularPad3d(_Pad, mode="circular", dims=3):
    """The last three dims going on from their other ends."""
