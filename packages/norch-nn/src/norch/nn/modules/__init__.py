"""PyTorch's `nn.modules`: the classes of norch.nn, and the files that norch.compat.paths makes (`modules.conv`)."""

from types import ModuleType
from typing import Any

import norch
from norch import nn

__all__ = [name for name, value in vars(nn).items() if isinstance(value, type) and issubclass(value, nn.Module)]

_path = norch.late_submodules(__name__)


def __getattr__(name: str) -> Any:
    found = getattr(nn, name, None)
    return _path(name) if found is None or isinstance(found, ModuleType) else found
