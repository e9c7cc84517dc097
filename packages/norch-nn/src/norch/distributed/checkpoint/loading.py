"""Reading a checkpoint."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from typing import Any

import norch
from norch import Tensor

from .index import Index, group_of, outcome
from .stateful import Stateful, folder_of, states_of


class StateOf(dict[str, Any]):
    """An optimiser's state of one parameter, `like`: `load` fills it with all that a checkpoint has of it."""

    def __init__(self, state: dict[str, Any], like: Tensor) -> None:
        super().__init__(state)
        self.like = like


def load(
    state_dict: MutableMapping[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_reader: Any = None,
    process_group: Any = None,
    no_dist: bool = False,
) -> None:
    """Brings the values of a checkpoint, the folder `checkpoint_id` or that of `storage_reader` (a FileSystemReader),
    into `state_dict`, a state that is made as the saved one was, on any number of ranks.

    What is Stateful in it (modules, optimizers) takes over its state. Tensors are filled in place, of those that are
    shared out the elements that this rank has; other values are put into the dicts. States that optimisers do not have
    yet are added. What the checkpoint has besides is left there.

    Raises CheckpointError naming the file for one that is missing or damaged, and for a name that the checkpoint does
    not have; ShapeError for a tensor of another shape. Where one rank fails all of them raise. process_group: who calls
    it; no_dist: this process alone does.
    """
    path, states = folder_of("load", checkpoint_id, storage_reader), states_of(state_dict)
    group = group_of(process_group, no_dist)
    error = None
    try:
        with norch.no_grad():
            index = Index(path)
            try:
                _fill(index, states)
            finally:
                index.close()
    except Exception as raised:
        error = raised
    outcome(group, None, error, "load")
    for key, value in list(state_dict.items()):
        if states[key] is value:
            continue
        if isinstance(value, Stateful):
            value.load_state_dict(states[key])
        else:
            state_dict[key] = states[key]


def load_state_dict(state_dict: MutableMapping[str, Any], storage_reader: Any, **options: Any) -> None:
    """PyTorch's first name for `load`."""
    load(state_dict, storage_reader=storage_reader, **options)


def _fill(index: Index, state: MutableMapping[str, Any]) -> None:
    values = index.values()
    for name, given, place, key in _places(state):
        if isinstance(given, StateOf):
            _fill_state(index, values, name, given)
        elif name in index.tensors:
            if isinstance(given, Tensor):
                _fill_tensor(index, name, given)
            else:
                place[key] = _whole(index, name)
        elif name in values:
            place[key] = values[name]
        elif given != {}:
            index.lacks(name)


def _places(state: Any, prefix: str = "") -> list[tuple[str, Any, Any, Any]]:
    """As `tree_items`, a StateOf being one item."""
    found: list[tuple[str, Any, Any, Any]] = []
    for key, value in state.items():
        if isinstance(value, StateOf):
            found.append((f"{prefix}{key}", value, state, key))
        elif isinstance(value, MutableMapping) and value:
            found += _places(value, f"{prefix}{key}.")
        else:
            found.append((f"{prefix}{key}", value, state, key))
    return found


def _whole(index: Index, name: str) -> Tensor:
    shape = index.tensors[name].shape
    return index.elements(name, 0, norch.Size(shape).numel()).reshape(shape).clone()


def _fill_tensor(index: Index, name: str, tensor: Tensor) -> None:
    shard = getattr(tensor, "shard", None)
    shape = tuple(tensor.shape) if shard is None else shard.shape
    if tuple(index.tensors[name].shape) != shape:
        raise norch.ShapeError(
            f"load(): {name} has shape {tuple(index.tensors[name].shape)} in the checkpoint {index.path}, "
            f"and {shape} here"
        )
    start, stop = (0, tensor.numel()) if shard is None else (shard.start, shard.stop)
    tensor.copy_(index.elements(name, start, stop).reshape(tensor.shape))


def _fill_state(index: Index, values: dict[str, Any], name: str, state: StateOf) -> None:
    shard, device = getattr(state.like, "shard", None), state.like.device
    state.clear()
    prefix = f"{name}."
    for other in index.tensors:
        if other.startswith(prefix):
            if shard is not None and tuple(index.tensors[other].shape) == shard.shape:
                tensor = index.elements(other, shard.start, shard.stop).clone().to(device)
                tensor.shard = shard  # type: ignore[attr-defined]
            else:
                tensor = _whole(index, other).to(device)
            state[other.removeprefix(prefix)] = tensor
    for other, value in values.items():
        if other.startswith(prefix):
            state[other.removeprefix(prefix)] = value
