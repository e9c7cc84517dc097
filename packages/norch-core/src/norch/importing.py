"""Imports most of norch with the garbage collector off: what is imported lives on, and looking at it again and again,
which it would do, takes a sixth of the time."""

from __future__ import annotations

import gc
from importlib import import_module


def _import_ops() -> None:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        import_module("norch.tensor")
        import_module("norch.ops")
    finally:
        if was_enabled:
            gc.enable()


_import_ops()
