"""Checkpoints that all ranks write and read, each its part, and that any number of ranks can load.

    state = {"model": get_model_state_dict(model), "optimizer": get_optimizer_state_dict(model, optimizer), "step": 10}
    save(state, checkpoint_id="run/checkpoint")

    load(state, checkpoint_id="run/checkpoint")          # into a state that is made in the same way
    set_model_state_dict(model, state["model"])
    set_optimizer_state_dict(model, optimizer, state["optimizer"])

A checkpoint is a folder, which all ranks see: safetensors files, in which a tensor that is shared out among ranks lies
in flat pieces, and the index, which says where each piece is and what it adds up to. Every save writes a folder of new
files into it, and then puts a new index in the place of the old one, in one step: whatever happens before, the old
checkpoint is whole. The next save removes what an interrupted one left.
"""

from __future__ import annotations

from .loading import load, load_state_dict
from .saving import async_save, save, save_state_dict
from .state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from .stateful import FileSystemReader, FileSystemWriter, Stateful

__all__ = [
    "FileSystemReader",
    "FileSystemWriter",
    "StateDictOptions",
    "Stateful",
    "async_save",
    "get_model_state_dict",
    "get_optimizer_state_dict",
    "get_state_dict",
    "load",
    "load_state_dict",
    "save",
    "save_state_dict",
    "set_model_state_dict",
    "set_optimizer_state_dict",
    "set_state_dict",
]
