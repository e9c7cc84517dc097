"""Modules that PyTorch pickled: their registries, as ours."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import norch

from .parameter import Parameter

if TYPE_CHECKING:
    from .module import Module

_REGISTRIES = ("_parameters", "_buffers", "_modules")
_HOOKS = {
    "_forward_hooks": "register_forward_hook",
    "_forward_pre_hooks": "register_forward_pre_hook",
    "_backward_hooks": "register_full_backward_hook",
    "_backward_pre_hooks": "register_full_backward_pre_hook",
}
_INTERNAL = {
    *_REGISTRIES, *_HOOKS, "_non_persistent_buffers_set", "_is_full_backward_hook", "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs", "_state_dict_hooks", "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
}  # fmt: skip


def is_pytorch(state: Any) -> bool:
    """Whether a pickled state is that of a module of PyTorch."""
    return isinstance(state, dict) and all(isinstance(state.get(name), dict) for name in _REGISTRIES)


def with_registries(module: Module, state: Any) -> Any:
    """A module's state with its registries, as PyTorch's has them, for a class that takes entries out of them."""
    return (
        {**state, **{name: dict(getattr(module, name)) for name in _REGISTRIES}} if isinstance(state, dict) else state
    )


def has_registries(state: Any) -> bool:
    """Whether it is a state of `with_registries`."""
    return is_pytorch(state) and "_module_names" in state


def by_registries(state: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a module with what the registries of `with_registries` have by now."""
    own = {name: value for name, value in state.items() if name not in _REGISTRIES}
    for registry in _REGISTRIES:
        names, kept = f"{registry[:-1]}_names", state[registry]
        for name in own[names]:
            own.pop(name, None)
        own[names] = {name: own[names].get(name, True) for name in kept}
        own.update(kept)
    return own


def adopt(module: Module, state: dict[str, Any]) -> None:
    """Gives an empty module the attributes, parameters, buffers, children and hooks of a pickled one."""
    own = module.__dict__
    own.update({name: value for name, value in state.items() if name not in _INTERNAL})
    for name, value in state["_parameters"].items():
        known = value if value is None or isinstance(value, Parameter) else Parameter(value)
        module._register("_parameter_names", name, known)
    passing = state.get("_non_persistent_buffers_set", ())
    for name, value in state["_buffers"].items():
        module._register("_buffer_names", name, value, name not in passing)
    for name, value in state["_modules"].items():
        module._register("_module_names", name, value)
    for name, option in getattr(type(module), "_fields", {}).items():
        if name not in own and option.default is not option.empty and not option.annotation.startswith("InitVar"):
            own[name] = option.default  # which PyTorch, or an older version of it, does not have
    for registry, register in _HOOKS.items():
        wanting = state.get(f"{registry}_with_kwargs", ())
        for key, hook in (state.get(registry) or {}).items():
            getattr(module, register)(hook, **({"with_kwargs": True} if key in wanting else {}))
    if any(state.get(name) for name in ("_state_dict_hooks", "_load_state_dict_pre_hooks")):
        raise norch.CheckpointError(
            f"{type(module).__name__}: it has hooks on its state_dict, which norch's do not fit; where PyTorch is "
            "installed, save its state_dict() and load that into a model of norch"
        )


def adopting(setstate: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """The `__setstate__` of a class of one's own, which gets the attributes alone of what PyTorch pickled: it may put
    them into the `__dict__`, where PyTorch's modules have their registries too."""

    @wraps(setstate)
    def call(module: Any, state: Any) -> None:
        if is_pytorch(state) and not has_registries(state):
            module._adopt(state)
            state = {name: value for name, value in state.items() if name not in _INTERNAL}
        setstate(module, state)

    return call
