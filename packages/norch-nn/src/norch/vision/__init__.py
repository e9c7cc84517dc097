"""norch.vision: image data sets read from their standard files, the transforms of their images, and grids of them.

`models` and `ops`, the architectures and their blocks, are imported when they are first named.
"""

import norch

from . import datasets, transforms, utils

__all__ = ["datasets", "transforms", "utils"]

__getattr__ = norch.late_submodules(__name__)


def _is_tracing() -> bool:
    """False: torchvision's name for what jit does."""
    return False
