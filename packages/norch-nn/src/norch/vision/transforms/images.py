"""The kinds of image that the transforms take.

A NumPy array of shape (H, W) or (H, W, C), which is what most data sets give and what anything with the array interface
is made into; a PIL image; and a tensor of shape (..., H, W). A transform gives back the kind that it got.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import norch

Image = Any  # np.ndarray, PIL.Image.Image or norch.Tensor


def is_picture(image: Any) -> bool:
    """Whether it is a PIL image. Pillow is not imported for that."""
    pillow = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(image, pillow.Image)


def pillow(name: str) -> Any:
    """The module PIL.Image. Raises ImportError that says who needs it."""
    try:
        from PIL import Image
    except ImportError:
        raise ImportError(f"{name} needs Pillow for images that are no tensors: pip install norch-nn[vision]") from None
    return Image


def has_pillow() -> bool:
    return "PIL.Image" in sys.modules or importlib.util.find_spec("PIL") is not None


def as_picture(image: np.ndarray, like: Any) -> Any:
    """An array as a PIL image of the mode of another."""
    Image = pillow("as_picture()")
    if image.dtype == bool:
        return Image.fromarray(image)
    made = Image.frombytes(like.mode, image.shape[1::-1], np.ascontiguousarray(image).tobytes())
    if like.mode == "P":
        made.putpalette(like.getpalette())
    return made


def on_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arrays and tensors, for PIL images too."""

    @functools.wraps(function)
    def call(img: Image, *args: Any, **kwargs: Any) -> Image:
        if not is_picture(img):
            return function(img, *args, **kwargs)
        return as_picture(function(np.asarray(img), *args, **kwargs), img)

    return call


def on_pictures(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of PIL images and tensors, for arrays of bytes too. Raises DTypeError for other arrays."""

    @functools.wraps(function)
    def call(img: Image, *args: Any, **kwargs: Any) -> Image:
        img = as_image(img, function.__name__)
        if not isinstance(img, np.ndarray):
            return function(img, *args, **kwargs)
        if img.dtype != np.uint8:
            raise norch.DTypeError(f"{function.__name__}: expected an array of bytes, got {img.dtype}")
        squeezed = img[..., 0] if img.ndim == 3 and img.shape[2] == 1 else img
        out = np.asarray(function(pillow(f"{function.__name__}()").fromarray(squeezed), *args, **kwargs))
        return out[..., None] if out.ndim < img.ndim else out

    return call


def as_image(image: Any, name: str) -> Image:
    """A PIL image, an array or tensor of at least two dims, else TypeError or ShapeError."""
    if is_picture(image):
        return image
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
    if is_picture(image):
        return image.height, image.width
    if isinstance(image, np.ndarray):
        return image.shape[0], image.shape[1]
    return image.shape[-2], image.shape[-1]


def get_dimensions(img: Image) -> list[int]:
    """[channels, height, width]. Raises TypeError and ShapeError for what is no image."""
    image = as_image(img, "get_dimensions")
    if is_picture(image):
        return [len(image.getbands()), *height_width(image)]
    if isinstance(image, np.ndarray):
        return [1 if image.ndim == 2 else image.shape[2], *height_width(image)]
    return [1 if image.ndim == 2 else image.shape[-3], *height_width(image)]


def get_image_size(img: Image) -> list[int]:
    """[width, height]. Raises as `get_dimensions`."""
    return get_dimensions(img)[:0:-1]


def get_image_num_channels(img: Image) -> int:
    """The number of channels. Raises as `get_dimensions`."""
    return get_dimensions(img)[0]


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
