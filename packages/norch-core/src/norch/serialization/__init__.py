"""Files: checkpoints of nested states (`save`, `load`), safetensors files of any origin, and PyTorch's.

Reading one runs nothing that it holds, but for what `load` is told to trust. Loaded when one of these is first used.
"""

from __future__ import annotations

from typing import Any

from ..submodules import late_submodules
from .allowed import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals
from .checkpoint import load, save
from .location import default_restore_location as default_restore_location
from .location import location_tag as location_tag
from .safetensors import load_safetensors, safe_open, save_safetensors

DEFAULT_PROTOCOL = 2
"""Of pickles, as PyTorch's."""
MAP_LOCATION = Any

__getattr__ = late_submodules(__name__)

__all__ = [
    "add_safe_globals", "clear_safe_globals", "get_safe_globals", "load", "load_safetensors", "safe_globals",
    "safe_open", "save", "save_safetensors",
]  # fmt: skip
