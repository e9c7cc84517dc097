"""norch.utils: what training needs beside modules and optimisers, under PyTorch's names."""

from . import data

__all__ = ["data"]
