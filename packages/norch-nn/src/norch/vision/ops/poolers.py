"""Regions pooled from the map of a pyramid whose pixels suit their size (Lin et al., 2017)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import norch
from norch import nn

from ._utils import convert_boxes_to_roi_format
from .boxes import box_area
from .roi_align import roi_align


class LevelMapper:
    """The level, from k_min to k_max, of boxes by their areas: canonical_level for a side of canonical_scale.

    eps: added before rounding down. After Lin et al. (2017), equation 1.
    """

    def __init__(
        self, k_min: int, k_max: int, canonical_scale: int = 224, canonical_level: int = 4, eps: float = 1e-6
    ) -> None:
        self.k_min, self.k_max, self.s0, self.lvl0, self.eps = k_min, k_max, canonical_scale, canonical_level, eps

    def __call__(self, boxlists: Sequence[norch.Tensor]) -> norch.Tensor:
        """Boxes (l, 4) of each image -> int64 (k,), counted from k_min."""
        sides = norch.cat([box_area(boxes) for boxes in boxlists]).sqrt()
        levels = (self.lvl0 + (sides / self.s0).log2() + self.eps).floor()
        return levels.clamp(self.k_min, self.k_max).to(norch.int64) - self.k_min


def initLevelMapper(
    k_min: int, k_max: int, canonical_scale: int = 224, canonical_level: int = 4, eps: float = 1e-6
) -> LevelMapper:
    return LevelMapper(k_min, k_max, canonical_scale, canonical_level, eps)


class MultiScaleRoIAlign(nn.Module):
    """`roi_align` of each box from the map that suits its size; after Lin et al. (2017).

    featmap_names: which of the maps. output_size, sampling_ratio: as of `roi_align`. canonical_scale, canonical_level:
    a box of this side is pooled from the map of 1 / 2**level of the image's size. Raises ValueError for no images.
    """

    def __init__(
        self,
        featmap_names: Sequence[str],
        output_size: int | Sequence[int],
        sampling_ratio: int,
        *,
        canonical_scale: int = 224,
        canonical_level: int = 4,
    ) -> None:
        super().__init__()
        self.featmap_names, self.sampling_ratio = featmap_names, sampling_ratio
        self.output_size = (output_size, output_size) if isinstance(output_size, int) else tuple(output_size)
        self.canonical_scale, self.canonical_level = canonical_scale, canonical_level
        self.scales: list[float] | None = None
        self.map_levels: LevelMapper | None = None

    def forward(
        self, x: Mapping[str, norch.Tensor], boxes: Sequence[norch.Tensor], image_shapes: Sequence[tuple[int, int]]
    ) -> norch.Tensor:
        """x: maps (n, c, h, w) by name; boxes: (l, 4) of each image, in its pixels -> (k, c, *output_size).

        image_shapes: height and width of each image; the scales of the maps are found from the first call's. A box of a
        level beyond the maps is 0.
        """
        maps = [value for name, value in x.items() if name in self.featmap_names]
        if self.scales is None or self.map_levels is None:
            self.scales, self.map_levels = self._levels(maps, image_shapes)
        rois, scales = convert_boxes_to_roi_format(boxes), self.scales
        if len(maps) == 1:
            return roi_align(maps[0], rois, self.output_size, scales[0], self.sampling_ratio)
        levels = self.map_levels(boxes)
        result = norch.zeros((len(rois), maps[0].shape[1], *self.output_size), dtype=maps[0].dtype, device=rois.device)
        for level, (value, scale) in enumerate(zip(maps, scales)):
            rows = norch.where(levels == level)[0]
            pooled = roi_align(value, rois[rows], self.output_size, scale, self.sampling_ratio)
            result[rows] = pooled.to(result.dtype)
        return result

    def _levels(
        self, maps: list[norch.Tensor], image_shapes: Sequence[tuple[int, int]]
    ) -> tuple[list[float], LevelMapper]:
        if not image_shapes:
            raise ValueError("MultiScaleRoIAlign: image_shapes has no image")
        height = max(shape[0] for shape in image_shapes)
        exponents = [round(math.log2(value.shape[-2] / height)) for value in maps]
        mapper = LevelMapper(-exponents[0], -exponents[-1], self.canonical_scale, self.canonical_level)
        return [2.0**exponent for exponent in exponents], mapper

    def extra_repr(self) -> str:
        return (
            f"featmap_names={self.featmap_names}, output_size={self.output_size}, sampling_ratio={self.sampling_ratio}"
        )
