"""The transforms that draw nothing, as functions."""

from .conversion import convert_image_dtype, normalize, to_tensor
from .cropping import center_crop, crop, pad
from .erasing import erase
from .flipping import hflip, vflip
from .resizing import InterpolationMode, resize, resized_crop
from .rotation import rotate

__all__ = [
    "InterpolationMode",
    "center_crop",
    "convert_image_dtype",
    "crop",
    "erase",
    "hflip",
    "normalize",
    "pad",
    "resize",
    "resized_crop",
    "rotate",
    "to_tensor",
    "vflip",
]
