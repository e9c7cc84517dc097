"""Maxima over regions of interest (Girshick, 2015)."""

from __future__ import annotations

from typing import Any

import numpy as np

import norch

from .pooling import Boxes, RegionPooling, intervals, pair, pooled, rounded


def roi_pool(input: norch.Tensor, boxes: Boxes, output_size: Any, spatial_scale: float = 1.0) -> norch.Tensor:
    """The greatest value of each bin of each region; input, boxes, output_size, spatial_scale: as of `roi_align`.

    Corners are rounded, the last pixel is part of the region, and a bin without pixels is 0. Gradients go to the first
    of equal values. After Girshick (2015), "Fast R-CNN".
    """
    bins = pair(output_size)

    def pool(image: norch.Tensor, part: norch.Tensor) -> norch.Tensor:
        ends = rounded(part * spatial_scale)
        start, size = ends[:, :2], (ends[:, 2:] - ends[:, :2] + 1).clamp(min=1)
        columns, rows = (
            norch.stack(intervals(start[:, d], size[:, d], bins[1 - d], image.shape[2 - d]), -1) for d in (0, 1)
        )
        with norch.no_grad():
            at, empty = _greatest(image, rows.cpu().numpy().astype(np.int64), columns.cpu().numpy().astype(np.int64))
        shape = (len(part), len(image), *bins)
        values = image.flatten()[at.flatten()].view(shape)
        return norch.where(empty.view(shape[0], 1, *bins), 0.0, values)

    return pooled(input, boxes, pool)


def _greatest(image: norch.Tensor, rows: np.ndarray, columns: np.ndarray) -> tuple[norch.Tensor, norch.Tensor]:
    """Where in the image (c, h, w) the greatest value of each bin is, (l, c, p * q), and which bins are empty."""
    channels, height, width = image.shape
    flat, device = image.flatten(1), image.device
    bins = rows.shape[1] * columns.shape[1]
    lead = norch.arange(channels, device=device).view(-1, 1) * (height * width)
    found = [norch.zeros((0, channels, bins), dtype=norch.int64, device=device)]
    for (top, bottom), (left, right) in zip(rows.transpose(0, 2, 1), columns.transpose(0, 2, 1)):
        y, x = _members(top, bottom, height), _members(left, right, width)  # the last repeated where others have more
        at = norch.tensor((y[:, None, :, None] * width + x[None, :, None, :]).reshape(bins, -1), device=device)
        best = flat[:, at.flatten()].view(channels, bins, -1).argmax(-1)
        found.append((lead + at.expand(channels, -1, -1).gather(2, best.unsqueeze(-1)).squeeze(-1)).unsqueeze(0))
    empty = ((rows[:, :, 1] <= rows[:, :, 0])[:, :, None]) | ((columns[:, :, 1] <= columns[:, :, 0])[:, None])
    return norch.cat(found), norch.tensor(empty, device=device)


def _members(low: np.ndarray, high: np.ndarray, length: int) -> np.ndarray:
    most = max(int((high - low).max()), 1)
    last = np.clip(high - 1, 0, length - 1)[:, None]
    return np.minimum(np.minimum(low, length - 1)[:, None] + np.arange(most), last)


class RoIPool(RegionPooling):
    """`roi_pool` with these output_size and spatial_scale."""

    def __init__(self, output_size: Any, spatial_scale: float) -> None:
        super().__init__()
        self.output_size, self.spatial_scale = output_size, spatial_scale

    def forward(self, input: norch.Tensor, rois: Boxes) -> norch.Tensor:
        """rois: the boxes."""
        return roi_pool(input, rois, self.output_size, self.spatial_scale)
