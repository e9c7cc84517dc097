"""norch.vision: image data sets read from their standard files, and the transforms of their images."""

from . import datasets, transforms

__all__ = ["datasets", "transforms"]
