"""`norch.vision.transforms`, and what torchvision's v2 has besides or computes otherwise.

They take one image, as there: norch has no tv_tensors, boxes or masks that would be transformed with it.
"""

import norch

from .. import CenterCrop as CenterCrop
from .. import ColorJitter as ColorJitter
from .. import Compose as Compose
from .. import FiveCrop as FiveCrop
from .. import GaussianBlur as GaussianBlur
from .. import Grayscale as Grayscale
from .. import InterpolationMode as InterpolationMode
from .. import Lambda as Lambda
from .. import PILToTensor as PILToTensor
from .. import RandomAffine as RandomAffine
from .. import RandomApply as RandomApply
from .. import RandomChoice as RandomChoice
from .. import RandomCrop as RandomCrop
from .. import RandomErasing as RandomErasing
from .. import RandomGrayscale as RandomGrayscale
from .. import RandomHorizontalFlip as RandomHorizontalFlip
from .. import RandomOrder as RandomOrder
from .. import RandomRotation as RandomRotation
from .. import RandomVerticalFlip as RandomVerticalFlip
from .. import Reshape as Reshape
from .. import Sequential as Sequential
from .. import TenCrop as TenCrop
from .. import ToPILImage as ToPILImage
from .. import ToTensor as ToTensor
from . import functional as functional
from .transforms import RGB as RGB
from .transforms import ConvertImageDtype as ConvertImageDtype
from .transforms import Identity as Identity
from .transforms import Normalize as Normalize
from .transforms import Pad as Pad
from .transforms import RandomResizedCrop as RandomResizedCrop
from .transforms import Resize as Resize
from .transforms import ToDtype as ToDtype
from .transforms import ToImage as ToImage
from .transforms import ToPureTensor as ToPureTensor

__getattr__ = norch.late_submodules(__name__)
