"""Who holds the memory: now (`snapshot`), over time (`record`), and in a training step that has not run (`fits`)."""

from __future__ import annotations

from .fitting import Fit, FitsError, fits
from .holders import OWNERS, Holding
from .recording import Block, Recording, record
from .snapshots import Snapshot, snapshot

__all__ = [
    "OWNERS", "Block", "Fit", "FitsError", "Holding", "Recording", "Snapshot", "fits", "record", "snapshot",
]  # fmt: skip
