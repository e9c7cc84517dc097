"""The transforms that draw nothing, as functions."""

from .affine import affine as affine
from .blurring import gaussian_blur as gaussian_blur
from .colour import adjust_brightness as adjust_brightness
from .colour import adjust_contrast as adjust_contrast
from .colour import adjust_gamma as adjust_gamma
from .colour import adjust_hue as adjust_hue
from .colour import adjust_saturation as adjust_saturation
from .colour import rgb_to_grayscale as rgb_to_grayscale
from .colour import to_grayscale as to_grayscale
from .conversion import convert_image_dtype as convert_image_dtype
from .conversion import normalize as normalize
from .conversion import pil_to_tensor as pil_to_tensor
from .conversion import to_pil_image as to_pil_image
from .conversion import to_tensor as to_tensor
from .cropping import center_crop as center_crop
from .cropping import crop as crop
from .cropping import five_crop as five_crop
from .cropping import pad as pad
from .cropping import ten_crop as ten_crop
from .erasing import erase as erase
from .flipping import hflip as hflip
from .flipping import vflip as vflip
from .resizing import InterpolationMode as InterpolationMode
from .resizing import resize as resize
from .resizing import resized_crop as resized_crop
from .rotation import rotate as rotate
