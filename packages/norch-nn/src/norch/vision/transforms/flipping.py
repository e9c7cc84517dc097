"""Mirrored images."""

from __future__ import annotations

import numpy as np

from norch import nn

from .draws import generator
from .images import Image, as_image, probability


def hflip(img: Image) -> Image:
    """Left and right exchanged. Of an array, a view."""
    img = as_image(img, "hflip")
    return img[:, ::-1] if isinstance(img, np.ndarray) else img.flip(-1)


def vflip(img: Image) -> Image:
    """Top and bottom exchanged. Of an array, a view."""
    img = as_image(img, "vflip")
    return img[::-1] if isinstance(img, np.ndarray) else img.flip(-2)


class RandomHorizontalFlip(nn.Module):
    """Exchanges left and right with probability `p`."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = probability(p, type(self).__name__)

    def forward(self, img: Image) -> Image:
        return hflip(img) if generator().random() < self.p else img

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p={self.p})"


class RandomVerticalFlip(RandomHorizontalFlip):
    """Exchanges top and bottom with probability `p`."""

    def forward(self, img: Image) -> Image:
        return vflip(img) if generator().random() < self.p else img
