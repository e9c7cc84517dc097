"""Images in another size."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np

import norch
from norch import nn
from norch.nn.layer import layer
from norch.utils.data import sample_rng as generator

from .cropping import crop
from .images import Image, as_image, height_width, two_sizes


class InterpolationMode(Enum):
    """How `resize` finds a pixel between pixels."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.maximum(1 - np.abs(x), 0)


def _cubic(x: np.ndarray) -> np.ndarray:
    # Keys' kernel with a = -0.5, as Pillow has it.
    x = np.abs(x)
    near, far = (1.5 * x - 2.5) * x * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x < 1, near, np.where(x < 2, far, 0))


@functools.lru_cache(64)
def _weights(old: int, new: int, mode: str, antialias: bool) -> np.ndarray:
    """(new, old) float64: how much of each old pixel goes into each new one."""
    scale = old / new
    centres = (np.arange(new)[:, None] + 0.5) * scale
    spread = max(scale, 1.0) if antialias else 1.0
    weights = (_cubic if mode == "bicubic" else _triangle)((np.arange(old) + 0.5 - centres) / spread)
    return weights / weights.sum(1, keepdims=True)


def _nearest(old: int, new: int, centred: bool) -> np.ndarray:
    places = np.floor((np.arange(new) + (0.5 if centred else 0.0)) * np.float32(old / new)).astype(np.int64)
    return np.minimum(places, old - 1)


def _sizes(h: int, w: int, size: Any, max_size: int | None) -> tuple[int, int]:
    if not isinstance(size, int) and len(size) == 2:
        if max_size is not None:
            raise ValueError("resize: max_size is for a size of one number, the shorter side")
        return tuple(size)
    wanted = size if isinstance(size, int) else size[0]
    short, long = min(h, w), max(h, w)
    new_short, new_long = wanted, int(wanted * long / short)
    if max_size is not None:
        if max_size <= wanted:
            raise ValueError(f"resize: max_size {max_size} must be greater than the size {wanted} of the shorter side")
        if new_long > max_size:
            new_short, new_long = int(max_size * new_short / new_long), max_size
    return (new_short, new_long) if h <= w else (new_long, new_short)


def _check(size: Any, interpolation: Any, antialias: bool | None) -> str:
    sizes = (size,) if isinstance(size, int) else tuple(size) if isinstance(size, Sequence) else ()
    if len(sizes) not in (1, 2) or not all(isinstance(n, int) and n > 0 for n in sizes):
        raise ValueError(f"resize: size must be the shorter side, or (height, width), got {size!r}")
    try:
        mode: str = InterpolationMode(getattr(interpolation, "value", interpolation)).value
    except ValueError:
        known = ", ".join(m.value for m in InterpolationMode)
        raise ValueError(f"resize: interpolation must be one of {known}, got {interpolation!r}") from None
    if mode == "bicubic" and not antialias:
        raise ValueError("resize: bicubic interpolation is there with antialias=True only")
    return mode


def resize(
    img: Image,
    size: int | Sequence[int],
    interpolation: InterpolationMode | str = InterpolationMode.BILINEAR,
    max_size: int | None = None,
    antialias: bool | None = True,
) -> Image:
    """The image as `size` = (height, width), or with its shorter side of `size` pixels, the longer at most `max_size`.

    With `antialias` a pixel of a smaller image is made of all those that it covers; an array of bytes is always
    treated so, as a PIL image is. Raises ShapeError for an image without pixels, ValueError for another mode or size.
    """
    img = as_image(img, "resize")
    array = isinstance(img, np.ndarray)
    antialias = True if array else antialias
    mode = _check(size, interpolation, antialias)
    h, w = height_width(img)
    if not h or not w:
        raise norch.ShapeError(f"resize: an image of {h} x {w} has no pixels")
    new_h, new_w = _sizes(h, w, size, max_size)
    if (new_h, new_w) == (h, w):
        return img
    if mode.startswith("nearest"):
        rows, columns = (_nearest(old, new, array or mode != "nearest") for old, new in ((h, new_h), (w, new_w)))
        if array:
            return img[rows[:, None], columns]
        down, across = (norch.from_numpy(places).to(img.device) for places in (rows, columns))
        return img.index_select(-2, down).index_select(-1, across)
    weights = _weights(h, new_h, mode, bool(antialias)), _weights(w, new_w, mode, bool(antialias))
    return _resize_array(img, *weights) if array else _resize_tensor(img, *weights)


def _resize_array(img: np.ndarray, down: np.ndarray, across: np.ndarray) -> np.ndarray:
    dtype = img.dtype if img.dtype == np.float64 else np.dtype(np.float32)
    planes = (img[..., None] if img.ndim == 2 else img).transpose(2, 0, 1).astype(dtype)
    out = np.matmul(np.matmul(down.astype(dtype), planes), across.T.astype(dtype)).transpose(1, 2, 0)
    if img.dtype.kind in "iu":
        limits = np.iinfo(img.dtype)
        out = np.rint(out).clip(limits.min, limits.max)
    return out.reshape(*out.shape[: img.ndim]).astype(img.dtype)


def _resize_tensor(img: norch.Tensor, down: np.ndarray, across: np.ndarray) -> norch.Tensor:
    dtype = img.dtype if img.dtype in (norch.float32, norch.float64) else norch.float32
    a, b = (norch.from_numpy(part).to(device=img.device, dtype=dtype) for part in (down, across))
    out = a @ img.to(dtype) @ b.T
    if img.dtype is dtype:
        return out
    if not img.is_floating_point():
        limits = norch.iinfo(img.dtype)
        out = out.round().clamp(limits.min, limits.max)
    return out.to(img.dtype)


@layer()
class Resize(nn.Module):
    """`resize`: the image in another size."""

    size: int | Sequence[int]
    interpolation: Any = InterpolationMode.BILINEAR
    max_size: int | None = None
    antialias: bool | None = True

    def __post_init__(self) -> None:
        self.interpolation = InterpolationMode(_check(self.size, self.interpolation, self.antialias))

    def forward(self, img: Image) -> Image:
        return resize(img, self.size, self.interpolation, self.max_size, self.antialias)

    def __repr__(self) -> str:
        detail = f"(size={self.size}, interpolation={self.interpolation.value}, max_size={self.max_size}"
        return f"{type(self).__name__}{detail}, antialias={self.antialias})"


def resized_crop(
    img: Image,
    top: int,
    left: int,
    height: int,
    width: int,
    size: int | Sequence[int],
    interpolation: InterpolationMode | str = InterpolationMode.BILINEAR,
    antialias: bool | None = True,
) -> Image:
    """`crop`, then `resize`."""
    return resize(crop(img, top, left, height, width), size, interpolation, antialias=antialias)


@layer()
class RandomResizedCrop(nn.Module):
    """A random part of the image, made `size` = (height, width) pixels large.

    It has a share of the image's area between the two numbers of `scale`, and is between the two of `ratio` times as
    wide as high (log-uniform); after ten parts that do not fit, the middle. Source: https://arxiv.org/abs/1409.4842.
    Raises ValueError unless both are (low, high).
    """

    size: Any
    scale: Sequence[float] = (0.08, 1.0)
    ratio: Sequence[float] = (3 / 4, 4 / 3)
    interpolation: Any = InterpolationMode.BILINEAR
    antialias: bool | None = True

    def __post_init__(self) -> None:
        self.size = two_sizes(self.size, "RandomResizedCrop")
        scale, ratio = self.scale, self.ratio
        if not 0 < scale[0] <= scale[1] or not 0 < ratio[0] <= ratio[1]:
            raise ValueError(f"RandomResizedCrop: scale and ratio must be (low, high), got {scale!r} and {ratio!r}")
        self.interpolation = InterpolationMode(_check(self.size, self.interpolation, self.antialias))

    def _part(self, h: int, w: int) -> tuple[int, int, int, int]:
        draws = generator()
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        for _ in range(10):
            area, aspect = h * w * draws.uniform(self.scale[0], self.scale[1]), math.exp(draws.uniform(low, high))
            width, height = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < width <= w and 0 < height <= h:
                return int(draws.integers(h - height + 1)), int(draws.integers(w - width + 1)), height, width
        width, height = min(w, round(h * self.ratio[1])), min(h, round(w / self.ratio[0]))
        return (h - height) // 2, (w - width) // 2, height, width

    def forward(self, img: Image) -> Image:
        img = as_image(img, "RandomResizedCrop")
        return resized_crop(img, *self._part(*height_width(img)), self.size, self.interpolation, self.antialias)

    def __repr__(self) -> str:
        scale, ratio = (tuple(round(n, 4) for n in part) for part in (self.scale, self.ratio))
        detail = f"(size={self.size}, scale={scale}, ratio={ratio}, interpolation={self.interpolation.value}"
        return f"{type(self).__name__}{detail}, antialias={self.antialias})"
