"""Files: checkpoints of nested states (`save`, `load`), and safetensors files of any origin.

Both are safetensors files. Reading one never runs anything that it holds. Loaded when one of these is first used.
"""

from __future__ import annotations

from .checkpoint import load, save
from .safetensors import load_safetensors, safe_open, save_safetensors

__all__ = ["load", "load_safetensors", "safe_open", "save", "save_safetensors"]
