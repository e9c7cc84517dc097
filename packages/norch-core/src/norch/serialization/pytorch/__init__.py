"""PyTorch's own files: what torch.save wrote, in the zip format and the one before it, and TorchScript archives.

Reading one runs nothing that it says: see `machine` and `names`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import legacy
from .archive import Archive, Storages
from .machine import Machine
from .names import Load, WeightNames

if TYPE_CHECKING:
    from ..files import File
    from ..location import Locations


def load(file: File, locations: Locations, mapped: bool) -> Any:
    """The object in a file of PyTorch."""

    def run(pickle: bytes, storages: Load) -> Any:
        return Machine(WeightNames(storages), file.fail).run(pickle)

    if not file.head.startswith(b"PK"):
        if mapped:
            raise ValueError(f"load(): mmap=True needs a zip file of PyTorch, and {file.name} has the format before it")
        return legacy.load(file, locations, run)
    archive = Archive(file)
    return run(archive.bytes("data.pkl"), Storages(archive, locations, mapped).load)
