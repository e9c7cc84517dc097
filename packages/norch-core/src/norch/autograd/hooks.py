"""Hooks of gradients: what users have called when a gradient is known or has been added to a leaf."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import ref

from .. import switches

if TYPE_CHECKING:
    from ..tensor import Tensor
    from .graph import Node


hooked: set[int] = set()
"""A number for each dict of hooks of leaves that is not empty: without any, backward passes count no uses."""


class LeafHooks(dict[int, Any]):
    """Hooks of one kind of a leaf, by number."""

    __slots__ = ()

    def __setitem__(self, number: int, hook: Any) -> None:
        super().__setitem__(number, hook)
        hooked.add(id(self))
        switches.moved()

    def pop(self, *args: Any) -> Any:
        hook = super().pop(*args)
        switches.moved()
        if not self:
            hooked.discard(id(self))
        return hook

    def __del__(self) -> None:
        hooked.discard(id(self))


class HooksOfLeaf(LeafHooks):
    """All hooks of a leaf. It holds those of the gradient, as the dict of any node does.

    before, done: those of its node, called with the tuple of its gradient, and in the end with an empty tuple and that.
    after: those called with the tensor, once the gradient has been added.
    """

    __slots__ = ("after", "before", "done")

    def __init__(self) -> None:
        self.before, self.after, self.done = LeafHooks(), LeafHooks(), LeafHooks()


class RemovableHandle:
    """What `register_hook` returns: `remove()` takes the hook away, as does leaving a `with` block.

    Classes that keep `hooks` of their own give no `hook`, and put it under the handle's `id`.
    """

    _next = 0

    def __init__(self, hooks: dict[int, Any], hook: Callable[..., Any] | None = None) -> None:
        RemovableHandle._next += 1
        self.id = RemovableHandle._next
        self._hooks = hooks
        if hook is not None:
            hooks[self.id] = hook

    def remove(self) -> None:
        self._hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


class Retained:
    """The hook that `retain_grad` sets. It does not keep its tensor alive."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = ref(tensor)

    def __call__(self, grad: Tensor) -> None:
        tensor = self.tensor()
        if tensor is not None:
            old = tensor._grad
            tensor._grad = grad if old is None else old + grad


def hooks_of(node: Node) -> Any:
    """The hooks of `node`, made if there are none yet."""
    if node.hooks is None:
        node.hooks = node.kind_of_hooks()
    return node.hooks


def call_hooks(hooks: dict[int, Any], value: Tensor) -> Tensor:
    for hook in list(hooks.values()):
        changed = hook(value)
        if changed is not None:
            value = changed
    return value
