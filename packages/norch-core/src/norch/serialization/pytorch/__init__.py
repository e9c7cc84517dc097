"""PyTorch's own files: what torch.save wrote, in the zip format and the one before it, and TorchScript archives.

Reading one runs nothing that it says: see `machine` and `names`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import legacy, script
from .archive import Archive, Storages
from .machine import Machine
from .names import Load, WeightNames

if TYPE_CHECKING:
    from ...errors import CheckpointError
    from ..files import File
    from ..location import Locations


Trusting = Callable[[bytes, Load, Callable[[str], "CheckpointError"], bool], Any]


def load(file: File, locations: Locations, mapped: bool, unpickle: Trusting | None) -> Any:
    """The object in a file of PyTorch, or of objects that `save` pickled.

    unpickle: what makes any object of a pickle, where the user trusts the file.
    """

    storages_follow = not file.head.startswith(b"PK")

    def run(pickle: bytes, stored: Load, trusted: bool = True) -> Any:
        if unpickle is not None and trusted:
            return unpickle(pickle, stored, file.fail, storages_follow)
        machine = Machine(WeightNames(stored), file.fail)
        machine.storages_follow = storages_follow
        return machine.run(pickle)

    if storages_follow:
        if mapped:
            raise ValueError(f"load(): mmap=True needs a zip file of PyTorch, and {file.name} has the format before it")
        return legacy.load(file, locations, run)
    archive = Archive(file)
    storages = Storages(archive, locations, mapped)
    if archive.is_script:
        return script.load(archive, storages.load)
    pickle = archive.bytes("data.pkl")
    if not archive.has("tensors.pkl"):
        return run(pickle, storages.load)
    tensors = run(archive.bytes("tensors.pkl"), storages.load, trusted=False)

    def numbered(key: Any) -> Any:
        tag, number = key
        if tag != "tensor" or type(number) is not int or type(tensors) is not list or number < 0:
            raise ValueError("it refers to something that is not a tensor")
        return tensors[number]

    return run(pickle, numbered)
