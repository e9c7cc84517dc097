"""Files: checkpoints of nested states (`save`, `load`), and safetensors files of any origin.

Both are safetensors files. Reading one never runs anything that it holds. Loaded when one of these is first used.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from .checkpoint import load, save
from .safetensors import load_safetensors, safe_open, save_safetensors

__all__ = ["load", "load_safetensors", "safe_open", "save", "save_safetensors"]


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Nothing: `load` runs nothing that a file says, so that no class has to be declared safe."""


def safe_globals(safe_globals: list[Any]) -> nullcontext[None]:
    """A `with` block that changes nothing: see add_safe_globals."""
    return nullcontext()
