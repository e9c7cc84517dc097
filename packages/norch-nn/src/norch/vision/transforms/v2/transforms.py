"""The transforms that torchvision's v2 has besides, or computes otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import norch
from norch import nn
from norch.nn.layer import layer

from .. import conversion, cropping, resizing
from ..images import Image, as_image, height_width
from ..resizing import InterpolationMode
from . import functional as F


class Identity(nn.Module):
    """The image as it is."""

    def forward(self, img: Any) -> Any:
        return img


class ToImage(nn.Module):
    """`functional.to_image`: a PIL image or an array as a tensor (C, H, W) of its numbers. norch has no tv_tensors."""

    def forward(self, img: Image) -> norch.Tensor:
        return F.to_image(img)


class ToPureTensor(nn.Module):
    """The tensor as it is, since norch's images have no class of their own."""

    def forward(self, img: Any) -> Any:
        return img


class RGB(nn.Module):
    """`functional.grayscale_to_rgb`: three channels."""

    def forward(self, img: Image) -> Image:
        return F.grayscale_to_rgb(img)


@layer()
class ToDtype(nn.Module):
    """`functional.to_dtype` of a tensor; what is none stays as it is. scale: as there.

    Raises ValueError for a dict of dtypes by tv_tensors, which norch has not.
    """

    dtype: norch.DType
    scale: bool = False
    _shown = ("scale",)

    def __post_init__(self) -> None:
        if not isinstance(self.dtype, norch.DType):
            raise ValueError(f"ToDtype: dtype must be one dtype, got {type(self.dtype).__name__}")

    def forward(self, img: Any) -> Any:
        return F.to_dtype(img, self.dtype, self.scale) if isinstance(img, norch.Tensor) else img


@layer()
class ConvertImageDtype(nn.Module):
    """`functional.convert_image_dtype` to `dtype`."""

    dtype: norch.DType = norch.float32
    _shown = ()

    def forward(self, img: norch.Tensor) -> norch.Tensor:
        return F.convert_image_dtype(img, self.dtype)


class Normalize(conversion.Normalize):
    """(image - mean) / std for each channel of a floating-point image (..., C, H, W)."""

    def forward(self, img: norch.Tensor) -> norch.Tensor:
        return F.normalize(img, self.mean, self.std, self.inplace)


class Pad(cropping.Pad):
    """`functional.pad`: a border around the image."""

    def forward(self, img: Image) -> Image:
        return F.pad(img, self.padding, self.fill, self.padding_mode)


@layer()
class Resize(nn.Module):
    """`functional.resize`: the image in another size. max_size: as there."""

    size: int | Sequence[int] | None
    interpolation: Any = InterpolationMode.BILINEAR
    max_size: int | None = None
    antialias: bool | None = True
    _shown = ("size", "interpolation", "max_size", "antialias")

    def __post_init__(self) -> None:
        self.interpolation = resizing.interpolation_mode(self.interpolation, "Resize")

    def forward(self, img: Image) -> Image:
        return F.resize(img, self.size, self.interpolation, self.max_size, self.antialias)


class RandomResizedCrop(resizing.RandomResizedCrop):
    """`norch.vision.transforms.RandomResizedCrop` with `functional.resize`."""

    def forward(self, img: Image) -> Image:
        img = as_image(img, "RandomResizedCrop")
        return F.resized_crop(img, *self._part(*height_width(img)), self.size, self.interpolation, self.antialias)
