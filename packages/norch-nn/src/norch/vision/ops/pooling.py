"""What the poolings of regions share: regions by image, and the weights that a bin gives to rows and columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import norch
from norch import nn

from ._utils import check_roi_boxes_shape

Boxes = norch.Tensor | Sequence[norch.Tensor]
Pool = Callable[[norch.Tensor, norch.Tensor], norch.Tensor]


def pair(size: Any) -> tuple[int, int]:
    height, width = size if isinstance(size, Sequence) else (size, size)
    return height, width


def pooled(input: norch.Tensor, boxes: Boxes, pool: Pool) -> norch.Tensor:
    """`pool(image, boxes)` (l, ...) of each image's boxes (l, 4), in the order of the boxes (k, ...).

    It is computed in float32 or float64. Raises ShapeError for an input that is no batch of images and for other boxes,
    DTypeError where the dtypes differ, which autocast allows, IndexError for an image that is not there.
    """
    check_roi_boxes_shape(boxes)
    if input.ndim != 4:
        raise norch.ShapeError(f"expected an input (n, c, h, w), got {tuple(input.shape)}")
    for part in [boxes] if isinstance(boxes, norch.Tensor) else boxes:
        if part.dtype != input.dtype and not norch.is_autocast_enabled(input.device.type):
            raise norch.DTypeError(f"expected input and boxes of one dtype, got {input.dtype} and {part.dtype}")
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
    if images == 1:
        return [(0, boxes[:, 1:])], None
    numbers = boxes[:, 0].detach().cpu().numpy().astype(np.int64)
    if len(numbers) and not (numbers.min() >= 0 and numbers.max() < images):
        raise IndexError(f"boxes are of image {numbers.min()} to {numbers.max()}, the input has {images}")
    order = np.argsort(numbers, kind="stable")
    ends = np.searchsorted(numbers[order], np.arange(images + 1))
    sorted_boxes = boxes[norch.tensor(order, device=boxes.device)][:, 1:]
    parts = [(n, sorted_boxes[ends[n] : ends[n + 1]]) for n in range(images)]
    return parts, norch.tensor(np.argsort(order, kind="stable"), device=boxes.device)


def sampled(start: norch.Tensor, size: norch.Tensor, bins: int, length: int, ratio: int) -> norch.Tensor:
    """What each bin gives to each row, or column, of a mean over its samples: (k, bins, length).

    start, size: (k,), of the regions. A sample between two rows is of both, by its distance; more than a row outside it
    is 0. ratio: samples of a bin; by default as many as it has rows.
    """
    arange = partial(norch.arange, dtype=start.dtype, device=start.device)
    step = size / bins
    if ratio > 0:
        samples, count = ratio, norch.full_like(size, ratio)
    else:
        count = step.ceil()
        samples = max(int(count.max().item()), 0) if len(size) else 0
    step, steps, first = step.view(-1, 1, 1), count.view(-1, 1, 1), start.view(-1, 1, 1)
    sample = arange(samples)
    at = first + arange(bins).view(-1, 1) * step + (sample + 0.5) * step / steps
    given = (sample < steps) & (at >= -1) & (at <= length)
    near = at.clamp(0, length - 1).unsqueeze(-1) - arange(length)
    weights = norch.where(given.unsqueeze(-1), (1 - near.abs()).clamp(min=0), 0.0)
    return weights.sum(2) / steps.clamp(min=1)


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
