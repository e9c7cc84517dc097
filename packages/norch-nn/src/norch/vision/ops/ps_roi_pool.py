"""Means over the pixels of regions of interest, each bin of channels of its own (Dai et al., 2016)."""

from __future__ import annotations

from typing import Any

import norch

from .pooling import Boxes, RegionPooling, intervals, pair, pool_positions, pooled, rounded


def ps_roi_pool(input: norch.Tensor, boxes: Boxes, output_size: Any, spatial_scale: float = 1.0) -> norch.Tensor:
    """The mean of the pixels of each bin, where bin (p, q) is of channels of its own; arguments as of `ps_roi_align`.

    Corners are rounded; a bin without pixels is 0. As in torchvision no bin has the last row and column. After Dai et
    al. (2016), "R-FCN".
    """
    bins = pair(output_size)

    def pool(image: norch.Tensor, part: norch.Tensor) -> norch.Tensor:
        ends = rounded(part * spatial_scale)
        start, size = ends[:, :2], (ends[:, 2:] - ends[:, :2]).clamp(min=1)
        columns, rows = (_means(start[:, d], size[:, d], bins[1 - d], image.shape[2 - d]) for d in (0, 1))
        return pool_positions(image, rows, columns)

    return pooled(input, boxes, pool)


def _means(start: norch.Tensor, size: norch.Tensor, bins: int, length: int) -> norch.Tensor:
    low, high = intervals(start, size, bins, length - 1)
    at = norch.arange(length, dtype=start.dtype, device=start.device)
    inside = (at >= low.unsqueeze(-1)) & (at < high.unsqueeze(-1))
    return inside.to(start.dtype) / (high - low).clamp(min=1).unsqueeze(-1)


class PSRoIPool(RegionPooling):
    """`ps_roi_pool` with these output_size and spatial_scale."""

    def __init__(self, output_size: Any, spatial_scale: float) -> None:
        super().__init__()
        self.output_size, self.spatial_scale = output_size, spatial_scale

    def forward(self, input: norch.Tensor, rois: Boxes) -> norch.Tensor:
        """rois: the boxes."""
        return ps_roi_pool(input, rois, self.output_size, self.spatial_scale)
