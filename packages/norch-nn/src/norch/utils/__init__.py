"""norch.utils: what training needs beside modules and optimisers, under PyTorch's names."""

import norch

from . import checkpoint, data

__all__ = ["checkpoint", "data"]

__getattr__ = norch.late_submodules(__name__)
