"""Hooks of a recorded op: called with the gradients of its results and of its operands."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from .graph import Node, Output
from .hooks import RemovableHandle, hooks_of

AROUND = -2
"""The key, among a node's hooks, of those around it."""


class Around:
    """The hooks before and after one node. Among the hooks of its result it is one that changes nothing."""

    __slots__ = ("after", "before")

    def __init__(self) -> None:
        self.before: dict[int, Callable[..., Any]] = {}
        self.after: dict[int, Callable[..., Any]] = {}

    def __call__(self, grad: Any) -> None:
        return None


class _Gathered:
    """Stands for the backward pass to a node with hooks: takes the gradients of its operands, and hands none on."""

    def __init__(self, backward: Any, edges: tuple[Node | None, ...]) -> None:
        self.needed, self.create, self.retain, self.line = (
            backward.needed,
            backward.create,
            backward.retain,
            backward.line,
        )
        self.targets: dict[Any, Any] = {}  # so that nothing goes into leaves
        self.edges, self.at = edges, 0
        self.grads: list[Any] = [None] * len(edges)

    def add(self, edge: Node, value: Any) -> None:
        at = self.edges.index(edge, self.at)
        self.grads[at], self.at = value, at + 1

    def add_through_view(self, node: Node, edge: Node, value: Any) -> bool:
        return False


def around(node: Node) -> Around:
    """The hooks of a node, or of the node whose result it is, made if there are none yet."""
    if isinstance(node, Output):
        parent = node.edges[0]
        assert parent is not None
        return around(parent)
    hooks = hooks_of(node)
    if AROUND not in hooks:
        hooks[AROUND] = Around()
        kind: Any = type(node)
        node.__class__ = _with_hooks(kind)
    found: Around = hooks[AROUND]
    return found


@cache
def _with_hooks(kind: Any) -> Any:
    """The class of nodes of a kind that have hooks around them: others pay nothing for it."""

    def run_backward(self: Node, backward: Any, grad: Any) -> None:
        assert self.hooks is not None
        hooks, several = self.hooks[AROUND], type(grad) is list
        given = tuple(grad) if several else (grad,)
        for hook in list(hooks.before.values()):
            given = hook(given) or given
        gathered = _Gathered(backward, self.edges)
        kind.run_backward(self, gathered, list(given) if several else given[0])
        found = tuple(gathered.grads)
        for hook in list(hooks.after.values()):
            found = hook(found, given) or found
        for edge, value in zip(self.edges, found, strict=True):
            if edge is not None and value is not None:
                backward.add(edge, value)

    return type(kind.__name__, (kind,), {"__slots__": (), "run_backward": run_backward})


def before(node: Node, hook: Callable[..., Any]) -> RemovableHandle:
    return RemovableHandle(around(node).before, hook)


def after(node: Node, hook: Callable[..., Any]) -> RemovableHandle:
    return RemovableHandle(around(node).after, hook)
