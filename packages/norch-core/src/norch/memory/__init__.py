"""Who holds the memory: now (`snapshot`), over time (`record`), and in a training step that has not run (`fits`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .fitting import Fit, FitsError, fits
    from .holders import OWNERS, Holding
    from .recording import Block, Recording, record
    from .snapshots import Snapshot, snapshot

__all__ = [
    "OWNERS", "Block", "Fit", "FitsError", "Holding", "Recording", "Snapshot", "fits", "record", "snapshot",
]  # fmt: skip

_FROM = {
    "fitting": ("Fit", "FitsError", "fits"), "holders": ("OWNERS", "Holding"),
    "recording": ("Block", "Recording", "record"), "snapshots": ("Snapshot", "snapshot"),
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Loaded when it is first asked for: a program that has run out of memory needs little of this."""
    from importlib import import_module

    for module, names in _FROM.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
