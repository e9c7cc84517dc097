"""Files of images as tensors of bytes, under torchvision's names, by Pillow.

Arguments that mean the same in every function:

    input: of what decodes, the bytes of a file, a 1-D tensor of uint8; of what encodes or writes, an image of uint8 of
        shape (C, H, W), whose C is 1 or 3. Raises DTypeError or ShapeError for other tensors.
    mode: an ImageReadMode, or its name: which channels the result has
    apply_exif_orientation: whether the image is turned as the camera was held
    path, filename: of a file
    quality: of a JPEG file, from 1 to 100. compression_level: of a PNG file, from 0 to 9. Raises ValueError
        for others

What decodes gives tensors (C, H, W) on the CPU, and raises ImportError without Pillow, RuntimeError for bytes that are
no such file.
"""

import norch

from .image import ImageReadMode as ImageReadMode
from .image import decode_gif as decode_gif
from .image import decode_image as decode_image
from .image import decode_jpeg as decode_jpeg
from .image import decode_png as decode_png
from .image import decode_webp as decode_webp
from .image import encode_jpeg as encode_jpeg
from .image import encode_png as encode_png
from .image import read_file as read_file
from .image import read_image as read_image
from .image import write_file as write_file
from .image import write_jpeg as write_jpeg
from .image import write_png as write_png

__getattr__ = norch.late_submodules(__name__)
