"""norch.utils: what training needs beside modules and optimisers, under PyTorch's names."""

from . import checkpoint, data

__all__ = ["checkpoint", "data"]
