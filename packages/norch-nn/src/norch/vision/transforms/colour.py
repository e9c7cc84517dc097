"""Brightness, contrast and colours changed: of PIL images and arrays by Pillow, of tensors as torchvision does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import norch
from norch import nn
from norch.nn.layer import layer
from norch.utils.data import sample_rng as generator

from .images import Image, as_image, as_picture, is_picture, on_pictures, probability


def _channels(img: norch.Tensor, name: str, allowed: Sequence[int] = (1, 3)) -> int:
    channels = img.shape[-3] if img.ndim >= 3 else 1
    if channels not in allowed:
        expected = " or ".join(map(str, allowed))
        raise norch.ShapeError(f"{name}: expected {expected} channels, got an image {tuple(img.shape)}")
    return channels


def _grey(img: norch.Tensor) -> norch.Tensor:
    """One channel of luma, (ITU-R 601), in the dtype of an image of three."""
    red, green, blue = img.unbind(-3)
    return (0.2989 * red + 0.587 * green + 0.114 * blue).to(img.dtype).unsqueeze(-3)


def _blend(img: norch.Tensor, other: Any, factor: float) -> norch.Tensor:
    """img * factor + other * (1 - factor), cut off at what the dtype's images have."""
    bound = 1.0 if img.is_floating_point() else float(norch.iinfo(img.dtype).max)
    return (factor * img + (1.0 - factor) * other).clamp(0, bound).to(img.dtype)


def _enhance(img: Any, kind: str, factor: float) -> Any:
    from PIL import ImageEnhance

    return getattr(ImageEnhance, kind)(img).enhance(factor)


def _factor(value: float, name: str) -> None:
    if value < 0:
        raise ValueError(f"{name}: the factor must not be negative, got {value}")


@on_pictures
def rgb_to_grayscale(img: Image, num_output_channels: int = 1) -> Image:
    """Grey levels, in `num_output_channels` channels, 1 or 3. Raises ValueError for another number of them."""
    if num_output_channels not in (1, 3):
        raise ValueError(f"rgb_to_grayscale: num_output_channels must be 1 or 3, got {num_output_channels}")
    if is_picture(img):
        grey = img.convert("L")
        return grey if num_output_channels == 1 else grey.convert("RGB")
    grey = img if _channels(img, "rgb_to_grayscale") == 1 else _grey(img)
    return grey if num_output_channels == 1 else grey.expand(*img.shape[:-3], 3, -1, -1)


to_grayscale = rgb_to_grayscale


@on_pictures
def adjust_brightness(img: Image, brightness_factor: float) -> Image:
    """The image times `brightness_factor`: 0 is black, 1 the image. Raises ValueError for a negative one."""
    _factor(brightness_factor, "adjust_brightness")
    if is_picture(img):
        return _enhance(img, "Brightness", brightness_factor)
    _channels(img, "adjust_brightness")
    return _blend(img, 0.0, brightness_factor)


@on_pictures
def adjust_contrast(img: Image, contrast_factor: float) -> Image:
    """The image's distance from its mean grey times `contrast_factor`. Raises ValueError for a negative one."""
    _factor(contrast_factor, "adjust_contrast")
    if is_picture(img):
        return _enhance(img, "Contrast", contrast_factor)
    grey = _grey(img) if _channels(img, "adjust_contrast") == 3 else img
    grey = grey if grey.is_floating_point() else grey.to(norch.float32)
    return _blend(img, grey.mean((-3, -2, -1), keepdim=True), contrast_factor)


@on_pictures
def adjust_saturation(img: Image, saturation_factor: float) -> Image:
    """The image's distance from its grey levels times `saturation_factor`. Raises ValueError for a negative one."""
    _factor(saturation_factor, "adjust_saturation")
    if is_picture(img):
        return _enhance(img, "Color", saturation_factor)
    if _channels(img, "adjust_saturation") == 1:
        return img
    return _blend(img, _grey(img), saturation_factor)


@on_pictures
def adjust_hue(img: Image, hue_factor: float) -> Image:
    """The colours turned around the circle of hues by `hue_factor`, from -0.5 to 0.5. Raises ValueError beyond."""
    if not -0.5 <= hue_factor <= 0.5:
        raise ValueError(f"adjust_hue: hue_factor must be from -0.5 to 0.5, got {hue_factor}")
    if is_picture(img):
        return _turned_picture(img, hue_factor)
    if _channels(img, "adjust_hue") == 1:
        return img
    hsv = _to_hsv(_as_floats(img))
    hue = (hsv[0] + hue_factor) % 1.0
    return _from_floats(_to_rgb(hue, hsv[1], hsv[2]), img)


@on_pictures
def adjust_gamma(img: Image, gamma: float, gain: float = 1) -> Image:
    """gain * image ** gamma, for images from 0 to 1. Raises ValueError for a negative gamma."""
    _factor(gamma, "adjust_gamma")
    if is_picture(img):
        table = [int((255 + 1 - 1e-3) * gain * (level / 255.0) ** gamma) for level in range(256)]
        return img.point([min(level, 255) for level in table] * len(img.getbands()))
    return _from_floats((gain * _as_floats(img) ** gamma).clamp(0, 1), img)


def _as_floats(img: norch.Tensor) -> norch.Tensor:
    return img if img.is_floating_point() else img.to(norch.float32) / norch.iinfo(img.dtype).max


def _from_floats(img: norch.Tensor, like: norch.Tensor) -> norch.Tensor:
    if like.is_floating_point():
        return img.to(like.dtype)
    return (img * (norch.iinfo(like.dtype).max + 1.0 - 1e-3)).to(like.dtype)


def _turned_picture(img: Any, hue_factor: float) -> Any:
    if img.mode in ("L", "1", "I", "F"):
        return img
    hsv = np.array(img.convert("HSV"))
    hsv[..., 0] += np.array(int(hue_factor * 255)).astype(np.uint8)  # beyond 255 it goes on at 0
    return as_picture(hsv, img.convert("HSV")).convert(img.mode)


def _to_hsv(img: norch.Tensor) -> tuple[norch.Tensor, norch.Tensor, norch.Tensor]:
    red, green, blue = img.unbind(-3)
    most, least = img.amax(-3), img.amin(-3)
    spread, grey = most - least, most == least
    one = norch.ones_like(most)
    saturation, by = spread / norch.where(grey, one, most), norch.where(grey, one, spread)
    r, g, b = ((most - part) / by for part in (red, green, blue))
    hue = norch.where(most == red, b - g, norch.where(most == green, 2.0 + r - b, 4.0 + g - r))
    return (hue / 6.0 + 1.0) % 1.0, saturation, most


def _to_rgb(hue: norch.Tensor, saturation: norch.Tensor, value: norch.Tensor) -> norch.Tensor:
    sixth = norch.floor(hue * 6.0)
    along = hue * 6.0 - sixth
    low = (value * (1.0 - saturation)).clamp(0, 1)
    falling = (value * (1.0 - saturation * along)).clamp(0, 1)
    rising = (value * (1.0 - saturation * (1.0 - along))).clamp(0, 1)
    sixth = sixth % 6
    channels = []
    for order in (
        (value, falling, low, low, rising, value),
        (rising, value, value, falling, low, low),
        (low, low, rising, value, value, falling),
    ):
        found = order[5]
        for i in range(5):
            found = norch.where(sixth == i, order[i], found)
        channels.append(found)
    return norch.stack(channels, -3)


def _amounts(value: Any, name: str, middle: float = 1.0, bound: tuple[float, float] = (0.0, float("inf"))) -> Any:
    """(low, high), or None where nothing changes. One number is how far from the middle."""
    if isinstance(value, int | float):
        if value < 0:
            raise ValueError(f"ColorJitter: one number of {name} must not be negative, got {value}")
        value = (max(middle - value, 0.0) if middle else -value, middle + value)
    if len(value) != 2 or not bound[0] <= value[0] <= value[1] <= bound[1]:
        raise ValueError(f"ColorJitter: {name} must be a number, or (low, high) within {bound}, got {value!r}")
    return None if value[0] == value[1] == middle else (float(value[0]), float(value[1]))


@layer()
class ColorJitter(nn.Module):
    """`brightness`, contrast, saturation and hue changed by random factors, in a random order.

    Each is (low, high), or one number: factors from 1 - number, at least 0, to 1 + number; of hue from -number to
    number, which is at most 0.5. Raises ValueError for numbers out of range.
    """

    brightness: Any = 0
    contrast: Any = 0
    saturation: Any = 0
    hue: Any = 0
    _shown = ("brightness", "contrast", "saturation", "hue")

    def __post_init__(self) -> None:
        for name in self._shown[:3]:
            setattr(self, name, _amounts(getattr(self, name), name))
        self.hue = _amounts(self.hue, "hue", 0.0, (-0.5, 0.5))

    def forward(self, img: Image) -> Image:
        draws = generator()
        img = as_image(img, "ColorJitter")
        changes = (adjust_brightness, adjust_contrast, adjust_saturation, adjust_hue)
        for i in draws.permutation(4):
            amounts = getattr(self, self._shown[i])
            if amounts is not None:
                img = changes[i](img, float(draws.uniform(*amounts)))
        return img


@layer()
class Grayscale(nn.Module):
    """`rgb_to_grayscale`: grey levels, in 1 or 3 channels, `num_output_channels`."""

    num_output_channels: int = 1

    def forward(self, img: Image) -> Image:
        return rgb_to_grayscale(img, self.num_output_channels)


@layer()
class RandomGrayscale(nn.Module):
    """With probability `p`, grey levels in as many channels as the image has."""

    p: float = 0.1

    def __post_init__(self) -> None:
        probability(self.p, "RandomGrayscale")

    def forward(self, img: Image) -> Image:
        img = as_image(img, "RandomGrayscale")
        if generator().random() >= self.p:
            return img
        if is_picture(img):
            return rgb_to_grayscale(img, 1 if len(img.getbands()) == 1 else 3)
        if isinstance(img, np.ndarray):
            return rgb_to_grayscale(img, 3) if img.ndim == 3 and img.shape[2] == 3 else img
        return rgb_to_grayscale(img, _channels(img, "RandomGrayscale"))
