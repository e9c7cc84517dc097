"""Transforms of images, under torchvision's names.

They take NumPy arrays of shape (H, W) or (H, W, C), which stand for torchvision's PIL images, and tensors of shape
(..., C, H, W). In a DataLoader the random ones draw by (seed, epoch, index of the sample), elsewhere by norch's seed.
"""

from . import functional as functional
from .compose import Compose as Compose
from .compose import Lambda as Lambda
from .compose import RandomApply as RandomApply
from .conversion import ConvertImageDtype as ConvertImageDtype
from .conversion import Normalize as Normalize
from .conversion import Reshape as Reshape
from .conversion import ToTensor as ToTensor
from .cropping import CenterCrop as CenterCrop
from .cropping import Pad as Pad
from .cropping import RandomCrop as RandomCrop
from .erasing import RandomErasing as RandomErasing
from .flipping import RandomHorizontalFlip as RandomHorizontalFlip
from .flipping import RandomVerticalFlip as RandomVerticalFlip
from .resizing import InterpolationMode as InterpolationMode
from .resizing import RandomResizedCrop as RandomResizedCrop
from .resizing import Resize as Resize
from .rotation import RandomRotation as RandomRotation

Sequential = Compose  # norch's ancestor calls it so
