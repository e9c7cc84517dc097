"""Pictures of batches: `make_grid` and `save_image`, with torchvision's arguments."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, BinaryIO

import norch


def make_grid(
    tensor: norch.Tensor | Sequence[norch.Tensor],
    nrow: int = 8,
    padding: int = 2,
    normalize: bool = False,
    value_range: tuple[float, float] | None = None,
    scale_each: bool = False,
    pad_value: float = 0.0,
) -> norch.Tensor:
    """Images side by side, `nrow` in a row, `padding` pixels of `pad_value` around each: (N, C, H, W) -> (C, y, x).

    A list of images of one shape is stacked; (H, W) and (C, H, W) are one image; one channel becomes three. One image
    alone gets no padding. normalize: to [0, 1], from value_range (least and greatest, beyond which values are cut off)
    or else from the least and greatest value of the batch, of each image with scale_each. Nothing is recorded for
    gradients. Raises ShapeError for other dims, TypeError for what is neither tensor nor a sequence of them. Raises
    ValueError for nrow < 1 or padding < 0.
    """
    images = tensor
    if not isinstance(images, norch.Tensor):
        if not images or not all(isinstance(image, norch.Tensor) for image in images):
            raise TypeError(f"make_grid(): expected a tensor or a sequence of tensors, got {type(tensor).__name__}")
        images = norch.stack(list(images))
    if not 2 <= images.ndim <= 4:
        raise norch.ShapeError(f"make_grid(): expected 2 to 4 dims, got shape {tuple(images.shape)}")
    if nrow < 1 or padding < 0:
        raise ValueError(f"make_grid(): expected nrow >= 1 and padding >= 0, got {nrow} and {padding}")
    with norch.no_grad():
        if images.ndim == 2:
            images = images.unsqueeze(0)
        if images.ndim == 3:
            images = images.unsqueeze(0)
        if images.shape[1] == 1:
            images = images.expand(-1, 3, -1, -1)
        if normalize:
            images = _normalized(images, value_range, scale_each)
        count, channels, height, width = images.shape
        if count == 1:
            return images[0].clone()
        columns = min(nrow, count)
        rows = -(-count // columns)
        y, x = height + padding, width + padding
        grid = images.new_full((channels, rows * y + padding, columns * x + padding), pad_value)
        for i, image in enumerate(images):
            top, left = i // columns * y + padding, i % columns * x + padding
            grid[:, top : top + height, left : left + width] = image
        return grid


def _normalized(images: norch.Tensor, value_range: Any, scale_each: bool) -> norch.Tensor:
    if value_range is not None:
        low, high = value_range
        return (images.clamp(low, high) - low) / max(high - low, 1e-5)
    dims = (1, 2, 3) if scale_each else (0, 1, 2, 3)
    least = images.amin(dims, keepdim=True)
    return (images - least) / (images.amax(dims, keepdim=True) - least).clamp(min=1e-5)


def save_image(
    tensor: norch.Tensor | Sequence[norch.Tensor],
    fp: str | os.PathLike[str] | BinaryIO,
    format: str | None = None,
    **kwargs: Any,
) -> None:
    """Writes `make_grid(tensor, **kwargs)`, whose values are from 0 to 1, into a picture file `fp`, a path or a file,
    by Pillow.

    format: "PNG", "JPEG" and so on; by default what the file's name ends in. Raises ImportError without Pillow, OSError
    where the file cannot be written, and as make_grid does.
    """
    try:
        from PIL import Image
    except ImportError:
        raise ImportError("save_image() needs Pillow: pip install norch-nn[vision]") from None
    grid = make_grid(tensor, **kwargs)
    pixels = (grid.float() * 255 + 0.5).clamp(0, 255).permute(1, 2, 0).to("cpu").to(norch.uint8)
    Image.fromarray(pixels.contiguous().numpy()).save(fp, format=format)
