"""Images to bytes and back."""

from __future__ import annotations

import os
from enum import Enum
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

import norch

from ..transforms.images import pillow


class ImageReadMode(Enum):
    """Which channels an image is read with."""

    UNCHANGED = 0
    GRAY = 1
    GRAY_ALPHA = 2
    RGB = 3
    RGB_ALPHA = 4
    RGBA = RGB_ALPHA


_PILLOWS = {
    ImageReadMode.GRAY: "L",
    ImageReadMode.GRAY_ALPHA: "LA",
    ImageReadMode.RGB: "RGB",
    ImageReadMode.RGB_ALPHA: "RGBA",
}
_PNG = b"\x89PNG\r\n\x1a\n"


def read_file(path: str | os.PathLike[str]) -> norch.Tensor:
    """The bytes of a file, a 1-D tensor of uint8."""
    return norch.from_numpy(np.frombuffer(bytearray(Path(path).read_bytes()), np.uint8))


def write_file(filename: str | os.PathLike[str], data: norch.Tensor) -> None:
    """Writes `data`, a 1-D tensor of uint8, as a file."""
    Path(filename).write_bytes(_bytes(data, "write_file"))


def decode_image(
    input: norch.Tensor | str | os.PathLike[str],
    mode: ImageReadMode | str = ImageReadMode.UNCHANGED,
    apply_exif_orientation: bool = False,
) -> norch.Tensor:
    """The image of a JPEG, PNG, GIF or WebP file, whose path `input` may be too.

    A GIF file has three channels whatever the mode, and, of several images, the shape (N, 3, H, W).
    """
    data = input if isinstance(input, norch.Tensor) else read_file(input)
    return _decode(data, ("JPEG", "PNG", "GIF", "WEBP"), mode, apply_exif_orientation, "decode_image")


def read_image(
    path: str | os.PathLike[str],
    mode: ImageReadMode | str = ImageReadMode.UNCHANGED,
    apply_exif_orientation: bool = False,
) -> norch.Tensor:
    """`decode_image` of a file."""
    return decode_image(read_file(path), mode, apply_exif_orientation)


def decode_png(
    input: norch.Tensor, mode: ImageReadMode | str = ImageReadMode.UNCHANGED, apply_exif_orientation: bool = False
) -> norch.Tensor:
    """The image of a PNG file, of uint16 where it has 16 bits.

    Raises NotImplementedError for colours of 16 bits, of which Pillow reads 8.
    """
    return _decode(input, ("PNG",), mode, apply_exif_orientation, "decode_png")


def decode_jpeg(
    input: Any,
    mode: ImageReadMode | str = ImageReadMode.UNCHANGED,
    device: Any = "cpu",
    apply_exif_orientation: bool = False,
) -> Any:
    """The image of a JPEG file, moved to `device`; of a list of them a list."""
    if isinstance(input, list):
        return [decode_jpeg(each, mode, device, apply_exif_orientation) for each in input]
    return _decode(input, ("JPEG",), mode, apply_exif_orientation, "decode_jpeg").to(device)


def decode_gif(input: norch.Tensor) -> norch.Tensor:
    """The images of a GIF file, (3, H, W), or of several (N, 3, H, W)."""
    return _decode(input, ("GIF",), ImageReadMode.RGB, False, "decode_gif")


def decode_webp(input: norch.Tensor, mode: ImageReadMode | str = ImageReadMode.UNCHANGED) -> norch.Tensor:
    """The image of a WebP file."""
    return _decode(input, ("WEBP",), mode, False, "decode_webp")


def encode_png(input: norch.Tensor, compression_level: int = 6) -> norch.Tensor:
    """The bytes of a PNG file of an image, a 1-D tensor of uint8. ValueError for another level."""
    if not 0 <= compression_level <= 9:
        raise ValueError(f"encode_png(): compression_level must be from 0 to 9, got {compression_level}")
    return _encode(input, "encode_png", format="PNG", compress_level=compression_level)


def encode_jpeg(input: Any, quality: int = 75) -> Any:
    """The bytes of a JPEG file of an image, a 1-D tensor of uint8; of a list of images a list. Raises ValueError for
    another quality.
    """
    if not 1 <= quality <= 100:
        raise ValueError(f"encode_jpeg(): quality must be from 1 to 100, got {quality}")
    if isinstance(input, list):
        return [encode_jpeg(image, quality) for image in input]
    return _encode(input, "encode_jpeg", format="JPEG", quality=quality)


def write_png(input: norch.Tensor, filename: str | os.PathLike[str], compression_level: int = 6) -> None:
    """Writes an image as a PNG file."""
    write_file(filename, encode_png(input, compression_level))


def write_jpeg(input: norch.Tensor, filename: str | os.PathLike[str], quality: int = 75) -> None:
    """Writes an image as a JPEG file."""
    write_file(filename, encode_jpeg(input, quality))


def _bytes(data: Any, name: str) -> bytes:
    if not isinstance(data, norch.Tensor) or data.dtype is not norch.uint8 or data.ndim != 1:
        shown = f"{tuple(data.shape)} {data.dtype}" if isinstance(data, norch.Tensor) else type(data).__name__
        raise norch.DTypeError(f"{name}(): expected the bytes of a file, a 1-D tensor of uint8, got {shown}")
    made: bytes = data.cpu().numpy().tobytes()
    return made


def _decode(
    data: norch.Tensor, formats: tuple[str, ...], mode: ImageReadMode | str, turned: bool, name: str
) -> norch.Tensor:
    Image, content = pillow(f"{name}()"), _bytes(data, name)
    kind = ImageReadMode[mode.upper()] if isinstance(mode, str) else mode
    try:
        with Image.open(BytesIO(content), formats=formats) as image:
            if image.format == "GIF":
                frames = []
                for i in range(image.n_frames):
                    image.seek(i)
                    frames.append(np.asarray(image.convert("RGB")).transpose(2, 0, 1))
                return norch.from_numpy(np.ascontiguousarray(frames[0] if len(frames) == 1 else np.stack(frames)))
            if content.startswith(_PNG) and content[24] == 16 and not image.mode.startswith("I"):
                raise NotImplementedError(f"{name}(): Pillow reads colours of 16 bits as 8")
            pixels = _pixels(image, kind, turned)
    except (OSError, SyntaxError) as error:
        raise RuntimeError(f"{name}(): {error}") from error
    return norch.from_numpy(np.array(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1), order="C"))


def _pixels(image: Any, kind: ImageReadMode, turned: bool) -> np.ndarray:
    """(H, W) or (H, W, C), of uint8 or uint16."""
    wanted = _PILLOWS.get(kind)
    if wanted == "L":
        image.draft("L", None)  # the brightness that a JPEG file has, not that of its colours
    if turned:
        from PIL import ImageOps

        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):  # grey of 16 bits, which Pillow does not convert
        grey = np.asarray(image).astype(np.uint16)
        if wanted in (None, "L"):
            return grey
        opaque = [np.full_like(grey, 65535)] if wanted.endswith("A") else []
        return np.stack([grey] * (3 if wanted.startswith("RGB") else 1) + opaque, axis=-1)
    if wanted is not None and image.mode != wanted:
        image = image.convert(wanted)
    pixels = np.asarray(image)
    return pixels * np.uint8(255) if pixels.dtype == bool else pixels


def _encode(image: Any, name: str, **options: Any) -> norch.Tensor:
    Image = pillow(f"{name}()")
    if not isinstance(image, norch.Tensor) or image.dtype is not norch.uint8:
        raise norch.DTypeError(f"{name}(): expected an image of uint8, got {getattr(image, 'dtype', type(image))}")
    if image.ndim != 3 or image.shape[0] not in (1, 3):
        raise norch.ShapeError(f"{name}(): expected an image (1, H, W) or (3, H, W), got {tuple(image.shape)}")
    pixels = image.detach().cpu().numpy()
    made = BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))).save(
        made, **options
    )
    return norch.from_numpy(np.frombuffer(bytearray(made.getvalue()), np.uint8))
