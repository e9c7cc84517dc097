"""The index of a checkpoint: which piece of which tensor is in which file."""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn

import norch
from norch import Tensor

from .. import objects
from ..process_group import ProcessGroup
from ..world import is_initialized, resolve

NAME = "checkpoint.safetensors.index.json"
VERSION = 1
FOLDER = re.compile(r"[0-9a-f]{16}")
"""What the folders of files are called."""


@dataclass
class Piece:
    """Elements `start` to `stop` of a tensor laid flat; crc32: of their bytes."""

    file: str
    start: int
    stop: int
    crc32: int


@dataclass
class Entry:
    """A tensor: its dtype, its shape and where its elements are."""

    dtype: str
    shape: list[int]
    pieces: list[Piece] = field(default_factory=list)


def tree_items(state: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any, Mapping[Any, Any], Any]]:
    """What is in nested dicts: its dotted name, itself, the dict that it is in and its key there."""
    for key, value in state.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and (value or type(value) is not dict):
            yield from tree_items(value, f"{name}.")
        else:
            yield name, value, state, key


def checksum(tensor: Tensor) -> int:
    values: Any = tensor.detach().cpu().contiguous().reshape(-1).view(norch.uint8).numpy()
    return zlib.crc32(values)


def group_of(process_group: Any, no_dist: bool) -> ProcessGroup | None:
    """The processes that take part; None where this one is alone."""
    return None if no_dist or not is_initialized() else resolve(process_group)


def outcome(group: ProcessGroup | None, value: Any, error: BaseException | None, what: str) -> list[Any]:
    """What all ranks came to; raises on all of them where one has failed."""
    said = None if error is None else f"{type(error).__name__}: {error}"
    found: list[Any] = [(value, said)]
    if group is not None:
        found = [None] * group.size()
        objects.all_gather_object(found, [value, said], group)
    if error is not None:
        raise error
    for member, (_, trouble) in enumerate(found):
        if trouble is not None and group is not None:
            raise norch.CheckpointError(f"{what}(): rank {group.ranks[member]} has failed: {trouble}")
    return [value for value, _ in found]


def write(path: str, tensors: dict[str, Entry], values: str, sizes: dict[str, int]) -> None:
    """Puts an index in the place of the one before, in one step."""
    whole = {
        "metadata": {"format": "norch.distributed", "version": VERSION, "total_size": sum(sizes.values())},
        "weight_map": {name: e.pieces[0].file for name, e in tensors.items() if len(e.pieces) == 1},
        "tensors": {name: asdict(entry) for name, entry in tensors.items()},
        "values": values,
        "files": sizes,
    }
    temporary = os.path.join(path, f".{NAME}.tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(whole, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, os.path.join(path, NAME))
    sync(path)


def sync(folder: str) -> None:
    """The names in a folder to the disk."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def current(path: str) -> str | None:
    """The folder of files that the index in `path` names; None where there is none, "" where it is damaged."""
    try:
        with open(os.path.join(path, NAME), encoding="utf-8") as file:
            return str(json.load(file)["values"]).partition("/")[0]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return ""


class Index:
    """The index of a checkpoint that is read."""

    def __init__(self, path: str) -> None:
        self.path = path
        where = os.path.join(path, NAME)
        try:
            with open(where, encoding="utf-8") as file:
                whole = json.load(file)
            if whole["metadata"]["version"] > VERSION:
                raise norch.CheckpointError(f"load(): {where} is of a newer norch; upgrade norch-nn to read it")
            self.tensors = {
                name: Entry(e["dtype"], e["shape"], [Piece(**piece) for piece in e["pieces"]])
                for name, e in whole["tensors"].items()
            }
            self.values_file, self.sizes = whole["values"], whole["files"]
        except FileNotFoundError:
            raise norch.CheckpointError(f"load(): {path} is no checkpoint: there is no {where}") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise norch.CheckpointError(f"load(): {where} is damaged: {error!r}") from None
        self.files: dict[str, Any] = {}

    def close(self) -> None:
        for file in self.files.values():
            file.__exit__()

    def file(self, name: str) -> str:
        """The path of a file of the checkpoint, which is there and as long as it was."""
        where = os.path.join(self.path, name)
        try:
            size = os.path.getsize(where)
        except OSError:
            raise norch.CheckpointError(f"load(): {where} is missing, which the checkpoint needs") from None
        if size != self.sizes[name]:
            raise norch.CheckpointError(f"load(): {where} is damaged: it has {size:,} bytes of {self.sizes[name]:,}")
        return where

    def values(self) -> dict[str, Any]:
        where = self.file(self.values_file)
        try:
            found: dict[str, Any] = norch.load(where)
        except norch.CheckpointError as error:
            raise norch.CheckpointError(f"load(): {where} is damaged: {error}") from None
        return found

    def elements(self, name: str, start: int, stop: int) -> Tensor:
        """Elements of a tensor laid flat, on the CPU."""
        found = []
        end = start
        for piece in sorted(self.tensors[name].pieces, key=lambda p: p.start):
            begin, last = max(start, piece.start), min(stop, piece.stop)
            if begin < last and begin == end:
                found.append(self._piece(name, piece)[begin - piece.start : last - piece.start])
                end = last
        if end != stop:
            raise norch.CheckpointError(
                f"load(): {os.path.join(self.path, NAME)} is damaged: elements {end} to {stop} of {name} are in no file"
            )
        if not found:
            return norch.empty(0, dtype=getattr(norch, self.tensors[name].dtype))
        return found[0] if len(found) == 1 else norch.cat(found)

    def _piece(self, name: str, piece: Piece) -> Tensor:
        where = os.path.join(self.path, piece.file)
        try:
            if piece.file not in self.files:
                self.files[piece.file] = norch.safe_open(self.file(piece.file))
            tensor: Tensor = self.files[piece.file].get_tensor(name).reshape(-1)
        except (norch.CheckpointError, KeyError) as error:
            if str(error).startswith("load()"):
                raise
            raise norch.CheckpointError(f"load(): {where} is damaged: {error}") from None
        if tensor.numel() != piece.stop - piece.start or checksum(tensor) != piece.crc32:
            raise norch.CheckpointError(f"load(): {where} is damaged: the values of {name} are not what was written")
        return tensor

    def lacks(self, name: str) -> NoReturn:
        raise norch.CheckpointError(f"load(): the checkpoint {self.path} has no {name!r}")
