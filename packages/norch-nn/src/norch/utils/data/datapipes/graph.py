"""What is set in all pipes of a graph: PyTorch's `torch.utils.data.graph_settings`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from .datapipe import IterDataPipe, MapDataPipe


def pipes_of(datapipe: Any) -> list[Any]:
    """The pipe and all that it is made of, each once."""
    found: dict[int, Any] = {}
    left = [datapipe]
    while left:
        pipe = left.pop()
        if id(pipe) not in found:
            found[id(pipe)] = pipe
            left += _pipes_in(tuple(vars(pipe).values()))
    return list(found.values())


def _pipes_in(value: Any) -> Iterator[Any]:
    if isinstance(value, IterDataPipe | MapDataPipe):
        yield value
    elif isinstance(value, list | tuple | set | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _pipes_in(part)


def apply_shuffle_settings(datapipe: Any, shuffle: bool | None = None) -> Any:
    """Has every pipe of the graph that shuffles do so, or not. Returns the pipe; None changes nothing.

    Warns where nothing shuffles and `shuffle` is True: the order is then the pipe's own.
    """
    if shuffle is None:
        return datapipe
    shufflers = [p for p in pipes_of(datapipe) if hasattr(type(p), "set_shuffle") and hasattr(type(p), "set_seed")]
    if shuffle and not shufflers:
        warnings.warn("shuffle=True: the data pipe has no shuffle(), its own order is kept", stacklevel=2)
    for pipe in shufflers:
        pipe.set_shuffle(shuffle)
    return datapipe
