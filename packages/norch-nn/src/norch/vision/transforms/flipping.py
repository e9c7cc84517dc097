"""Mirrored images."""

from __future__ import annotations

import numpy as np

from norch import nn
from norch.nn.layer import layer
from norch.utils.data import sample_rng as generator

from .images import Image, as_image, on_arrays, probability


@on_arrays
def hflip(img: Image) -> Image:
    """Left and right exchanged. Of an array, a view."""
    img = as_image(img, "hflip")
    return img[:, ::-1] if isinstance(img, np.ndarray) else img.flip(-1)


@on_arrays
def vflip(img: Image) -> Image:
    """Top and bottom exchanged. Of an array, a view."""
    img = as_image(img, "vflip")
    return img[::-1] if isinstance(img, np.ndarray) else img.flip(-2)


@layer()
class RandomHorizontalFlip(nn.Module):
    """Exchanges left and right with probability `p`."""

    p: float = 0.5

    def __post_init__(self) -> None:
        probability(self.p, type(self).__name__)

    def forward(self, img: Image) -> Image:
        return hflip(img) if generator().random() < self.p else img


class RandomVerticalFlip(RandomHorizontalFlip):
    """Exchanges top and bottom with probability `p`."""

    def forward(self, img: Image) -> Image:
        return vflip(img) if generator().random() < self.p else img
