"""norch.utils: what training needs beside modules and optimisers, under PyTorch's names."""

from norch.submodules import late_submodules

from . import checkpoint, data

__all__ = ["checkpoint", "data"]

__getattr__ = late_submodules(__name__)
