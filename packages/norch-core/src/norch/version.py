"""What runs here: `norch.version`."""

from __future__ import annotations

from typing import Any

from .device import Device
from .errors import DeviceError

__version__ = "0.1.0"
hip = None
debug = False
git_version = None


def __getattr__(name: str) -> str | None:
    """`cuda`: the CUDA version of the backend for device "cuda"; None where there is none."""
    if name == "cuda":
        try:
            backend: Any = Device("cuda").backend
        except DeviceError:
            return None
        return str(backend.module.versions().get("runtime"))
    raise AttributeError(f"module 'norch.version' has no attribute {name!r}")


__all__ = ["__version__", "git_version", "hip"]
