"""From images to tensors, and what is done to their numbers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

import norch
from norch import nn
from norch.nn.layer import layer

from .images import as_image, as_picture, is_picture, pillow

_INTEGERS = (norch.uint8, norch.int8, norch.int16, norch.int32, norch.int64)


def _array(image: Any) -> np.ndarray:
    """The numbers of an image that is no tensor; of black and white of PIL 0 and 255."""
    if not is_picture(image):
        return image
    array = np.asarray(image)
    return array * np.uint8(255) if image.mode == "1" else array


def to_tensor(pic: Any) -> norch.Tensor:
    """An image of shape (H, W) or (H, W, C) as a tensor (C, H, W); bytes, from 0 to 255, become floats from 0 to 1.

    Numbers of other types keep their values and dtype. A number, or nested lists of them, becomes a tensor of its
    values. Raises TypeError for anything else.
    """
    if isinstance(pic, int | float | list | tuple):
        return norch.tensor(pic)
    if isinstance(pic, norch.Tensor):
        raise TypeError("to_tensor: expected an image, got a tensor")
    image = _array(as_image(pic, "to_tensor"))
    planes = image[None] if image.ndim == 2 else image.transpose(2, 0, 1)
    if image.dtype != np.uint8:
        return norch.from_numpy(np.ascontiguousarray(planes))
    dtype = norch.get_default_dtype()
    if dtype is norch.float32:
        return norch.from_numpy(np.divide(planes, 255, dtype=np.float32, order="C"))
    return norch.from_numpy(np.ascontiguousarray(planes)).to(dtype).div(255)


def pil_to_tensor(pic: Any) -> norch.Tensor:
    """The numbers of a PIL image or an array as they are: (H, W) or (H, W, C) to (C, H, W). TypeError for a tensor."""
    if isinstance(pic, norch.Tensor):
        raise TypeError("pil_to_tensor: expected an image, got a tensor")
    image = np.asarray(as_image(pic, "pil_to_tensor"))
    return norch.from_numpy(np.array(image[None] if image.ndim == 2 else image.transpose(2, 0, 1), order="C"))


def to_pil_image(pic: Any, mode: str | None = None) -> Any:
    """A tensor (C, H, W) or (H, W), or an array (H, W) or (H, W, C), as a PIL image; floats are from 0 to 1.

    mode: Pillow's name of what the channels mean, by default L, LA, RGB or RGBA by their number, and I, I;16 or F for
    one of 32 or 16 bits or floats. Raises ShapeError for other numbers of channels, TypeError for a PIL image,
    ImportError without Pillow.
    """
    Image = pillow("to_pil_image()")
    array = as_image(pic, "to_pil_image")
    if is_picture(array):
        raise TypeError("to_pil_image: expected a tensor or an array, got a PIL image")
    if isinstance(array, norch.Tensor):
        if array.is_floating_point() and mode != "F":
            array = array.mul(255).to(norch.uint8)
        array = array.detach().cpu().numpy()
        array = array if array.ndim == 2 else np.moveaxis(array, -3, -1)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[..., 0]
    if array.ndim != 2 and (array.ndim != 3 or array.shape[2] not in (2, 3, 4)):
        raise norch.ShapeError(f"to_pil_image: expected 1 to 4 channels, got shape {tuple(pic.shape)}")
    made = Image.fromarray(np.ascontiguousarray(array))
    return made if mode in (None, made.mode) else as_picture(array, Image.new(mode, (1, 1)))


def convert_image_dtype(image: norch.Tensor, dtype: norch.DType = norch.float32) -> norch.Tensor:
    """A tensor image in `dtype`, its values scaled so that the largest integer is 1.0.

    Raises DTypeError for bool, and from float32 to int32 or from floating point to int64, which would lose digits.
    """
    if not isinstance(image, norch.Tensor):
        raise TypeError(f"convert_image_dtype: expected a tensor, got {type(image).__name__}")
    source = image.dtype
    if source is dtype:
        return image
    if norch.bool in (source, dtype):
        raise norch.DTypeError(f"convert_image_dtype: no scale between {source} and {dtype}")
    if source not in _INTEGERS:
        if dtype not in _INTEGERS:
            return image.to(dtype)
        if (source is norch.float32 and dtype is norch.int32) or dtype is norch.int64:
            raise norch.DTypeError(f"convert_image_dtype: {source} is too coarse for {dtype}")
        return (image * (norch.iinfo(dtype).max + 1.0 - 1e-3)).to(dtype)
    top = norch.iinfo(source).max
    if dtype not in _INTEGERS:
        return image.to(dtype) / top
    wanted = norch.iinfo(dtype).max
    if top > wanted:
        return image.div((top + 1) // (wanted + 1), rounding_mode="floor").to(dtype)
    return image.to(dtype) * ((wanted + 1) // (top + 1))


@functools.lru_cache(64)
def _columns(
    mean: tuple[float, ...], std: tuple[float, ...], dtype: norch.DType, device: norch.Device
) -> tuple[norch.Tensor, norch.Tensor]:
    """mean and std with shape (C, 1, 1)."""
    a, b = (norch.tensor(values, dtype=dtype, device=device).view(-1, 1, 1) for values in (mean, std))
    if (b == 0).any():
        raise ValueError(f"normalize: std {std} has a zero in {dtype}")
    return a, b


def normalize(tensor: norch.Tensor, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> norch.Tensor:
    """(tensor - mean) / std for each channel of a floating-point image (..., C, H, W), in its memory if `inplace`.

    Raises TypeError unless it is a tensor, DTypeError unless floating, ShapeError for numbers that do not fit.
    """
    if not isinstance(tensor, norch.Tensor):
        raise TypeError(f"normalize: expected a tensor, got {type(tensor).__name__}: put ToTensor first")
    if not tensor.is_floating_point():
        raise norch.DTypeError(f"normalize: expected a floating-point image, got {tensor.dtype}")
    if tensor.ndim < 3:
        raise norch.ShapeError(f"normalize: expected an image of shape (..., C, H, W), got {tuple(tensor.shape)}")
    a, b = _columns(tuple(mean), tuple(std), tensor.dtype, tensor.device)
    for name, values in (("mean", a), ("std", b)):
        if len(values) not in (1, tensor.shape[-3]):
            raise norch.ShapeError(
                f"normalize: {len(values)} values of {name} for the channels of an image {tuple(tensor.shape)}"
            )
    return tensor.sub_(a).div_(b) if inplace else (tensor - a) / b


class ToTensor:
    """`to_tensor`: an image (H, W) or (H, W, C) of bytes to a float tensor (C, H, W) from 0 to 1."""

    def __call__(self, pic: Any) -> norch.Tensor:
        return to_tensor(pic)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class PILToTensor:
    """`pil_to_tensor`: an image's numbers as they are, with the channels first."""

    def __call__(self, pic: Any) -> norch.Tensor:
        return pil_to_tensor(pic)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class ToPILImage:
    """`to_pil_image`: a tensor or array as a PIL image of that `mode`."""

    def __init__(self, mode: str | None = None) -> None:
        self.mode = mode

    def __call__(self, pic: Any) -> Any:
        return to_pil_image(pic, self.mode)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'' if self.mode is None else f'mode={self.mode}'})"


@layer(convert_image_dtype)
class ConvertImageDtype(nn.Module):
    """`convert_image_dtype` to `dtype`."""

    dtype: norch.DType
    _shown = ()


@layer(normalize)
class Normalize(nn.Module):
    """(image - mean) / std for each channel of a floating-point image (..., C, H, W)."""

    mean: Sequence[float]
    std: Sequence[float]
    inplace: bool = False
    _shown = ("mean", "std")


class Reshape:
    """The image, or tensor, in another shape: `x.reshape(shape)`."""

    def __init__(self, shape: Sequence[int]) -> None:
        self.shape = shape

    def __call__(self, x: Any) -> Any:
        return x.reshape(self.shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape})"
