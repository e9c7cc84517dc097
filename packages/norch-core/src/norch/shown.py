"""What norch is called where dtypes and shapes show themselves: `torch` in the place of PyTorch."""

from __future__ import annotations

root = "norch"


def set_root(name: str) -> None:
    """Has dtypes, shapes and layouts show as those of the module `name`."""
    global root
    root = name
