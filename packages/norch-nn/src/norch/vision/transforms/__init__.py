"""Transforms of images, under torchvision's names.

They take NumPy arrays of shape (H, W) or (H, W, C), which stand for torchvision's PIL images, and tensors of shape
(..., C, H, W). In a DataLoader the random ones draw by (seed, epoch, index of the sample), elsewhere by norch's seed.
"""

from . import functional
from .compose import Compose, Lambda, RandomApply
from .conversion import ConvertImageDtype, Normalize, Reshape, ToTensor
from .cropping import CenterCrop, Pad, RandomCrop
from .erasing import RandomErasing
from .flipping import RandomHorizontalFlip, RandomVerticalFlip
from .resizing import InterpolationMode, RandomResizedCrop, Resize
from .rotation import RandomRotation

Sequential = Compose  # norch's ancestor calls it so

__all__ = [
    "CenterCrop",
    "Compose",
    "ConvertImageDtype",
    "InterpolationMode",
    "Lambda",
    "Normalize",
    "Pad",
    "RandomApply",
    "RandomCrop",
    "RandomErasing",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomVerticalFlip",
    "Reshape",
    "Resize",
    "Sequential",
    "ToTensor",
    "functional",
]
