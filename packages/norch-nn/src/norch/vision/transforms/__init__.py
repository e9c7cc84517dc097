"""Transforms of images, under torchvision's names.

They take PIL images, NumPy arrays of shape (H, W) or (H, W, C), which stand for such, and tensors of shape
(..., C, H, W). In a DataLoader the random ones draw by (seed, epoch, index of the sample), elsewhere by norch's seed.
"""

import norch

from . import functional as functional
from .affine import RandomAffine as RandomAffine
from .blurring import GaussianBlur as GaussianBlur
from .colour import ColorJitter as ColorJitter
from .colour import Grayscale as Grayscale
from .colour import RandomGrayscale as RandomGrayscale
from .compose import Compose as Compose
from .compose import Lambda as Lambda
from .compose import RandomApply as RandomApply
from .compose import RandomChoice as RandomChoice
from .compose import RandomOrder as RandomOrder
from .conversion import ConvertImageDtype as ConvertImageDtype
from .conversion import Normalize as Normalize
from .conversion import PILToTensor as PILToTensor
from .conversion import Reshape as Reshape
from .conversion import ToPILImage as ToPILImage
from .conversion import ToTensor as ToTensor
from .cropping import CenterCrop as CenterCrop
from .cropping import FiveCrop as FiveCrop
from .cropping import Pad as Pad
from .cropping import RandomCrop as RandomCrop
from .cropping import TenCrop as TenCrop
from .erasing import RandomErasing as RandomErasing
from .flipping import RandomHorizontalFlip as RandomHorizontalFlip
from .flipping import RandomVerticalFlip as RandomVerticalFlip
from .resizing import InterpolationMode as InterpolationMode
from .resizing import RandomResizedCrop as RandomResizedCrop
from .resizing import Resize as Resize
from .rotation import RandomRotation as RandomRotation

__getattr__ = norch.late_submodules(__name__)

Sequential = Compose  # norch's ancestor calls it so
