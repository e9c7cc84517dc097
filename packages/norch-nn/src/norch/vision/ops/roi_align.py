"""Means over regions of interest, sampled between pixels (He et al., 2017)."""

from __future__ import annotations

from typing import Any

import norch

from .pooling import Boxes, RegionPooling, pair, pooled, sampled


def roi_align(
    input: norch.Tensor,
    boxes: Boxes,
    output_size: Any,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
) -> norch.Tensor:
    """Each region in `output_size` bins, each the mean of samples between pixels; after He et al. (2017).

    input: (n, c, h, w). boxes: (k, 5), the image's number first, or a list of (l, 4), one for each image, of the
    input's dtype. output_size: bins in height and width, or one number for both. spatial_scale: pixels of the input in
    a unit of the boxes. sampling_ratio: samples of a bin in each direction; -1 takes as many as the bin has pixels,
    rounded up. aligned: whether a pixel's centre is at a half; without, a region has one pixel at least.
    -> (k, c, *output_size), with gradients for the input alone. Raises ShapeError, DTypeError, and IndexError for the
    number of an image that is not there.
    """
    bins, offset = pair(output_size), 0.5 if aligned else 0.0

    def pool(image: norch.Tensor, part: norch.Tensor) -> norch.Tensor:
        ends = part * spatial_scale - offset
        start, size = ends[:, :2], ends[:, 2:] - ends[:, :2]
        if not aligned:
            size = size.clamp(min=1.0)
        channels, *lengths = image.shape
        columns, rows = (sampled(start[:, d], size[:, d], bins[1 - d], lengths[1 - d], sampling_ratio) for d in (0, 1))
        wide = rows.flatten(0, 1) @ image.permute(1, 0, 2).reshape(lengths[0], -1)
        out = wide.view(len(part), bins[0] * channels, lengths[1]) @ columns.transpose(1, 2)
        return out.view(len(part), bins[0], channels, bins[1]).permute(0, 2, 1, 3)

    return pooled(input, boxes, pool)


class RoIAlign(RegionPooling):
    """`roi_align` with these output_size, spatial_scale, sampling_ratio and aligned."""

    def __init__(self, output_size: Any, spatial_scale: float, sampling_ratio: int, aligned: bool = False) -> None:
        super().__init__()
        self.output_size, self.spatial_scale = output_size, spatial_scale
        self.sampling_ratio, self.aligned = sampling_ratio, aligned

    def forward(self, input: norch.Tensor, rois: Boxes) -> norch.Tensor:
        """rois: the boxes."""
        return roi_align(input, rois, self.output_size, self.spatial_scale, self.sampling_ratio, self.aligned)
