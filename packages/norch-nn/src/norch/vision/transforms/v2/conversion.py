"""Kinds and dtypes of images, and borders and means as v2 takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import norch

from .. import conversion as v1
from .. import cropping
from ..images import Image, as_image, height_width, is_picture


def to_image(inpt: Image) -> norch.Tensor:
    """A PIL image or an array, (H, W) or (H, W, C), as a tensor (C, H, W) of its numbers; a tensor as it is."""
    if isinstance(inpt, norch.Tensor):
        return inpt
    return v1.pil_to_tensor(inpt)


def to_dtype(inpt: norch.Tensor, dtype: norch.DType = norch.float32, scale: bool = False) -> norch.Tensor:
    """A tensor of any shape in `dtype`; with `scale` its values too, so that the largest integer is 1.0.

    Raises TypeError for what is no tensor, and with `scale` DTypeError for bool to integers, from float32 to int32, and
    from floating point to int64, which would lose digits.
    """
    if not isinstance(inpt, norch.Tensor):
        raise TypeError(f"to_dtype: expected a tensor, got {type(inpt).__name__}: put ToImage first")
    source = inpt.dtype
    if source is dtype or not scale:
        return inpt.to(dtype)
    if inpt.is_floating_point():
        if dtype.is_floating_point:
            return inpt.to(dtype)
        if (source, dtype) in (
            (norch.float32, norch.int32),
            (norch.float32, norch.int64),
            (norch.float64, norch.int64),
        ):
            raise norch.DTypeError(f"to_dtype: {source} is too coarse for {dtype}")
        return inpt.mul(_largest(dtype) + 1.0 - 1e-3).to(dtype)
    if dtype.is_floating_point:
        return inpt.to(dtype).mul(1.0 / _largest(source))
    if norch.bool in (source, dtype):
        raise norch.DTypeError(f"to_dtype: no scale between {source} and {dtype}")
    more = _largest(dtype).bit_length() - _largest(source).bit_length()
    wide = inpt.to(norch.int64)
    return (wide << more if more > 0 else wide >> -more).to(dtype)


def _largest(dtype: norch.DType) -> int:
    return 1 if dtype is norch.bool else int(norch.iinfo(dtype).max)


def grayscale_to_rgb(inpt: Image) -> Image:
    """An image of one channel as one of three equal ones; of three or more as it is, a PIL image or an array without
    alpha. Raises ShapeError for a tensor of two channels.
    """
    image = as_image(inpt, "grayscale_to_rgb")
    if is_picture(image):
        return image.convert("RGB")
    if isinstance(image, np.ndarray):
        channels = image[..., None] if image.ndim == 2 else image
        return np.repeat(channels[..., :1], 3, -1) if channels.shape[-1] < 3 else channels[..., :3]
    if image.ndim > 2 and image.shape[-3] >= 3:
        return image
    if image.ndim < 3 or image.shape[-3] != 1:
        raise norch.ShapeError(f"grayscale_to_rgb: expected 1 or 3 channels, got an image {tuple(image.shape)}")
    return image.repeat_interleave(3, -3)


def pad(
    inpt: Image,
    padding: int | Sequence[int],
    fill: float | Sequence[float] | None = None,
    padding_mode: str = "constant",
) -> Image:
    """`norch.vision.transforms.functional.pad`, whose `fill` may be None, for 0, or of a tensor too a number for each
    channel. Raises ValueError for several with another padding_mode than "constant".
    """
    values = [0] if fill is None else [fill] if isinstance(fill, int | float) else list(fill)
    if len(values) > 1 and padding_mode != "constant":
        raise ValueError(f"pad: a fill for each channel is there with padding_mode 'constant', not {padding_mode!r}")
    if len(values) == 1:
        return cropping.pad(inpt, padding, values[0], padding_mode)
    if not isinstance(inpt, norch.Tensor):
        return cropping.pad(inpt, padding, fill)
    inside = cropping.pad(norch.ones(inpt.shape[-2:], dtype=norch.uint8, device=inpt.device), padding) > 0
    channels = norch.tensor(values, device=inpt.device).to(inpt.dtype).view(-1, 1, 1)
    return norch.where(inside, cropping.pad(inpt, padding), channels)


def normalize(inpt: norch.Tensor, mean: Any, std: Any, inplace: bool = False) -> norch.Tensor:
    """(inpt - mean) / std of a floating-point image (..., C, H, W), in its memory if `inplace`.

    mean, std: a number for each channel, or tensors of them. Raises TypeError for what is no tensor, DTypeError unless
    floating, ShapeError for fewer dims, ValueError for a std with zeros.
    """
    if not isinstance(mean, norch.Tensor) and not isinstance(std, norch.Tensor):
        means, stds = ([value] if isinstance(value, int | float) else value for value in (mean, std))
        return v1.normalize(inpt, means, stds, inplace)
    if not isinstance(inpt, norch.Tensor):
        raise TypeError(f"normalize: expected a tensor, got {type(inpt).__name__}: put ToImage first")
    if not inpt.is_floating_point():
        raise norch.DTypeError(f"normalize: expected a floating-point image, got {inpt.dtype}")
    if inpt.ndim < 3:
        raise norch.ShapeError(f"normalize: expected an image of shape (..., C, H, W), got {tuple(inpt.shape)}")
    if not isinstance(std, norch.Tensor) and not np.all(std):
        raise ValueError(f"normalize: std {std} has a zero")
    a, b = (norch.as_tensor(values, dtype=inpt.dtype, device=inpt.device) for values in (mean, std))
    a, b = (values.view(-1, 1, 1) if values.ndim == 1 else values for values in (a, b))
    return inpt.sub_(a).div_(b) if inplace else (inpt - a) / b


def get_size(inpt: Image) -> list[int]:
    """[H, W] of an image."""
    return list(height_width(as_image(inpt, "get_size")))


def get_num_channels(inpt: Image) -> int:
    """How many channels an image has, of a tensor of two dims 1."""
    image = as_image(inpt, "get_num_channels")
    if is_picture(image):
        return len(image.getbands())
    if isinstance(image, np.ndarray):
        return 1 if image.ndim == 2 else image.shape[2]
    return 1 if image.ndim == 2 else image.shape[-3]


def get_dimensions(inpt: Image) -> list[int]:
    """[C, H, W] of an image."""
    return [get_num_channels(inpt), *get_size(inpt)]
