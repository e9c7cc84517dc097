"""Transforms of images, under torchvision's names.

They take PIL images, NumPy arrays of shape (H, W) or (H, W, C), which stand for such, and tensors of shape
(..., C, H, W). In a DataLoader the random ones draw by (seed, epoch, index of the sample), elsewhere by norch's seed.

Arguments that mean the same in every transform:

    img: such an image, as a PIL image, an array or a tensor. Raises TypeError for anything else.
    interpolation: an InterpolationMode, or its value: "nearest", "bilinear" or "bicubic". Raises ValueError for others.
    antialias: whether it averages over what falls together when an image becomes smaller; True.
    size: of the result, (height, width) or an int for both.
    center: the point that stays, (x, y), by default the middle.
    expand: whether the result is as large as the turned image. padding, padding_mode: as of `pad`.
    fill: what pixels from outside of the image are: a number, or one for each channel.
    p: the probability with which it does anything. inplace: whether a tensor is changed itself.
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
