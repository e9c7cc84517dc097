"""norch.vision: image data sets read from their standard files, the transforms of their images, and grids of them."""

from . import datasets, transforms, utils

__all__ = ["datasets", "transforms", "utils"]
