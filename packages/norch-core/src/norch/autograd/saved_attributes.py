"""The attributes of nodes that give what these have saved, by PyTorch's names. What they do is `saved_names`'."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from .graph import Node

SAVED = "_saved_"
"""What the names begin with."""

SIZES = ("_sym_sizes", "_sizes")
"""What follows a parameter's name where its shape is meant."""


class _Saved:
    """An attribute. With a `__getattr__` of nodes Python would look up all of theirs in a slower way."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, node: Node | None, owner: type | None = None) -> Any:
        return self if node is None else import_module("norch.autograd.saved_names").saved(node, self.name)


def name_saved(params: Iterable[str]) -> None:
    """Has nodes give what they have saved of an op's parameters, and the shapes of these."""
    for param in params:
        for name in (SAVED + param, *[SAVED + param + suffix for suffix in SIZES]):
            if name not in Node.__dict__:
                setattr(Node, name, _Saved(name))


name_saved(("self", "other", "exponent", "mat2", "result", "output"))
