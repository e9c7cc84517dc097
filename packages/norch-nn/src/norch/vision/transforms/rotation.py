"""Turned images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import norch
from norch import nn
from norch.nn.layer import layer
from norch.utils.data import sample_rng as generator

from .images import Image, as_image, height_width, is_picture, on_pictures
from .resizing import InterpolationMode, interpolation_mode, pillow_code


def _expanded(h: int, w: int, cos: float, sin: float) -> tuple[int, int]:
    """The size of the upright frame that holds the turned image: exact for quarter turns, else as Pillow has it."""
    if cos == 0 or sin == 0:
        return (h, w) if sin == 0 else (w, h)
    across, down = (abs(w * cos) + abs(h * sin)) / 2, (abs(w * sin) + abs(h * cos)) / 2
    sizes = ((round(n / 2 - part, 4), round(n / 2 + part, 4)) for n, part in ((h, down), (w, across)))
    height, width = (math.ceil(high) - math.floor(low) for low, high in sizes)
    return height, width


def rotate(
    img: Image,
    angle: float,
    interpolation: InterpolationMode | str = InterpolationMode.NEAREST,
    expand: bool = False,
    center: Sequence[float] | None = None,
    fill: Any = 0,
) -> Image:
    """The image turned by `angle` degrees against the clock; `fill` where there was none.

    interpolation: "nearest" or "bilinear", of images that are no tensors also "bicubic"; else than nearest, arrays need
    Pillow. center: (x, y) in pixels from the upper left corner, by default the middle. expand: makes the image so large
    that all of it is seen; it takes the middle for the center.
    """
    img = as_image(img, "rotate")
    mode = turning_mode(img, interpolation, "rotate")
    if is_picture(img) or (isinstance(img, np.ndarray) and mode is not InterpolationMode.NEAREST):
        return _by_pillow(img, angle, pillow_code(mode), expand, center, fill)
    h, w = height_width(img)
    cos, sin = (round(part(math.radians(angle)), 15) for part in (math.cos, math.sin))
    height, width = _expanded(h, w, cos, sin) if expand else (h, w)
    x, y = (0.0, 0.0) if center is None or expand else (center[0] - w / 2, center[1] - h / 2)
    across = np.arange(width) + (0.5 - width / 2 - x)
    down = (np.arange(height) + (0.5 - height / 2 - y))[:, None]
    return sampled(img, cos * across - sin * down + (x + w / 2), sin * across + cos * down + (y + h / 2), mode, fill)


def turning_mode(img: Image, interpolation: Any, name: str) -> InterpolationMode:
    """The mode, if images of that kind can be turned with it; else ValueError."""
    mode = interpolation_mode(interpolation, name)
    allowed = ["nearest", "bilinear"] + ([] if isinstance(img, norch.Tensor) else ["bicubic"])
    if mode.value not in allowed:
        raise ValueError(f"{name}: interpolation must be one of {', '.join(allowed)}, got {interpolation!r}")
    return mode


@on_pictures
def _by_pillow(img: Any, angle: float, code: int, expand: bool, center: Any, fill: Any) -> Any:
    return img.rotate(angle, code, expand, center, fillcolor=fill_colour(img, fill))


def fill_colour(img: Any, fill: Any) -> Any:
    """`fill` for all bands of a PIL image, as Pillow wants it."""
    bands = len(img.getbands())
    if fill is None or bands == 1:
        return fill[0] if isinstance(fill, Sequence) else fill
    return tuple(fill) * (bands if len(fill) == 1 else 1) if isinstance(fill, Sequence) else (fill,) * bands


def sampled(img: Image, x: np.ndarray, y: np.ndarray, mode: InterpolationMode, fill: Any) -> Image:
    """The pixels of an array or tensor at places in pixels from the upper left corner, and `fill` outside."""
    h, w = height_width(img)
    if mode is InterpolationMode.BILINEAR:
        return _blended(img, x - 0.5, y - 0.5, fill)
    columns, rows = (np.floor(part).astype(np.int64) for part in (x, y))
    inside = (rows >= 0) & (rows < h) & (columns >= 0) & (columns < w)
    if isinstance(img, np.ndarray):
        out = np.empty((*inside.shape, *img.shape[2:]), img.dtype)
        out[...] = fill
        out[inside] = img[rows[inside], columns[inside]]
        return out
    turned = _picked(img, rows, columns, inside)
    return norch.where(norch.from_numpy(inside).to(img.device), turned, _per_channel(img, fill)).to(img.dtype)


def _per_channel(img: norch.Tensor, fill: Any) -> Any:
    if not isinstance(fill, Sequence):
        return 0 if fill is None else fill
    return norch.tensor(fill, dtype=img.dtype, device=img.device).view(-1, 1, 1)


def _picked(img: norch.Tensor, rows: np.ndarray, columns: np.ndarray, inside: np.ndarray) -> norch.Tensor:
    places = norch.from_numpy(np.where(inside, rows * img.shape[-1] + columns, 0).ravel()).to(img.device)
    return img.flatten(-2).index_select(-1, places).reshape(*img.shape[:-2], *inside.shape)


def _blended(img: norch.Tensor, x: np.ndarray, y: np.ndarray, fill: Any) -> norch.Tensor:
    """The four pixels around each place by their nearness; what lies outside counts as `fill`."""
    h, w = height_width(img)
    dtype = img.dtype if img.is_floating_point() else norch.float32
    source, left, top = img.to(dtype), np.floor(x), np.floor(y)
    out: Any = 0.0
    share: Any = 0.0
    for columns, across in ((left, left + 1 - x), (left + 1, x - left)):
        for rows, down in ((top, top + 1 - y), (top + 1, y - top)):
            inside = (rows >= 0) & (rows < h) & (columns >= 0) & (columns < w)
            weight = norch.from_numpy(across * down * inside).to(img.device, dtype)
            out = out + _picked(source, rows.astype(np.int64), columns.astype(np.int64), inside) * weight
            share = share + weight
    out = out + (1 - share) * _per_channel(source, fill)
    return out if img.is_floating_point() else out.round().to(img.dtype)


@layer()
class RandomRotation(nn.Module):
    """The image turned by a random angle between the two `degrees`, or from -degrees to degrees. See `rotate`.

    Raises ValueError for a negative number alone.
    """

    degrees: Any
    interpolation: Any = InterpolationMode.NEAREST
    expand: bool = False
    center: Sequence[float] | None = None
    fill: Any = 0

    def __post_init__(self) -> None:
        degrees = self.degrees
        if isinstance(degrees, int | float):
            if degrees < 0:
                raise ValueError(f"RandomRotation: one number of degrees must not be negative, got {degrees}")
            degrees = (-degrees, degrees)
        if len(degrees) != 2:
            raise ValueError(f"RandomRotation: degrees must be one number or two, got {degrees!r}")
        self.degrees = [float(d) for d in degrees]
        self.interpolation = interpolation_mode(self.interpolation, "RandomRotation")

    def forward(self, img: Image) -> Image:
        angle = float(generator().uniform(self.degrees[0], self.degrees[1]))
        return rotate(img, angle, self.interpolation, self.expand, self.center, self.fill)

    def __repr__(self) -> str:
        detail = f"(degrees={self.degrees}, interpolation={self.interpolation.value}, expand={self.expand}"
        return f"{type(self).__name__}{detail}, fill={self.fill})"
