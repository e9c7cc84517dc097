"""Means over regions of interest, each bin of channels of its own (Li et al., 2017)."""

from __future__ import annotations

from typing import Any

import norch

from .pooling import Boxes, RegionPooling, pair, pool_positions, pooled


def ps_roi_align(
    input: norch.Tensor, boxes: Boxes, output_size: Any, spatial_scale: float = 1.0, sampling_ratio: int = -1
) -> norch.Tensor:
    """`roi_align`, aligned, where bin (p, q) is of channels of its own: (n, c * p * q, h, w) -> (k, c, p, q).

    A region without samples, which has no height or no width, gives NaN. After Li et al. (2017), "Light-Head R-CNN".
    Raises ShapeError where the bins do not divide the channels.
    """
    bins = pair(output_size)

    def pool(image: norch.Tensor, part: norch.Tensor) -> norch.Tensor:
        ends = part * spatial_scale - 0.5
        start, size = ends[:, :2], ends[:, 2:] - ends[:, :2]
        columns, rows = (
            norch.bin_weights(start[:, d], size[:, d], bins[1 - d], image.shape[2 - d], sampling_ratio) for d in (0, 1)
        )
        out = pool_positions(image, rows, columns)
        if sampling_ratio > 0:
            return out
        none = ((size / norch.tensor(bins[::-1], dtype=size.dtype, device=size.device)).ceil() == 0).any(1)
        return norch.where(none.view(-1, 1, 1, 1), norch.nan, out)

    return pooled(input, boxes, pool)


class PSRoIAlign(RegionPooling):
    """`ps_roi_align` with these output_size, spatial_scale and sampling_ratio."""

    def __init__(self, output_size: Any, spatial_scale: float, sampling_ratio: int) -> None:
        super().__init__()
        self.output_size, self.spatial_scale, self.sampling_ratio = output_size, spatial_scale, sampling_ratio

    def forward(self, input: norch.Tensor, rois: Boxes) -> norch.Tensor:
        """rois: the boxes."""
        return ps_roi_align(input, rois, self.output_size, self.spatial_scale, self.sampling_ratio)
