"""Hooks of all modules at once, under the names of `torch.nn.modules.module`. While there are any, every call asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from .hooks import Hook, ModuleHooks, RemovableHandle, call_with_hooks, everywhere
from .module import Module
from .registry import (
    _global_buffer_registration_hooks,
    _global_module_registration_hooks,
    _global_parameter_registration_hooks,
    uninitialised,
)

_KINDS = ("forward_pre", "forward", "backward_pre", "backward")
_PLAIN_CALL: Any = Module.__call__


def _call(self: Module, *args: Any, **kwargs: Any) -> Any:
    """A module's call with the hooks of all modules, and then its own."""
    try:
        own = self._hooks or ModuleHooks()
    except AttributeError:
        raise uninitialised(self) from None
    both = ModuleHooks(**{f.name: getattr(own, f.name) for f in fields(own)})
    for kind in _KINDS:
        setattr(both, kind, {**getattr(everywhere, kind), **getattr(own, kind)})
    return call_with_hooks(self, both, args, kwargs)


def _choose_call() -> None:
    Module.__call__ = _call if any(getattr(everywhere, kind) for kind in _KINDS) else _PLAIN_CALL  # type: ignore[method-assign]


class _Handle(RemovableHandle):
    """What registering a hook of all modules returns."""

    def __init__(self, kind: str, hook: Hook) -> None:
        super().__init__(getattr(everywhere, kind), hook)
        _choose_call()

    def remove(self) -> None:
        super().remove()
        _choose_call()


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Has `hook(module, args)` called before the forward pass of every module."""
    return _Handle("forward_pre", Hook(hook))


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Has `hook(module, args, output)` called after the forward pass of every module.

    with_kwargs, always_call: as those of `Module.register_forward_hook`.
    """
    return _Handle("forward", Hook(hook, with_kwargs, always_call))


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Has `hook(module, grad_output)` called before the backward pass of every module."""
    return _Handle("backward_pre", Hook(hook))


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Has `hook(module, grad_input, grad_output)` called after the backward pass of every module."""
    return _Handle("backward", Hook(hook))


def register_module_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """`register_module_full_backward_hook`, under the name of what it replaces in PyTorch."""
    return register_module_full_backward_hook(hook)


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Has `hook(module, name, param)` called for each parameter that a module registers, of which it may give another.

    The result's `remove()` ends that.
    """
    return RemovableHandle(_global_parameter_registration_hooks, hook)


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """`register_module_parameter_registration_hook` for buffers: `hook(module, name, buffer)`."""
    return RemovableHandle(_global_buffer_registration_hooks, hook)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """`register_module_parameter_registration_hook` for children: `hook(module, name, submodule)`."""
    return RemovableHandle(_global_module_registration_hooks, hook)
