"""Parts of an image, and borders around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import norch
from norch import nn
from norch.nn.layer import layer
from norch.utils.data import sample_rng as generator

from .flipping import hflip, vflip
from .images import Image, as_image, height_width, on_arrays, two_sizes

_MODES = {"constant": "constant", "edge": "replicate", "reflect": "reflect", "symmetric": ""}


def _sides(padding: Any, name: str) -> tuple[int, int, int, int]:
    """(left, top, right, bottom)."""
    sides = (padding,) if isinstance(padding, int) else tuple(padding) if isinstance(padding, Sequence) else ()
    if len(sides) not in (1, 2, 4) or not all(isinstance(n, int) for n in sides):
        raise ValueError(
            f"{name}: padding must be a number, (left and right, top and bottom) or (left, top, right, bottom), "
            f"got {padding!r}"
        )
    left, top, right, bottom = sides * (4 // len(sides))
    return left, top, right, bottom


def _mode(padding_mode: str, name: str) -> str:
    if padding_mode not in _MODES:
        raise ValueError(f"{name}: padding_mode must be one of {', '.join(_MODES)}, got {padding_mode!r}")
    return padding_mode


def _places(n: int, before: int, after: int, mode: str) -> np.ndarray:
    """Where each element of a padded dim of length n comes from."""
    if mode == "reflect" and max(before, after) >= n:
        raise norch.ShapeError(f"pad: reflecting by {before} and {after} is too much for {n} pixels")
    places = np.pad(np.arange(max(n, 0)), (max(before, 0), max(after, 0)), mode)  # type: ignore[call-overload]
    return places[max(-before, 0) : len(places) - max(-after, 0)]


@on_arrays
def pad(image: Image, padding: int | Sequence[int], fill: Any = 0, padding_mode: str = "constant") -> Image:
    """The image with a border: `padding` pixels on all sides, (left and right, top and bottom) or (left, top, right,
    bottom), cut off where negative.

    padding_mode: "constant" (`fill`; for an array also one value a channel), "edge", "reflect" (mirrored, the edge not
    repeated) or "symmetric" (the edge repeated). Raises ShapeError where less than nothing would be left.
    """
    image = as_image(image, "pad")
    left, top, right, bottom = _sides(padding, "pad")
    mode = _mode(padding_mode, "pad")
    height, width = height_width(image)
    if height + top + bottom < 0 or width + left + right < 0:
        raise norch.ShapeError(f"pad: {padding} cuts off more than the {height} x {width} pixels that there are")
    if isinstance(image, norch.Tensor):
        if mode != "symmetric":
            return norch.pad(image, [left, right, top, bottom], _MODES[mode], fill if mode == "constant" else None)
        down, across = (
            norch.from_numpy(_places(n, a, b, mode)).to(image.device)
            for n, a, b in ((height, top, bottom), (width, left, right))
        )
        return image.index_select(-2, down).index_select(-1, across)
    if mode != "constant":
        rows, columns = _places(height, top, bottom, mode), _places(width, left, right, mode)
        return image[rows[:, None], columns]
    out = np.empty((height + top + bottom, width + left + right, *image.shape[2:]), image.dtype)
    out[...] = fill
    kept = image[max(-top, 0) : height - max(-bottom, 0), max(-left, 0) : width - max(-right, 0)]
    out[max(top, 0) :, max(left, 0) :][: kept.shape[0], : kept.shape[1]] = kept
    return out


@on_arrays
def crop(image: Image, top: int, left: int, height: int, width: int) -> Image:
    """height x width pixels of the image, from (top, left) on; zeros where it has none."""
    image = as_image(image, "crop")
    h, w = height_width(image)
    if top < 0 or left < 0 or top + height > h or left + width > w:
        return pad(image, (-left, -top, left + width - w, top + height - h))
    if isinstance(image, np.ndarray):
        return image[top : top + height, left : left + width]
    return image[..., top : top + height, left : left + width]


@on_arrays
def center_crop(image: Image, output_size: int | Sequence[int]) -> Image:
    """The middle of the image, of `output_size`, with zeros around where it is smaller."""
    image = as_image(image, "center_crop")
    th, tw = two_sizes(output_size, "center_crop")
    h, w = height_width(image)
    if th > h or tw > w:
        down, across = max(th - h, 0), max(tw - w, 0)
        image = pad(image, (across // 2, down // 2, (across + 1) // 2, (down + 1) // 2))
        h, w = height_width(image)
    return crop(image, round((h - th) / 2), round((w - tw) / 2), th, tw)


def five_crop(image: Image, size: int | Sequence[int]) -> tuple[Image, Image, Image, Image, Image]:
    """The four corners, in the order of reading, and the middle. Raises ValueError for an image that is smaller."""
    height, width = two_sizes(size, "five_crop")
    h, w = height_width(as_image(image, "five_crop"))
    if height > h or width > w:
        raise ValueError(f"five_crop: an image of {h} x {w} is smaller than the size {height} x {width}")
    corners = [crop(image, top, left, height, width) for top in (0, h - height) for left in (0, w - width)]
    return corners[0], corners[1], corners[2], corners[3], center_crop(image, (height, width))


def ten_crop(image: Image, size: int | Sequence[int], vertical_flip: bool = False) -> tuple[Image, ...]:
    """`five_crop` of the image, and of it mirrored: left and right exchanged, or (`vertical_flip`) top and bottom."""
    mirrored = vflip(image) if vertical_flip else hflip(image)
    return *five_crop(image, size), *five_crop(mirrored, size)


@layer()
class Pad(nn.Module):
    """`pad`: a border around the image."""

    padding: int | Sequence[int]
    fill: Any = 0
    padding_mode: str = "constant"

    def __post_init__(self) -> None:
        _sides(self.padding, "Pad")
        _mode(self.padding_mode, "Pad")

    def forward(self, img: Image) -> Image:
        return pad(img, self.padding, self.fill, self.padding_mode)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(padding={self.padding}, fill={self.fill}, padding_mode={self.padding_mode})"


class CenterCrop(nn.Module):
    """`center_crop`: the middle of the image."""

    def __init__(self, size: int | Sequence[int]) -> None:
        super().__init__()
        self.size = two_sizes(size, "CenterCrop")

    def forward(self, img: Image) -> Image:
        return center_crop(img, self.size)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size})"


class FiveCrop(nn.Module):
    """`five_crop`: the four corners and the middle."""

    def __init__(self, size: int | Sequence[int]) -> None:
        super().__init__()
        self.size = two_sizes(size, type(self).__name__)

    def forward(self, img: Image) -> tuple[Image, ...]:
        return five_crop(img, self.size)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size})"


class TenCrop(FiveCrop):
    """`ten_crop`: the four corners and the middle, and those mirrored, with `vertical_flip` upside down."""

    def __init__(self, size: int | Sequence[int], vertical_flip: bool = False) -> None:
        super().__init__(size)
        self.vertical_flip = vertical_flip

    def forward(self, img: Image) -> tuple[Image, ...]:
        return ten_crop(img, self.size, self.vertical_flip)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size}, vertical_flip={self.vertical_flip})"


@layer()
class RandomCrop(nn.Module):
    """A part of `size` pixels at a random place, after `padding` and, if `pad_if_needed`, enough padding for the size.

    Raises ValueError for an image that is smaller than the size.
    """

    size: Any
    padding: int | Sequence[int] | None = None
    pad_if_needed: bool = False
    fill: Any = 0
    padding_mode: str = "constant"

    def __post_init__(self) -> None:
        self.size = two_sizes(self.size, "RandomCrop")
        if self.padding is not None:
            _sides(self.padding, "RandomCrop")
        _mode(self.padding_mode, "RandomCrop")

    def forward(self, img: Image) -> Image:
        img = as_image(img, "RandomCrop")
        if self.padding is not None:
            img = pad(img, self.padding, self.fill, self.padding_mode)
        height, width = self.size
        h, w = height_width(img)
        if self.pad_if_needed and (h < height or w < width):
            img = pad(img, (max(width - w, 0), max(height - h, 0)), self.fill, self.padding_mode)
            h, w = height_width(img)
        if h < height or w < width:
            raise ValueError(f"RandomCrop: an image of {h} x {w} is smaller than the size {height} x {width}")
        if (h, w) == (height, width):
            return img
        draws = generator()
        return crop(img, int(draws.integers(h - height + 1)), int(draws.integers(w - width + 1)), height, width)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size}, padding={self.padding})"
