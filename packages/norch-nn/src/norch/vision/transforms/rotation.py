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

from .images import Image, as_image, height_width
from .resizing import InterpolationMode


def _nearest_only(interpolation: Any, name: str) -> InterpolationMode:
    if getattr(interpolation, "value", interpolation) != "nearest":
        raise ValueError(f"{name}: interpolation must be InterpolationMode.NEAREST, got {interpolation!r}")
    return InterpolationMode.NEAREST


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
    """The image turned by `angle` degrees against the clock, each pixel the nearest of the old ones, or `fill`.

    center: (x, y) in pixels from the upper left corner, by default the middle. expand: makes the image so large that
    all of it is seen; it takes the middle for the center.
    """
    img = as_image(img, "rotate")
    _nearest_only(interpolation, "rotate")
    h, w = height_width(img)
    cos, sin = (round(part(math.radians(angle)), 15) for part in (math.cos, math.sin))
    height, width = _expanded(h, w, cos, sin) if expand else (h, w)
    x, y = (0.0, 0.0) if center is None or expand else (center[0] - w / 2, center[1] - h / 2)
    across = np.arange(width) + (0.5 - width / 2 - x)
    down = (np.arange(height) + (0.5 - height / 2 - y))[:, None]
    columns = np.floor(cos * across - sin * down + (x + w / 2)).astype(np.int64)
    rows = np.floor(sin * across + cos * down + (y + h / 2)).astype(np.int64)
    inside = (rows >= 0) & (rows < h) & (columns >= 0) & (columns < w)
    if isinstance(img, np.ndarray):
        out = np.empty((height, width, *img.shape[2:]), img.dtype)
        out[...] = fill
        out[inside] = img[rows[inside], columns[inside]]
        return out
    places = norch.from_numpy(np.where(inside, rows * w + columns, 0).ravel()).to(img.device)
    turned = img.flatten(-2).index_select(-1, places).reshape(*img.shape[:-2], height, width)
    return norch.where(norch.from_numpy(inside).to(img.device), turned, fill).to(img.dtype)


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
        self.interpolation = _nearest_only(self.interpolation, "RandomRotation")

    def forward(self, img: Image) -> Image:
        angle = float(generator().uniform(self.degrees[0], self.degrees[1]))
        return rotate(img, angle, self.interpolation, self.expand, self.center, self.fill)

    def __repr__(self) -> str:
        detail = f"(degrees={self.degrees}, interpolation={self.interpolation.value}, expand={self.expand}"
        return f"{type(self).__name__}{detail}, fill={self.fill})"
