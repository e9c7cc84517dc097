"""How much `norch.distributed` is to check and tell, by PyTorch's names: norch checks alike at every level."""

from __future__ import annotations

import os
from enum import Enum


class DebugLevel(Enum):
    """What TORCH_DISTRIBUTED_DEBUG may be."""

    OFF, INFO, DETAIL = range(3)


_level: list[DebugLevel] = []


def get_debug_level() -> DebugLevel:
    """What was set last, or else the environment says."""
    if not _level:
        set_debug_level_from_env()
    return _level[0]


def set_debug_level(level: DebugLevel) -> None:
    """Sets it to `level`."""
    _level[:] = [DebugLevel(level)]


def set_debug_level_from_env() -> None:
    """Sets it to what TORCH_DISTRIBUTED_DEBUG is, OFF where that is not set. Raises ValueError for no level."""
    name = os.environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper()
    if name not in DebugLevel.__members__:
        raise ValueError(f"TORCH_DISTRIBUTED_DEBUG must be OFF, INFO or DETAIL, got {name!r}")
    set_debug_level(DebugLevel[name])
