"""What the poolings of regions share: regions by image, and the weights that a bin gives to rows and columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import norch
from norch import nn

from ._utils import check_roi_boxes_shape

Boxes = norch.Tensor | Sequence[norch.Tensor]
Pool = Callable[[norch.Tensor, norch.Tensor], norch.Tensor]


def pair(size: Any) -> tuple[int, int]:
    height, width = size if isinstance(size, Sequence) else (size, size)
    return height, width


def check_regions(input: norch.Tensor, boxes: Boxes) -> None:
    """Raises ShapeError for an input that is no batch of images and for other boxes, DTypeError where the dtypes
    differ, which autocast allows."""
    check_roi_boxes_shape(boxes)
    if input.ndim != 4:
        raise norch.ShapeError(f"expected an input (n, c, h, w), got {tuple(input.shape)}")
    for part in [boxes] if isinstance(boxes, norch.Tensor) else boxes:
        if part.dtype != input.dtype and not norch.is_autocast_enabled(input.device.type):
            raise norch.DTypeError(f"expected input and boxes of one dtype, got {input.dtype} and {part.dtype}")


def pooled(input: norch.Tensor, boxes: Boxes, pool: Pool) -> norch.Tensor:
    """`pool(image, boxes)` (l, ...) of each image's boxes (l, 4), in the order of the boxes (k, ...).

    It is computed in float32 or float64. Raises what `check_regions` does, IndexError for an image that is not there.
    """
    check_regions(input, boxes)
    dtype = input.dtype if input.dtype == norch.float64 else norch.float32
    with norch.autocast(input.device.type, enabled=False):
        images = input.to(dtype)
        parts, order = _by_image(boxes, len(images))
        made = [pool(images[n], part.detach().to(dtype)) for n, part in parts]
        out = made[0] if len(made) == 1 else norch.cat(made)
        return (out if order is None else out[order]).to(input.dtype)


def _by_image(boxes: Boxes, images: int) -> tuple[list[tuple[int, norch.Tensor]], norch.Tensor | None]:
    """The boxes of each image, and where each box is among them, if it is elsewhere."""
    if not isinstance(boxes, norch.Tensor):
        return list(enumerate(boxes)), None
    return norch.regions_by_image(boxes, images)


def rounded(x: norch.Tensor) -> norch.Tensor:
    """The nearest integer, halves away from 0, as C's `round`."""
    whole = x.abs().floor()
    return x.sign() * (whole + (x.abs() - whole >= 0.5).to(x.dtype))


def intervals(start: norch.Tensor, size: norch.Tensor, bins: int, last: int) -> tuple[norch.Tensor, norch.Tensor]:
    """The rows, or columns, of each bin, from the first up to the second; both (k, bins), from 0 to `last`."""
    step, number = (size / bins).view(-1, 1), norch.arange(bins + 1, dtype=size.dtype, device=size.device)
    low, high = (number[:-1] * step).floor(), (number[1:] * step).ceil()
    return (low + start.view(-1, 1)).clamp(0, last), (high + start.view(-1, 1)).clamp(0, last)


def pool_positions(image: norch.Tensor, rows: norch.Tensor, columns: norch.Tensor) -> norch.Tensor:
    """Position-sensitive pooling: bin (p, q) takes the channels of its own, of (c * p * q, h, w); -> (l, c, p, q).

    rows, columns: weights (l, p, h) and (l, q, w). Raises ShapeError where the bins do not divide the channels.
    """
    (count, p, height), (_, q, width) = rows.shape, columns.shape
    if len(image) % (p * q):
        raise norch.ShapeError(f"expected a multiple of {p} * {q} channels, got {len(image)}")
    channels = image.view(-1, p, q, height, width).permute(1, 3, 0, 2, 4)
    wide = rows.permute(1, 0, 2) @ channels.reshape(p, height, -1)
    return (wide.view(p, count, len(image) // (p * q), q, width) * columns.unsqueeze(1)).sum(-1).permute(1, 2, 0, 3)


class RegionPooling(nn.Module):
    """A pooling of regions with its options."""

    def extra_repr(self) -> str:
        options = ("output_size", "spatial_scale", "sampling_ratio", "aligned")
        return ", ".join(f"{name}={getattr(self, name)}" for name in options if hasattr(self, name))
