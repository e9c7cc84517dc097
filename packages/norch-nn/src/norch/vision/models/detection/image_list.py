"""Images of several sizes in one batch."""

from __future__ import annotations

from typing import Any

import norch


class ImageList:
    """A batch (n, c, h, w) whose images were padded, with the sizes (height, width) that they had.

    tensors: the batch. image_sizes: of each image.
    """

    def __init__(self, tensors: norch.Tensor, image_sizes: list[tuple[int, int]]) -> None:
        self.tensors, self.image_sizes = tensors, image_sizes

    def to(self, device: Any) -> ImageList:
        """The same on another device."""
        return ImageList(self.tensors.to(device), self.image_sizes)
