"""Means over regions of interest, sampled between pixels (He et al., 2017)."""

from __future__ import annotations

from typing import Any

import norch

from ._utils import convert_boxes_to_roi_format
from .pooling import Boxes, RegionPooling, check_regions, pair


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
    check_regions(input, boxes)
    rois = boxes if isinstance(boxes, norch.Tensor) else convert_boxes_to_roi_format(boxes)
    dtype = input.dtype if input.dtype == norch.float64 else norch.float32
    with norch.autocast(input.device.type, enabled=False):
        options = (pair(output_size), spatial_scale, sampling_ratio, aligned)
        return norch.roi_align(input.to(dtype), rois.to(dtype), *options).to(input.dtype)


class RoIAlign(RegionPooling):
    """`roi_align` with these output_size, spatial_scale, sampling_ratio and aligned."""

    def __init__(self, output_size: Any, spatial_scale: float, sampling_ratio: int, aligned: bool = False) -> None:
        super().__init__()
        self.output_size, self.spatial_scale = output_size, spatial_scale
        self.sampling_ratio, self.aligned = sampling_ratio, aligned

    def forward(self, input: norch.Tensor, rois: Boxes) -> norch.Tensor:
        """rois: the boxes."""
        return roi_align(input, rois, self.output_size, self.spatial_scale, self.sampling_ratio, self.aligned)
