"""Which nodes of the graph, changes in place and backward passes know the line of the program that made them.

To find the line takes as long as to record a small op. So that errors, which mostly come in the first steps of a
program, name lines without being asked, the first nodes know theirs. Then call paths go back to plain nodes, and pay
nothing. Generated code finds the class of its nodes among its globals, which are changed here.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Any
from weakref import WeakSet

from ..source_lines import Line, here
from . import graph
from .graph import Node

EARLY = 10_000
"""How many nodes and changes in place know their line where a program says nothing of it: some milliseconds in all."""


class LinedNode(Node):
    """A node that knows the line that recorded it."""

    __slots__ = ("line",)

    line: Line | None

    def __init__(self) -> None:
        self.line = here(2)


class InnerNode(LinedNode):
    """The same, where a line of norch-nn counts."""

    __slots__ = ()

    def __init__(self) -> None:
        self.line = here(2, inner=True)


class EarlyNode(LinedNode):
    """One of the first nodes of a program."""

    __slots__ = ()

    def __init__(self) -> None:
        self.line = here(2)
        _count()


class LentNode(LinedNode):
    """One that knows its line for the sake of `growth`, which nobody asked for."""

    __slots__ = ()


def _line() -> Line | None:
    return here(2)


def _inner_line() -> Line | None:
    return here(2, inner=True)


def _early_line() -> Line | None:
    _count()
    return here(2)


_left = EARLY
_lock = RLock()
_paths: WeakSet[Callable[..., Any]] = WeakSet()
_names: dict[str, Any] = {}
_chosen: type[Node] = Node
_packers = 0
_packing: dict[type[Node], type[Node]] = {}


def _count() -> None:
    global _left
    _left -= 1
    if _left <= 0 and _chosen is EarlyNode:
        _choose(Node, None)


def pack(mixin: type[Node], by: int) -> None:
    """Counts the contexts of `saved_tensors_hooks`: while there are some, nodes are of the class `mixin` too."""
    global _packers
    with _lock:
        _packers += by
        for kind in (Node, LinedNode, InnerNode, EarlyNode, LentNode) if not _packing else ():
            _packing[kind] = type(f"Packing{kind.__name__}", (mixin, kind), {})
        if _packers == max(by, 0):  # the first has come, or the last has gone
            _choose(_chosen, graph.line_of_change)


def _choose(kind: type[Node], line: Callable[[], Line | None] | None) -> None:
    global _chosen
    with _lock:
        _chosen = kind
        node_class = _packing[kind] if _packers else kind
        graph.node_class = node_class
        graph.line_of_change = line
        _names.update(_Node=node_class, _line=line)
        for path in tuple(_paths):
            path.__globals__.update(_names)


_choose(EarlyNode, _early_line)


def names_for(path: Callable[..., Any]) -> dict[str, Any]:
    """What a call path is to have among its globals: `_Node()` makes a node, `_line()` tells the line of a change in
    place or is None. It gets others when they change."""
    with _lock:
        _paths.add(path)
        return _names


def lend() -> None:
    """Has lines noted, where they are not, until `take_back()`."""
    if _chosen is Node:
        _choose(LentNode, _line)


def take_back() -> None:
    if _chosen is LentNode:
        _choose(Node, None)


class record_lines:
    """Whether (`mode`) recorded ops, changes in place and backward passes note the line of the program that made them:
    at once, and as a context manager until its end. Nodes tell it as `Node.line`, and errors show it.

    It takes 0.3 to 1.5 us an op. Where this is not called, the first 10,000 do. inner: a line of norch-nn counts;
    otherwise it is the one that called the layer.
    """

    def __init__(self, mode: bool = True, inner: bool = False) -> None:
        take_back()
        self._before = _chosen, graph.line_of_change
        if mode:
            _choose(*((InnerNode, _inner_line) if inner else (LinedNode, _line)))
        else:
            _choose(Node, None)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        _choose(*self._before)
