"""Which modules are at work: PyTorch's `torch.utils.module_tracker`, by which counters of operations name layers."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakKeyDictionary

import norch

from ._pytree import tree_leaves

if TYPE_CHECKING:
    from norch import nn


class ModuleTracker:
    """Within `with`, `parents` holds the names of the modules that are computing, in forward and backward passes.

    A name is the path from the outermost module, whose class begins it: "Sequential.0"; of several paths it is the
    last. "Global" is always among them. In a backward pass a module is at work from the gradients of what it returned
    to those of its arguments.
    """

    parents: set[str]

    def __init__(self) -> None:
        self.parents = {"Global"}
        self._names: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()
        self._hooks: list[Any] = []
        self._handles: list[Any] = []
        self._is_backward = False

    @property
    def is_bw(self) -> bool:
        """Whether modules are tracked through a backward pass now."""
        return self._is_backward

    def __enter__(self) -> Self:
        hooks = import_module("norch.nn.global_hooks")  # which stands beside this package
        self._handles = [
            hooks.register_module_forward_pre_hook(self._fw_pre_hook),
            hooks.register_module_forward_hook(self._fw_post_hook, always_call=True),
        ]
        return self

    def __exit__(self, *error: object) -> None:
        for handle in (*self._handles, *self._hooks):
            handle.remove()
        self._handles.clear()
        self._hooks.clear()
        self._leave_backward()

    # --- What subclasses of programs change, by PyTorch's names -----------------------------------------------------

    def _get_mod_name(self, mod: nn.Module) -> str:
        if mod not in self._names:
            self._name(mod, type(mod).__name__)
        return self._names[mod]

    def _name(self, mod: nn.Module, name: str) -> None:
        known = mod in self._names
        self._names[mod] = name
        for part, below in () if known else mod.named_children():
            self._name(below, f"{name}.{part}")

    def _get_append_fn(self, mod: nn.Module, name: str, is_bw: bool) -> Callable[..., None]:
        def append(*_: Any) -> None:
            if is_bw:
                self._maybe_set_engine_callback()
            self.parents.add(name)

        return append

    def _get_pop_fn(self, mod: nn.Module, name: str, is_bw: bool) -> Callable[..., None]:
        return lambda *_: self.parents.discard(name)

    def _maybe_set_engine_callback(self) -> None:
        if not self._is_backward:
            self._is_backward = True
            norch.autograd.Variable._execution_engine.queue_callback(self._leave_backward)

    def _leave_backward(self) -> None:
        self.parents, self._is_backward = {"Global"}, False

    def _fw_pre_hook(self, mod: nn.Module, input: Any) -> None:
        name = self._get_mod_name(mod)
        self._get_append_fn(mod, name, False)()
        self._in_backward(input, self._get_pop_fn(mod, name, True))

    def _fw_post_hook(self, mod: nn.Module, input: Any, output: Any) -> None:
        name = self._get_mod_name(mod)
        self._get_pop_fn(mod, name, False)()
        self._in_backward(output, self._get_append_fn(mod, name, True))

    def _in_backward(self, values: Any, call: Callable[..., None]) -> None:
        tensors = [x for x in tree_leaves(values) if isinstance(x, norch.Tensor) and x.requires_grad]
        if tensors and norch.is_grad_enabled():
            self._hooks.append(norch.autograd.graph.register_multi_grad_hook(tensors, call))
