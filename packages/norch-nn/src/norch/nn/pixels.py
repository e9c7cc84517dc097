"""Layers that move pixels: to another size, from and to channels, and to columns."""

from __future__ import annotations

from typing import Any

from . import functional as F
from .layer import layer
from .module import Module


@layer(F.interpolate)
class Upsample(Module):
    """(n, c, w) or (n, c, h, w) at another `size`, or `scale_factor` times as large. See `functional.interpolate`."""

    size: Any = None
    scale_factor: Any = None
    mode: str = "nearest"
    align_corners: bool | None = None
    recompute_scale_factor: bool | None = None

    def __post_init__(self) -> None:
        self.name = type(self).__name__
        if isinstance(self.scale_factor, tuple | list):
            self.scale_factor = tuple(float(f) for f in self.scale_factor)
        else:
            self.scale_factor = float(self.scale_factor) if self.scale_factor else None

    def extra_repr(self) -> str:
        if self.scale_factor is not None:
            return f"scale_factor={self.scale_factor!r}, mode={self.mode!r}"
        return f"size={self.size!r}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Upsample with mode "nearest"."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """Upsample with mode "bilinear" and align_corners."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)


@layer(F.pixel_shuffle)
class PixelShuffle(Module):
    """(*, c * r * r, h, w) -> (*, c, h * r, w * r): groups of channels laid out as pixels."""

    upscale_factor: int


@layer(F.pixel_unshuffle)
class PixelUnshuffle(Module):
    """(*, c, h * r, w * r) -> (*, c * r * r, h, w): undoes PixelShuffle."""

    downscale_factor: int


@layer(F.channel_shuffle)
class ChannelShuffle(Module):
    """The channels of (n, c, ...) dealt out again, the first of each of `groups` groups before the second."""

    groups: int


@layer(F.unfold)
class Unfold(Module):
    """All windows of (n, c, h, w) as columns, (n, c * i * j, y * x)."""

    kernel_size: Any
    dilation: Any = 1
    padding: Any = 0
    stride: Any = 1


@layer(F.fold)
class Fold(Module):
    """The columns of Unfold back in their places of (n, c, *output_size), added where they overlap."""

    output_size: Any
    kernel_size: Any
    dilation: Any = 1
    padding: Any = 0
    stride: Any = 1
