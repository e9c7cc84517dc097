"""Tensors in another size: bytes in PyTorch's integers, row by row and then column by column."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

import norch

from .. import resizing as v1
from ..images import Image, as_image, height_width
from ..resizing import InterpolationMode

_REACHES = {"bilinear": 1, "bicubic": 2}
_SMOOTH = ("bilinear", "bicubic", "lanczos")


def resize(
    img: Image,
    size: int | Sequence[int] | None,
    interpolation: Any = InterpolationMode.BILINEAR,
    max_size: int | None = None,
    antialias: bool | None = True,
) -> Image:
    """`norch.vision.transforms.functional.resize`, but that a tensor of uint8 on the CPU is computed in integers, as
    torchvision's v2 does: across, rounded to bytes, and then down.

    size: None for the longer side of max_size pixels. A tensor may have "lanczos" too, with `antialias`, and "bicubic"
    without. Raises ShapeError for an image without pixels, ValueError for other sizes and modes.
    """
    img = as_image(img, "resize")
    h, w = height_width(img)
    if not h or not w:
        raise norch.ShapeError(f"resize: an image of {h} x {w} has no pixels")
    if size is None:
        if not isinstance(max_size, int):
            raise ValueError(f"resize: without a size max_size is needed, got {max_size!r}")
        shorter = int(max_size * min(h, w) / max(h, w))
        size, max_size = (shorter, max_size) if h <= w else (max_size, shorter), None
    mode: str = v1.interpolation_mode(interpolation, "resize").value
    if not isinstance(img, norch.Tensor) or mode not in _SMOOTH:
        return v1.resize(img, size, interpolation, max_size, antialias)
    if mode == "lanczos" and not antialias:
        raise ValueError("resize: lanczos interpolation is there with antialias=True only")
    new_h, new_w = v1.new_sizes(h, w, size, max_size)
    if (new_h, new_w) == (h, w):
        return img
    if img.dtype is norch.uint8 and img.device.type == "cpu":
        return norch.from_numpy(_resize_bytes(img.numpy(), new_h, new_w, mode, bool(antialias)))
    return v1.resize_tensor(img, (new_h, new_w), mode, bool(antialias))


@functools.lru_cache(64)
def _near(old: int, new: int, mode: str) -> np.ndarray:
    """Without antialiasing: pixels beyond the edge are those at the edge, and not left out."""
    reach = _REACHES[mode]
    centres = (np.arange(new) + 0.5) * (old / new) - 0.5
    if mode == "bilinear":
        centres = np.maximum(centres, 0)
    first = np.floor(centres).astype(np.int64)
    weights = np.zeros((new, old))
    for step in range(1 - reach, reach + 1):
        distance = np.abs(step - (centres - first))
        share = 1 - distance if mode == "bilinear" else _cubic(distance)
        np.add.at(weights, (np.arange(new), (first + step).clip(0, old - 1)), share)
    return weights


def _cubic(x: np.ndarray) -> np.ndarray:
    # Keys' kernel with a = -0.75, as PyTorch has it without antialiasing.
    near, far = (1.25 * x - 2.25) * x * x + 1, ((-0.75 * x + 3.75) * x - 6) * x + 3
    return np.where(x < 1, near, np.where(x < 2, far, 0))


@functools.lru_cache(64)
def _integer_weights(old: int, new: int, mode: str, antialias: bool) -> tuple[np.ndarray, int]:
    """Integers below 2^15 and how many of their bits are after the point; float64, whose products are exact."""
    weights = v1.pixel_weights(old, new, mode) if antialias else _near(old, new, mode)
    bits = 0
    while bits < 22 and int(0.5 + weights.max() * 2 ** (bits + 1)) < 2**15:
        bits += 1
    weights = weights * 2**bits
    return np.trunc(weights + np.copysign(0.5, weights)), bits


def _resize_bytes(planes: np.ndarray, height: int, width: int, mode: str, antialias: bool) -> np.ndarray:
    def rounded(sums: np.ndarray, bits: int) -> np.ndarray:
        return np.floor((sums + 2 ** (bits - 1)) / 2**bits).clip(0, 255)

    h, w = planes.shape[-2:]
    found = planes.astype(np.float64)
    if width != w:
        weights, bits = _integer_weights(w, width, mode, antialias)
        found = rounded(found @ weights.T, bits)
    if height != h:
        weights, bits = _integer_weights(h, height, mode, antialias)
        found = rounded(weights @ found, bits)
    return found.astype(np.uint8)
