"""What runs here: `norch.version`."""

from __future__ import annotations

from . import __version__

hip = None
git_version = None


def __getattr__(name: str) -> str | None:
    """`cuda`: the CUDA version of the backend for device "cuda"; None where there is none."""
    if name == "cuda":
        from .backend.device_module import lookup

        module = lookup("cuda")
        if module is None or not module.is_available():
            return None
        return str(module.versions().get("runtime"))
    raise AttributeError(f"module 'norch.version' has no attribute {name!r}")


__all__ = ["__version__", "git_version", "hip"]
