"""The transforms that draw nothing, as functions."""

from .conversion import convert_image_dtype as convert_image_dtype
from .conversion import normalize as normalize
from .conversion import to_tensor as to_tensor
from .cropping import center_crop as center_crop
from .cropping import crop as crop
from .cropping import pad as pad
from .erasing import erase as erase
from .flipping import hflip as hflip
from .flipping import vflip as vflip
from .resizing import InterpolationMode as InterpolationMode
from .resizing import resize as resize
from .resizing import resized_crop as resized_crop
from .rotation import rotate as rotate
