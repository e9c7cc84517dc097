"""Imports most of norch with the garbage collector off: what is imported lives on, and looking at it again and again,
which it would do, takes a sixth of the time. In a program that has only begun it is then frozen, as it would be looked
through three times more at the program's end, which takes half as long as importing it."""

from __future__ import annotations

import gc
import sys
from importlib import import_module

BEGUN = 300
"""Modules that a program has which has done more than to begin: Python's own and NumPy's are 200."""


def _import_ops() -> None:
    was_enabled, begins = gc.isenabled(), len(sys.modules) < BEGUN
    gc.disable()
    try:
        import_module("norch.tensor")
        import_module("norch.ops")
        if begins:
            gc.freeze()
    finally:
        if was_enabled:
            gc.enable()


_import_ops()
