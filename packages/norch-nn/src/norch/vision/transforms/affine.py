"""Images moved, turned, scaled and sheared at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import norch
from norch import nn
from norch.nn.layer import layer
from norch.utils.data import sample_rng as generator

from .images import Image, as_image, height_width, on_pictures
from .resizing import InterpolationMode, interpolation_mode, pillow_code
from .rotation import fill_colour, sampled, turning_mode


def _inverse(
    center: Sequence[float], angle: float, translate: Sequence[float], scale: float, shear: Sequence[float]
) -> list[float]:
    """From a place in the new image to that in the old one: (x, y) to (a x + b y + c, d x + e y + f), as [a, …, f].

    The old image is turned by `angle` degrees, sheared and scaled about `center`, then moved by `translate`.
    """
    turn, across, down = math.radians(angle), math.radians(shear[0]), math.radians(shear[1])
    # Rotation times shear along y times shear along x, whose determinant is 1.
    a = math.cos(turn - down) / math.cos(down)
    b = -a * math.tan(across) - math.sin(turn)
    c = math.sin(turn - down) / math.cos(down)
    d = -c * math.tan(across) + math.cos(turn)
    rows = ((d / scale, -b / scale), (-c / scale, a / scale))
    x, y = -center[0] - translate[0], -center[1] - translate[1]
    return [n for (p, q), middle in zip(rows, center) for n in (p, q, p * x + q * y + middle)]


def affine(
    img: Image,
    angle: float,
    translate: Sequence[float],
    scale: float,
    shear: float | Sequence[float],
    interpolation: InterpolationMode | str = InterpolationMode.NEAREST,
    fill: Any = 0,
    center: Sequence[float] | None = None,
) -> Image:
    """The image turned by `angle` degrees with the clock, sheared by degrees and scaled about its middle, then moved.

    translate: pixels to the right and down. shear: one number for x, (x, y), or (both,). center: (x, y) from the upper
    left corner. interpolation, fill: as for `rotate`; arrays need Pillow. Raises ValueError for a scale that is not
    positive and for other numbers of values.
    """
    img = as_image(img, "affine")
    mode = turning_mode(img, interpolation, "affine")
    shears = (shear, 0.0) if isinstance(shear, int | float) else tuple(shear) * (2 // max(len(shear), 1))
    if scale <= 0 or len(translate) != 2 or len(shears) != 2:
        raise ValueError(
            f"affine: expected a positive scale, two numbers to translate and one or two of shear, got {scale}, "
            f"{translate!r} and {shear!r}"
        )
    h, w = height_width(img)
    if not isinstance(img, norch.Tensor):
        return _by_pillow(img, _inverse(center or (w * 0.5, h * 0.5), angle, translate, scale, shears), mode, fill)
    x, y = (0.0, 0.0) if center is None else (center[0] - w * 0.5, center[1] - h * 0.5)
    a, b, c, d, e, f = _inverse((x, y), angle, translate, scale, shears)
    across, down = np.arange(w) + (0.5 - w / 2), (np.arange(h) + (0.5 - h / 2))[:, None]
    return sampled(img, a * across + b * down + c + w / 2, d * across + e * down + f + h / 2, mode, fill)


@on_pictures
def _by_pillow(img: Any, matrix: list[float], mode: InterpolationMode, fill: Any) -> Any:
    return img.transform(img.size, 0, matrix, pillow_code(mode), fillcolor=fill_colour(img, fill))


def _range(value: Any, name: str) -> list[float]:
    """(low, high): from -value to value for one number that is not negative."""
    if isinstance(value, int | float):
        if value < 0:
            raise ValueError(f"RandomAffine: one number of {name} must not be negative, got {value}")
        return [-float(value), float(value)]
    return [float(v) for v in value]


@layer()
class RandomAffine(nn.Module):
    """The image turned, moved, scaled and sheared by random amounts. See `affine`.

    degrees: (low, high), or one number for -degrees to degrees. translate: shares of width and height, the most that it
    is moved. scale: (low, high). shear: as degrees, for x; or four numbers, for x and y. Raises ValueError for numbers
    out of range.
    """

    degrees: Any
    translate: Sequence[float] | None = None
    scale: Sequence[float] | None = None
    shear: Any = None
    interpolation: Any = InterpolationMode.NEAREST
    fill: Any = 0
    center: Sequence[float] | None = None

    def __post_init__(self) -> None:
        self.degrees = _range(self.degrees, "degrees")
        self.shear = None if self.shear is None else _range(self.shear, "shear")
        self.interpolation = interpolation_mode(self.interpolation, "RandomAffine")
        if len(self.degrees) != 2 or (self.shear is not None and len(self.shear) not in (2, 4)):
            raise ValueError(f"RandomAffine: expected 2 degrees and 2 or 4 of shear, got {self.degrees}, {self.shear}")
        if self.translate is not None and (len(self.translate) != 2 or not all(0 <= t <= 1 for t in self.translate)):
            raise ValueError(f"RandomAffine: translate must be two numbers from 0 to 1, got {self.translate!r}")
        if self.scale is not None and (len(self.scale) != 2 or min(self.scale) <= 0):
            raise ValueError(f"RandomAffine: scale must be two positive numbers, got {self.scale!r}")

    def forward(self, img: Image) -> Image:
        draws = generator()
        h, w = height_width(as_image(img, "RandomAffine"))
        angle = float(draws.uniform(*self.degrees))
        most = [share * size for share, size in zip(self.translate or (0, 0), (w, h))]
        moved = [round(float(draws.uniform(-m, m))) for m in most]
        scale = 1.0 if self.scale is None else float(draws.uniform(self.scale[0], self.scale[1]))
        shear = [0.0, 0.0]
        for i in range(len(self.shear or ()) // 2):
            shear[i] = float(draws.uniform(*self.shear[2 * i : 2 * i + 2]))
        return affine(img, angle, moved, scale, shear, self.interpolation, self.fill, self.center)

    def __repr__(self) -> str:
        parts = [f"degrees={self.degrees}"]
        parts += [f"{n}={getattr(self, n)}" for n in ("translate", "scale", "shear") if getattr(self, n) is not None]
        if self.interpolation is not InterpolationMode.NEAREST:
            parts.append(f"interpolation={self.interpolation.value}")
        parts += [f"fill={self.fill}"] if self.fill else []
        parts += [f"center={self.center}"] if self.center is not None else []
        return f"{type(self).__name__}({', '.join(parts)})"
