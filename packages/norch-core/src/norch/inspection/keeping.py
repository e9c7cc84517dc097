"""A forward pass that leaves no trace: modes, attributes, buffers and random numbers are afterwards what they were."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import OutOfMemoryError
from ..ops.copying import write
from ..ops.generator import generators
from ..spec import Spec
from .layers import tensors

_CONTAINERS = (dict, list, set)


@contextmanager
def kept(modules: list[Any]) -> Iterator[None]:
    """What happens within this context to the modules and to random numbers is undone at its end."""
    attributes = [(m, dict(m.__dict__), _contents(m.__dict__)) for m in modules]
    tensors = [_Kept(tensor) for tensor in _buffers(modules)]
    modes = [(m, m.training) for m in modules if "training" in m.__dict__]
    randomness = _randomness()
    try:
        yield
    finally:
        for tensor in tensors:
            tensor.restore()
        for module, mode in modes:
            if module.training is not mode:
                module.training = mode  # not by its dict: captured steps are told of modes
        for module, values, contents in attributes:
            module.__dict__.clear()
            module.__dict__.update(values)
            for container, copy in contents:
                _refill(container, copy)
        _restore_randomness(randomness)


class _Kept:
    """A tensor's place and values."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self.place = tensor.spec, tensor.buffer, tensor.offset, tensor.node, tensor.base
        self.modified = tensor.buffer.modified
        try:
            self.values = None if tensor.spec.device.is_meta else tensor.detach().clone()
        except OutOfMemoryError:  # of a GPU
            self.values = tensor.detach().cpu()

    def restore(self) -> None:
        tensor = self.tensor
        tensor.spec, tensor.buffer, tensor.offset, tensor.node, tensor.base = self.place
        if tensor.buffer.modified is not self.modified:
            if self.values is not None:
                write(tensor.detach(), self.values.to(tensor.device))
            tensor.buffer.modified = self.modified


def _buffers(modules: list[Any]) -> list[Any]:
    """The tensors that a forward pass may change: all but parameters."""
    found: dict[int, Any] = {}
    for module in modules:
        parameters = {id(p) for p in module.parameters()}
        for value in module.__dict__.values():
            for x in tensors(value):
                if type(x.spec) is Spec and id(x) not in parameters:
                    found[id(x)] = x
    return list(found.values())


def _contents(attributes: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Copies of what containers among the attributes hold."""
    return [(value, value.copy()) for value in attributes.values() if type(value) in _CONTAINERS]


def _refill(container: Any, copy: Any) -> None:
    if type(container) is list:
        container[:] = copy
    else:
        container.clear()
        container.update(copy)


def _randomness() -> list[tuple[Any, Any]]:
    """What sets the state of each source of random numbers, and the state."""
    own = [g for known in tuple(generators) if (g := known()) is not None and hasattr(g, "_draws")]
    found: list[tuple[Any, Any]] = [(g, g._state()) for g in own]
    for name, get, put in (("random", "getstate", "setstate"), ("numpy.random", "get_state", "set_state")):
        module = sys.modules.get(name)
        if module is not None:
            found.append((getattr(module, put), getattr(module, get)()))
    return found


def _restore_randomness(states: list[tuple[Any, Any]]) -> None:
    for source, state in states:
        if not hasattr(source, "_draws"):
            source(state)
        elif source._state() != state:
            source.set_state(state)
