"""The transforms that draw nothing, as functions, with the arguments and arithmetic of torchvision's v2.

Arguments that mean the same in every function:

    inpt, image, pic: an image, as `img` of `norch.vision.transforms`
"""

from collections.abc import Sequence
from typing import Any

import norch

from ..cropping import crop as crop
from ..functional import adjust_brightness as adjust_brightness
from ..functional import adjust_contrast as adjust_contrast
from ..functional import adjust_gamma as adjust_gamma
from ..functional import adjust_hue as adjust_hue
from ..functional import adjust_saturation as adjust_saturation
from ..functional import affine as affine
from ..functional import center_crop as center_crop
from ..functional import erase as erase
from ..functional import five_crop as five_crop
from ..functional import gaussian_blur as gaussian_blur
from ..functional import hflip as hflip
from ..functional import pil_to_tensor as pil_to_tensor
from ..functional import rgb_to_grayscale as rgb_to_grayscale
from ..functional import rotate as rotate
from ..functional import ten_crop as ten_crop
from ..functional import to_pil_image as to_pil_image
from ..functional import to_tensor as to_tensor
from ..functional import vflip as vflip
from ..images import Image
from ..resizing import InterpolationMode as InterpolationMode
from .conversion import get_dimensions as get_dimensions
from .conversion import get_num_channels as get_num_channels
from .conversion import get_size as get_size
from .conversion import grayscale_to_rgb as grayscale_to_rgb
from .conversion import normalize as normalize
from .conversion import pad as pad
from .conversion import to_dtype as to_dtype
from .conversion import to_image as to_image
from .resizing import resize as resize

horizontal_flip, vertical_flip, to_grayscale = hflip, vflip, rgb_to_grayscale
get_image_size, get_image_num_channels = get_size, get_num_channels
to_dtype_image, resize_image, pad_image, crop_image, normalize_image = to_dtype, resize, pad, crop, normalize


def convert_image_dtype(image: norch.Tensor, dtype: norch.DType = norch.float32) -> norch.Tensor:
    """`to_dtype` of a tensor of any shape with its values scaled, by default to float32."""
    return to_dtype(image, dtype, scale=True)


def resized_crop(
    img: Image,
    top: int,
    left: int,
    height: int,
    width: int,
    size: int | Sequence[int],
    interpolation: Any = InterpolationMode.BILINEAR,
    antialias: bool | None = True,
) -> Image:
    """`crop`, then `resize`."""
    return resize(crop(img, top, left, height, width), size, interpolation, antialias=antialias)
