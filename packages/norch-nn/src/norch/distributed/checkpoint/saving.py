"""Writing a checkpoint."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import asdict
from typing import Any

import norch
from norch import Tensor

from ..process_group import ProcessGroup
from .index import FOLDER, Entry, Piece, checksum, current, group_of, outcome, sync, tree_items, write
from .stateful import folder_of, states_of


def save(
    state_dict: Mapping[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_writer: Any = None,
    process_group: Any = None,
    no_dist: bool = False,
) -> None:
    """Writes a state, nested dicts of tensors and of what `norch.save` takes, to the folder `checkpoint_id`, or that of
    `storage_writer`, a FileSystemWriter. Of modules, optimizers and whatever else is Stateful in it, their states.

    All ranks call it, and see the folder. Of tensors that are shared out (those of `get_model_state_dict` and
    `get_optimizer_state_dict`) each writes its elements; what is the same on all ranks is written once, other values as
    rank 0 has them. It returns when the checkpoint is on the disk. no_dist: this process is alone.

    Raises on all ranks where one cannot write, the checkpoint before being as it was. process_group: who calls it.
    """
    if not isinstance(state_dict, Mapping):
        raise norch.DTypeError(f"save(): expected a dict, got {type(state_dict).__name__}")
    path, state_dict = folder_of("save", checkpoint_id, storage_writer), states_of(state_dict)
    group = group_of(process_group, no_dist)
    member, size = (0, 1) if group is None else (group.rank(), group.size())
    begun: Any = _together(group, lambda: _begin(path) if member == 0 else None)
    folder = os.path.join(path, begun[0])

    def mine() -> dict[str, Any]:
        written = _write(state_dict, folder, member, size)
        return {"file": written[0], "size": written[1], "tensors": {n: asdict(e) for n, e in written[2].items()}}

    try:
        parts = _together(group, mine)

        def commit() -> None:
            if member == 0:
                _commit(path, begun[0], parts)

        _together(group, commit)
    except BaseException:
        if member == 0:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def async_save(state_dict: Mapping[str, Any], **options: Any) -> Future[None]:
    """`save`, with its `options`, as a Future, whose `result()` raises what that does. It is done when this returns."""
    done: Future[None] = Future()
    try:
        save(state_dict, **options)
        done.set_result(None)
    except Exception as error:
        done.set_exception(error)
    return done


def save_state_dict(state_dict: Mapping[str, Any], storage_writer: Any, **options: Any) -> None:
    """PyTorch's first name for `save`."""
    save(state_dict, storage_writer=storage_writer, **options)


def _together(group: ProcessGroup | None, do: Any) -> list[Any]:
    """What `do()` returned on each rank; raises on all where it raised on one."""
    value, error = None, None
    try:
        value = do()
    except Exception as raised:
        error = raised
    return outcome(group, value, error, "save")


def _begin(path: str) -> str:
    """Makes a folder for new files, and removes those that interrupted saves left."""
    os.makedirs(path, exist_ok=True)
    kept = current(path)
    for name in os.listdir(path) if kept != "" else ():  # what a damaged index meant may still be wanted
        if FOLDER.fullmatch(name) and name != kept:
            shutil.rmtree(os.path.join(path, name), ignore_errors=True)
    name = os.urandom(8).hex()
    os.mkdir(os.path.join(path, name))
    return name


def _write(state: Mapping[str, Any], folder: str, member: int, size: int) -> tuple[str, int, dict[str, Entry]]:
    """Writes what is this rank's to write: the file, its size and what is in it."""
    tensors: dict[str, Tensor] = {}
    entries: dict[str, Entry] = {}
    values: dict[str, Any] = {}
    file = f"{os.path.basename(folder)}/{member + 1:05d}-of-{size:05d}.safetensors"
    turn = 0
    for name, value, _, _ in tree_items(state):
        if name in entries or name in values:
            raise ValueError(f"save(): two values of the state have the name {name!r}")
        if not isinstance(value, Tensor):
            values[name] = value
            continue
        shard = getattr(value, "shard", None)
        if shard is None:
            entry = Entry(value.dtype.name, list(value.shape))
            start, stop, is_mine = 0, value.numel(), turn % size == member
            turn += 1
        else:
            entry = Entry(value.dtype.name, list(shard.shape))
            start, stop, is_mine = shard.start, shard.stop, True
        entries[name] = entry
        if is_mine and stop > start:
            is_whole = stop - start == norch.Size(entry.shape).numel()
            tensors[name] = value.detach().reshape(entry.shape) if is_whole else value.detach()
            entry.pieces.append(Piece(file, start, stop, checksum(value)))
    norch.save_safetensors(tensors, os.path.join(folder, os.path.basename(file)))
    if member == 0:
        norch.save(values, os.path.join(folder, "values.safetensors"))
    return file, os.path.getsize(os.path.join(folder, os.path.basename(file))), entries


def _commit(path: str, folder: str, parts: list[dict[str, Any]]) -> None:
    """Makes what the ranks have written the checkpoint."""
    entries: dict[str, Entry] = {}
    for part in parts:
        for name, given in part["tensors"].items():
            pieces = [Piece(**piece) for piece in given["pieces"]]
            entry = entries.setdefault(name, Entry(given["dtype"], list(given["shape"])))
            if (entry.dtype, entry.shape) != (given["dtype"], list(given["shape"])):
                raise norch.CheckpointError(f"save(): {name} is of another dtype or shape on some ranks")
            entry.pieces += pieces
    for name, entry in entries.items():
        entry.pieces.sort(key=lambda p: p.start)
        end = 0
        for piece in entry.pieces:
            if piece.start != end:
                break
            end = piece.stop
        if end != norch.Size(entry.shape).numel():
            raise norch.CheckpointError(
                f"save(): the ranks do not have all elements of {name} together, or some of them twice"
            )
    values = f"{folder}/values.safetensors"
    sizes = {part["file"]: part["size"] for part in parts} | {values: os.path.getsize(os.path.join(path, values))}
    sync(os.path.join(path, folder))
    sync(path)
    old = current(path)
    write(path, entries, values, sizes)
    if old:
        shutil.rmtree(os.path.join(path, old), ignore_errors=True)
