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
from .images import Image, as_image, has_pillow, height_width, is_picture, on_pictures, two_sizes


class InterpolationMode(Enum):
    """How `resize` finds a pixel between pixels."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


_SMOOTH = ("bilinear", "bicubic")
_PILLOW_CODES = dict(enumerate(("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")))


def interpolation_mode(interpolation: Any, name: str) -> InterpolationMode:
    """The mode of an InterpolationMode, its name or Pillow's number. Raises ValueError for others."""
    try:
        return InterpolationMode(_PILLOW_CODES.get(interpolation, getattr(interpolation, "value", interpolation)))
    except (ValueError, TypeError):
        known = ", ".join(m.value for m in InterpolationMode)
        raise ValueError(f"{name}: interpolation must be one of {known}, got {interpolation!r}") from None


def pillow_code(mode: InterpolationMode) -> int:
    """Pillow's number of a mode."""
    value = mode.value.removesuffix("-exact")
    return next(code for code, name in _PILLOW_CODES.items() if name == value)


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.maximum(1 - np.abs(x), 0)


def _cubic(x: np.ndarray) -> np.ndarray:
    # Keys' kernel with a = -0.5, as Pillow has it.
    x = np.abs(x)
    near, far = (1.5 * x - 2.5) * x * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def _box(x: np.ndarray) -> np.ndarray:
    return ((x > -0.5) & (x <= 0.5)).astype(np.float64)


def _hamming(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < 1, np.sinc(x) * (0.54 + 0.46 * np.cos(np.pi * x)), 0)


def _lanczos(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0)


_KERNELS = {"bilinear": _triangle, "bicubic": _cubic, "box": _box, "hamming": _hamming, "lanczos": _lanczos}
_SUPPORTS = {"bilinear": 1.0, "bicubic": 2.0, "box": 0.5, "hamming": 1.0, "lanczos": 3.0}


@functools.lru_cache(64)
def pixel_weights(old: int, new: int, mode: str) -> np.ndarray:
    """(new, old): how much of each old pixel goes into each new one, with antialiasing."""
    # In the order of operations that Pillow has, which decides what lies on the edge of a kernel.
    scale = old / new
    centres = (np.arange(new)[:, None] + 0.5) * scale
    spread = max(scale, 1.0)
    places, support = np.arange(old), _SUPPORTS[mode] * spread
    first, last = np.trunc(centres - support + 0.5), np.trunc(centres + support + 0.5)
    weights = _KERNELS[mode]((places - centres + 0.5) * (1.0 / spread))
    weights[(places < first) | (places >= last)] = 0
    return weights / weights.sum(1, keepdims=True)


@functools.lru_cache(64)
def _fixed_weights(old: int, new: int, mode: str) -> np.ndarray:
    """Those of Pillow for bytes: integers of 22 bits after the point, as float64, whose products are exact."""
    weights = pixel_weights(old, new, mode) * 2**22
    return np.trunc(weights + np.copysign(0.5, weights))


def _nearest(old: int, new: int, mode: str, array: bool) -> np.ndarray:
    """Which old pixel becomes each new one: of an array as Pillow adds it up, of a tensor as PyTorch multiplies."""
    if array:
        steps = np.full(new, old / new)
        steps[0] /= 2
        places = np.add.accumulate(steps)
    else:
        offset = np.float32(0.5 if mode == "nearest-exact" else 0)
        places = (np.arange(new, dtype=np.float32) + offset) * (np.float32(old) / np.float32(new))
    return np.minimum(places.astype(np.int64), old - 1)


def new_sizes(h: int, w: int, size: Any, max_size: int | None) -> tuple[int, int]:
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
    mode: str = interpolation_mode(interpolation, "resize").value
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

    With `antialias` a pixel of a smaller image is made of all those that it covers; an array or a PIL image is always
    treated so: of grey levels or three colours by Pillow where it is installed, else with its arithmetic, to a level.
    Raises ShapeError for an image without pixels, ValueError for another size or mode, and for a tensor and a mode
    that Pillow alone has.
    """
    img = as_image(img, "resize")
    array = isinstance(img, np.ndarray)
    antialias = True if array or is_picture(img) else antialias
    mode = _check(size, interpolation, antialias)
    h, w = height_width(img)
    if not h or not w:
        raise norch.ShapeError(f"resize: an image of {h} x {w} has no pixels")
    new_h, new_w = new_sizes(h, w, size, max_size)
    if (new_h, new_w) == (h, w):
        return img
    if is_picture(img):
        return img.resize((new_w, new_h), pillow_code(InterpolationMode(mode)))
    if not array and mode not in (*_SMOOTH, "nearest", "nearest-exact"):
        raise ValueError(f"resize: {mode} interpolation is there for images that are no tensors")
    if mode.startswith("nearest"):
        rows, columns = (_nearest(old, new, mode, array) for old, new in ((h, new_h), (w, new_w)))
        if array:
            return img[rows[:, None], columns]
        down, across = (norch.from_numpy(places).to(img.device) for places in (rows, columns))
        return img.index_select(-2, down).index_select(-1, across)
    if array and img.dtype == np.uint8:
        if img.shape[2:] in ((), (1,), (3,)) and has_pillow():
            return _by_pillow(img, (new_w, new_h), pillow_code(InterpolationMode(mode)))
        return _resize_bytes(img, new_h, new_w, mode)
    if not array:
        return resize_tensor(img, (new_h, new_w), mode, bool(antialias))
    return _resize_array(img, *(pixel_weights(*sizes, mode) for sizes in ((h, new_h), (w, new_w))))


@on_pictures
def _by_pillow(img: Any, size: tuple[int, int], code: int) -> Any:
    return img.resize(size, code)


def _resize_bytes(img: np.ndarray, height: int, width: int, mode: str) -> np.ndarray:
    """As Pillow does it: across, rounded to bytes, then down; a side that stays as it is is left out."""

    def rounded(sums: np.ndarray) -> np.ndarray:
        return np.floor((sums + 2**21) / 2**22).clip(0, 255)

    (h, w), planes = img.shape[:2], (img[..., None] if img.ndim == 2 else img).transpose(2, 0, 1).astype(np.float64)
    if width != w:
        planes = rounded(planes @ _fixed_weights(w, width, mode).T)
    if height != h:
        planes = rounded(_fixed_weights(h, height, mode) @ planes)
    return planes.transpose(1, 2, 0).reshape(height, width, *img.shape[2:]).astype(np.uint8)


def _resize_array(img: np.ndarray, down: np.ndarray, across: np.ndarray) -> np.ndarray:
    dtype = img.dtype if img.dtype == np.float64 else np.dtype(np.float32)
    planes = (img[..., None] if img.ndim == 2 else img).transpose(2, 0, 1).astype(dtype)
    out = np.matmul(np.matmul(down.astype(dtype), planes), across.T.astype(dtype)).transpose(1, 2, 0)
    if img.dtype.kind in "iu":
        limits = np.iinfo(img.dtype)
        out = np.rint(out).clip(limits.min, limits.max)
    return out.reshape(*out.shape[: img.ndim]).astype(img.dtype)


def resize_tensor(img: norch.Tensor, size: tuple[int, int], mode: str, antialias: bool) -> norch.Tensor:
    dtype = img.dtype if img.dtype in (norch.float32, norch.float64) else norch.float32
    planes = img.to(dtype).reshape(-1, 1, *img.shape[-2:])
    out = nn.functional.interpolate(planes, size, mode=mode, antialias=antialias).reshape(*img.shape[:-2], *size)
    if img.dtype is dtype:
        return out
    if not img.is_floating_point():
        limits = norch.iinfo(img.dtype)
        out = out.round().clamp(limits.min, limits.max)
    return out.to(img.dtype)


@layer()
class Resize(nn.Module):
    """`resize`: the image in another size. max_size: as there."""

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
