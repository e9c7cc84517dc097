"""Random images, to try a program on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .vision_dataset import VisionDataset


class FakeData(VisionDataset):
    """`size` images of `image_size` = (C, H, W) bytes drawn at random, in `num_classes` classes.

    dataset[i] is (image, label): an array (H, W, C), always the same for the same i + `random_offset`. Raises
    ValueError unless image_size has three numbers.
    """

    def __init__(
        self,
        size: int = 1000,
        image_size: tuple[int, int, int] = (3, 224, 224),
        num_classes: int = 10,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        random_offset: int = 0,
    ) -> None:
        super().__init__(None, transform=transform, target_transform=target_transform)
        if len(image_size) != 3:
            raise ValueError(f"FakeData: image_size must be (C, H, W), got {image_size!r}")
        self.size, self.image_size = size, tuple(image_size)
        self.num_classes, self.random_offset = num_classes, random_offset

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if not 0 <= index < self.size:
            raise IndexError(f"FakeData: index {index} is out of range for {self.size} images")
        draws = np.random.default_rng(index + self.random_offset)
        channels, height, width = self.image_size
        image: Any = draws.integers(0, 256, (height, width, channels), dtype=np.uint8)
        target: Any = int(draws.integers(self.num_classes))
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target

    def __len__(self) -> int:
        return self.size
