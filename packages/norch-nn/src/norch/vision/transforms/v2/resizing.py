"""Tensors in another size: bytes in PyTorch's integers, row by row and then column by column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import norch

from .. import resizing as v1
from ..images import Image, as_image, height_width
from ..resizing import InterpolationMode

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
        planes = img.reshape(-1, 1, h, w)
        found = norch.interpolate(planes, (new_h, new_w), mode=mode, antialias=bool(antialias))
        return found.reshape(*img.shape[:-2], new_h, new_w)
    return v1.resize_tensor(img, (new_h, new_w), mode, bool(antialias))
