"""Boxes that a detector starts from, at each place of each map (Ren et al., 2015; Liu et al., 2016)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import norch
from norch import nn

from .image_list import ImageList


class AnchorGenerator(nn.Module):
    """Boxes of each of a map's sizes and ratios of height to width around each place of it; after Ren et al. (2015).

    sizes, aspect_ratios: for each map those of its boxes; numbers alone are one size for each map, and the same ratios
    for all.
    """

    def __init__(
        self, sizes: Sequence[Any] = ((128, 256, 512),), aspect_ratios: Sequence[Any] = ((0.5, 1.0, 2.0),)
    ) -> None:
        super().__init__()
        if not isinstance(sizes[0], list | tuple):
            sizes = tuple((size,) for size in sizes)
        if not isinstance(aspect_ratios[0], list | tuple):
            aspect_ratios = (aspect_ratios,) * len(sizes)
        self.sizes, self.aspect_ratios = sizes, aspect_ratios
        self.cell_anchors = [self.generate_anchors(*pair) for pair in zip(sizes, aspect_ratios)]

    def generate_anchors(
        self, scales: Sequence[float], aspect_ratios: Sequence[float], dtype: Any = None, device: Any = "cpu"
    ) -> norch.Tensor:
        """Boxes (len(aspect_ratios) * len(scales), 4) around 0, with whole corners; float32 unless `dtype` says."""
        like = {"dtype": dtype or norch.float32, "device": device}
        heights = norch.tensor(list(aspect_ratios), **like).sqrt().unsqueeze(1)
        sides = norch.tensor(list(scales), **like)
        width, height = ((1 / heights) * sides).flatten(), (heights * sides).flatten()
        return (norch.stack([-width, -height, width, height], dim=1) / 2).round()

    def set_cell_anchors(self, dtype: Any, device: Any) -> None:
        """Has the boxes around 0 in this dtype and on this device."""
        self.cell_anchors = [anchors.to(dtype=dtype, device=device) for anchors in self.cell_anchors]

    def num_anchors_per_location(self) -> list[int]:
        """For each map the number of boxes at a place."""
        return [len(sizes) * len(ratios) for sizes, ratios in zip(self.sizes, self.aspect_ratios)]

    def grid_anchors(self, grid_sizes: Sequence[Any], strides: Sequence[Any]) -> list[norch.Tensor]:
        """For each map its boxes (height * width * boxes at a place, 4), row by row.

        grid_sizes, strides: height and width of each map, and of its places in the image. Raises ValueError for other
        than as many as there are sizes.
        """
        if not len(grid_sizes) == len(strides) == len(self.cell_anchors):
            raise ValueError(
                f"AnchorGenerator: {len(self.cell_anchors)} maps have sizes and ratios, given are {len(grid_sizes)} "
                f"maps and {len(strides)} strides"
            )
        made = []
        for size, stride, cell in zip(grid_sizes, strides, self.cell_anchors):
            y, x = (norch.arange(n, dtype=norch.int32, device=cell.device) * s for n, s in zip(size, stride))
            y, x = (t.flatten() for t in norch.meshgrid(y, x, indexing="ij"))
            made.append((norch.stack([x, y, x, y], dim=1).unsqueeze(1) + cell.unsqueeze(0)).view(-1, 4))
        return made

    def forward(self, image_list: ImageList, feature_maps: Sequence[norch.Tensor]) -> list[norch.Tensor]:
        """For each image the boxes (k, 4) of all maps; image_list: the batch, feature_maps: (n, c, h, w) each."""
        height, width = image_list.tensors.shape[-2:]
        grids = [tuple(value.shape[-2:]) for value in feature_maps]
        self.set_cell_anchors(feature_maps[0].dtype, feature_maps[0].device)
        anchors = norch.cat(self.grid_anchors(grids, [(height // g[0], width // g[1]) for g in grids]))
        return [anchors.clone() for _ in image_list.image_sizes]


class DefaultBoxGenerator(nn.Module):
    """The default boxes of SSD: at each place one of each map's scale, one between it and the next, and by ratios.

    aspect_ratios: for each map those besides 1, each also as its inverse. min_ratio, max_ratio: of which scales are
    made where `scales` gives none. steps: pixels of the image in a place of each map; by default what their sizes say.
    clip: whether boxes end at the image's edges. After Liu et al. (2016). Raises ValueError for steps of other maps.
    """

    def __init__(
        self,
        aspect_ratios: Sequence[Sequence[float]],
        min_ratio: float = 0.15,
        max_ratio: float = 0.9,
        scales: list[float] | None = None,
        steps: list[int] | None = None,
        clip: bool = True,
    ) -> None:
        super().__init__()
        if steps is not None and len(steps) != len(aspect_ratios):
            raise ValueError(f"DefaultBoxGenerator: {len(steps)} steps for {len(aspect_ratios)} maps")
        self.aspect_ratios, self.steps, self.clip = aspect_ratios, steps, clip
        maps = len(aspect_ratios)
        if scales is None and maps == 1:
            scales = [min_ratio, max_ratio]
        elif scales is None:
            scales = [min_ratio + (max_ratio - min_ratio) * k / (maps - 1) for k in range(maps)] + [1.0]
        self.scales = scales
        self._wh_pairs = [self._pairs(k) for k in range(maps)]

    def _pairs(self, k: int) -> norch.Tensor:
        """Widths and heights (m, 2) of the boxes of a map, in parts of the image."""
        scale = self.scales[k]
        between = math.sqrt(scale * self.scales[k + 1])
        pairs = [[scale, scale], [between, between]]
        for ratio in self.aspect_ratios[k]:
            root = math.sqrt(ratio)
            pairs += [[scale * root, scale / root], [scale / root, scale * root]]
        return norch.tensor(pairs, dtype=norch.float32)

    def num_anchors_per_location(self) -> list[int]:
        """For each map the number of boxes at a place."""
        return [2 + 2 * len(ratios) for ratios in self.aspect_ratios]

    def _grid(self, grids: Sequence[Any], size: tuple[int, int], dtype: Any) -> norch.Tensor:
        """Centres, widths and heights (k, 4) in parts of the image."""
        made = []
        for k, grid in enumerate(grids):
            rows, columns = (size[0] / self.steps[k], size[1] / self.steps[k]) if self.steps is not None else grid
            y, x = ((norch.arange(n) + 0.5).to(dtype) / parts for n, parts in zip(grid, (rows, columns)))
            centres = norch.stack([t.flatten() for t in norch.meshgrid(y, x, indexing="ij")][::-1], dim=-1)
            shapes = self._wh_pairs[k].clamp(0, 1) if self.clip else self._wh_pairs[k]
            count = (len(centres), len(shapes), 2)
            both = [centres.unsqueeze(1).expand(count), shapes.unsqueeze(0).expand(count)]
            made.append(norch.cat(both, dim=-1).view(-1, 4))
        return norch.cat(made)

    def forward(self, image_list: ImageList, feature_maps: Sequence[norch.Tensor]) -> list[norch.Tensor]:
        """For each image the boxes (k, 4) in its pixels; image_list: the batch, feature_maps: (n, c, h, w) each."""
        height, width = image_list.tensors.shape[-2:]
        first = feature_maps[0]
        boxes = self._grid([tuple(value.shape[-2:]) for value in feature_maps], (height, width), first.dtype)
        boxes = boxes.to(first.device)
        centres, shapes = boxes[:, :2], boxes[:, 2:]
        corners = norch.cat([centres - 0.5 * shapes, centres + 0.5 * shapes], dim=-1)
        pixels = norch.tensor([width, height, width, height], device=first.device)
        return [corners * pixels for _ in image_list.image_sizes]

    def extra_repr(self) -> str:
        return f"aspect_ratios={self.aspect_ratios}, clip={self.clip}, scales={self.scales}, steps={self.steps}"
