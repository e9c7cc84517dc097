"""Objects whose state is saved and loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import norch


@runtime_checkable
class Stateful(Protocol):
    """What has a state: modules, optimizers, schedulers and classes of one's own."""

    def state_dict(self) -> dict[str, Any]:
        """The state, a dict of what `save` takes."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Takes over `state_dict`, such a state."""


def states_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """A state with the states of objects in the place of those."""
    return {
        key: value.state_dict() if isinstance(value, Stateful) and not isinstance(value, type) else value
        for key, value in state.items()
    }


class FileSystemWriter:
    """Says which folder, `path`, a checkpoint is written to. PyTorch's other arguments, about how, change nothing."""

    def __init__(self, path: str | os.PathLike[str], *args: Any, **options: Any) -> None:
        self.path = path


class FileSystemReader:
    """Says which folder, `path`, a checkpoint is read from."""

    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:
        self.path = path


def folder_of(op: str, checkpoint_id: Any, storage: Any) -> str:
    """The folder that one of two arguments names. Raises DTypeError where none does."""
    if checkpoint_id is None:
        checkpoint_id = getattr(storage, "path", None)
    if checkpoint_id is None:
        raise norch.DTypeError(f"{op}(): takes a checkpoint_id, or a FileSystemWriter or FileSystemReader")
    return os.path.abspath(os.fsdecode(checkpoint_id))
