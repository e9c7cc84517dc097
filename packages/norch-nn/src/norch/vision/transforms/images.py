"""The two kinds of image that the transforms take.

A NumPy array of shape (H, W) or (H, W, C), which is what the data sets give and what a PIL image, or anything else with
the array interface, is made into; and a tensor of shape (..., H, W). A transform gives back the kind that it got.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import norch

Image = Any  # np.ndarray or norch.Tensor


def as_image(image: Any, name: str) -> Image:
    """An array or tensor of at least two dims, else TypeError or ShapeError."""
    if isinstance(image, norch.Tensor):
        if image.ndim < 2:
            raise norch.ShapeError(f"{name}: a tensor image has shape (..., H, W), got {tuple(image.shape)}")
        return image
    if not isinstance(image, np.ndarray):
        if not hasattr(image, "__array_interface__"):
            raise TypeError(f"{name}: expected a NumPy array, a tensor or a PIL image, got {type(image).__name__}")
        image = np.asarray(image)
    if image.ndim not in (2, 3):
        raise norch.ShapeError(f"{name}: an image array has shape (H, W) or (H, W, C), got {image.shape}")
    return image


def height_width(image: Image) -> tuple[int, int]:
    if isinstance(image, np.ndarray):
        return image.shape[0], image.shape[1]
    return image.shape[-2], image.shape[-1]


def two_sizes(size: Any, name: str) -> tuple[int, int]:
    """(height, width) from one number, for a square, or a sequence of one or two. Else ValueError."""
    sizes = (size,) if isinstance(size, int) else tuple(size) if isinstance(size, Sequence) else ()
    if len(sizes) == 1:
        sizes *= 2
    if len(sizes) != 2 or not all(isinstance(n, int) and n > 0 for n in sizes):
        raise ValueError(f"{name}: size must be a positive number, or (height, width), got {size!r}")
    return sizes


def probability(p: float, name: str) -> None:
    if not 0 <= p <= 1:
        raise ValueError(f"{name}: p must be between 0 and 1, got {p}")
