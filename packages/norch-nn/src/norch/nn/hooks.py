"""Functions that a user hangs on a module: on its call, its backward pass, its state."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, MutableMapping
from copy import copy
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

import norch
from norch import switches

H = TypeVar("H")

_next_id = count().__next__


class RemovableHandle:
    """What registering a hook returns: `remove()` takes the hook away, as does leaving a `with` block."""

    def __init__(self, hooks: dict[int, Any], hook: Any, prepend: bool = False) -> None:
        self.id = _next_id()
        self._hooks = hooks
        later = list(hooks.items()) if prepend else []
        for key, _ in later:
            del hooks[key]
        hooks[self.id] = hook
        hooks.update(later)
        switches.switched(None, "hook", None, self.id)

    def remove(self) -> None:
        if self._hooks.pop(self.id, None) is not None:
            switches.switched(None, "hook", self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


@dataclass
class Hook:
    """A hook, whether it wants the keyword arguments of the call, and whether it runs where the call raised too."""

    function: Callable[..., Any]
    with_kwargs: bool = False
    always_call: bool = False
    replaces: bool = False
    """Of a hook of `state_dict`: whether what it returns is taken in the place of the dict."""
    with_module: bool = True
    """Of a hook before `load_state_dict`: whether it is given the module."""


@dataclass
class ModuleHooks:
    """All hooks of a module, by what they are called for."""

    forward_pre: dict[int, Hook] = field(default_factory=dict)
    forward: dict[int, Hook] = field(default_factory=dict)
    backward_pre: dict[int, Hook] = field(default_factory=dict)
    backward: dict[int, Hook] = field(default_factory=dict)
    state_pre: dict[int, Hook] = field(default_factory=dict)
    state: dict[int, Hook] = field(default_factory=dict)
    load_pre: dict[int, Hook] = field(default_factory=dict)
    load: dict[int, Hook] = field(default_factory=dict)
    compiled: Any = None
    """What is called in the place of a module that `Module.compile` was called of."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "compiled": None}


class Registered(MutableMapping[int, Callable[..., Any]]):
    """Hooks of a kind as the dict that PyTorch's modules keep: `module._forward_pre_hooks`."""

    def __init__(self, module: Hookable, kind: str) -> None:
        self._module, self._kind = module, kind

    def _own(self) -> dict[int, Hook]:
        hooks = self._module._hooks
        own: dict[int, Hook] = {} if hooks is None else getattr(hooks, self._kind)
        return own

    def __getitem__(self, key: int) -> Callable[..., Any]:
        return self._own()[key].function

    def __setitem__(self, key: int, function: Callable[..., Any]) -> None:
        getattr(self._module._all_hooks(), self._kind)[key] = Hook(function)
        switches.switched(None, "hook", None, key)

    def __delitem__(self, key: int) -> None:
        del self._own()[key]
        switches.switched(None, "hook", key, None)

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._own()))

    def __len__(self) -> int:
        return len(self._own())

    def __repr__(self) -> str:
        return repr(dict(self))


class Hookable:
    """The part of Module that takes hooks. `_hooks` is None until there has been one."""

    _hooks: ModuleHooks | None

    # As scripts know them from PyTorch.
    _forward_pre_hooks = property(lambda self: Registered(self, "forward_pre"))
    _forward_hooks = property(lambda self: Registered(self, "forward"))
    _backward_pre_hooks = property(lambda self: Registered(self, "backward_pre"))
    _backward_hooks = property(lambda self: Registered(self, "backward"))
    _state_dict_pre_hooks = property(lambda self: Registered(self, "state_pre"))
    _state_dict_hooks = property(lambda self: Registered(self, "state"))
    _load_state_dict_pre_hooks = property(lambda self: Registered(self, "load_pre"))
    _load_state_dict_post_hooks = property(lambda self: Registered(self, "load"))

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Calls `hook(module, args)` before `forward`; what it returns, if anything, becomes the arguments.

        With `with_kwargs` it is `hook(module, args, kwargs)`, which returns None or `(args, kwargs)`.
        """
        return RemovableHandle(self._all_hooks().forward_pre, Hook(hook, with_kwargs), prepend)

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Calls `hook(module, args, output)` after `forward`; what it returns, if anything, replaces the output.

        With `with_kwargs` it is `hook(module, args, kwargs, output)`; with `always_call` also, with None for output,
        where the call has raised.
        """
        return RemovableHandle(self._all_hooks().forward, Hook(hook, with_kwargs, always_call), prepend)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Calls `hook(module, grad_output)` before the gradients of the inputs are found.

        grad_output: a tuple with an entry for each output, those in a list or a dict too. What the hook returns, if
        anything, replaces it.
        """
        return RemovableHandle(self._all_hooks().backward_pre, Hook(hook), prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Calls `hook(module, grad_input, grad_output)` when the gradients of the inputs are known.

        Each is a tuple, grad_input with an entry for each positional argument, None where no gradient is wanted. What
        the hook returns, if anything, replaces grad_input.
        """
        return RemovableHandle(self._all_hooks().backward, Hook(hook), prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """`register_full_backward_hook`, under the name of what it replaces in PyTorch."""
        return self.register_full_backward_hook(hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls `hook(module, prefix, keep_vars)` before `state_dict` gathers this module's tensors."""
        return RemovableHandle(self._all_hooks().state_pre, Hook(hook))

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls `hook(module, state_dict, prefix, {})` once `state_dict` has this module's tensors; it returns None."""
        return RemovableHandle(self._all_hooks().state, Hook(hook))

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """`register_state_dict_post_hook` of a hook that may return another dict."""
        return RemovableHandle(self._all_hooks().state, Hook(hook, replaces=True))

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls `hook(module, state_dict, prefix, {}, strict, missing_keys, unexpected_keys, error_msgs)` first.

        It may change the dict, which is a copy, and the lists.
        """
        return RemovableHandle(self._all_hooks().load_pre, Hook(hook))

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], with_module: bool = False
    ) -> RemovableHandle:
        """`register_load_state_dict_pre_hook` of a hook that is not given the module, unless `with_module`."""
        return RemovableHandle(self._all_hooks().load_pre, Hook(hook, with_module=with_module))

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls `hook(module, incompatible_keys)` before the keys are judged; it may change their lists."""
        return RemovableHandle(self._all_hooks().load, Hook(hook))

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """For classes that load what others have saved: called first, it may change the dict, which is a copy, and the
        lists. What is then under the module's own names, behind `prefix`, is loaded. Where a class does not call this
        one, none of its names has to be there, and others behind `prefix` are its own affair.
        """
        if hasattr(local_metadata, "reached"):  # LocalMetadata of norch.nn.state
            local_metadata.reached = True

    def _all_hooks(self) -> ModuleHooks:
        hooks = self._hooks
        if hooks is None:
            hooks = self.__dict__["_hooks"] = ModuleHooks()  # which is no change; its hooks are
        return hooks


everywhere = ModuleHooks()
"""The hooks of all modules, which `global_hooks` registers."""


def find_pre_hook(module: Any, kind: type[H], name: str) -> H | None:
    """The forward pre-hook of that class whose `name` it is."""
    for hook in () if module._hooks is None else module._hooks.forward_pre.values():
        if isinstance(hook.function, kind) and hook.function.name == name:  # type: ignore[attr-defined]
            return hook.function
    return None


_TALKING = ("norch.nn.parallel.", "norch.nn.sync_batchnorm", "norch.distributed.")


def runs_as_it_is(module: Any) -> bool:
    """Whether a call does more than compute, which replays would leave out: it has hooks of users on its call or its
    backward pass (those of norch compute and no more), or it talks to other processes."""
    if any(f"{getattr(kind, '__module__', '')}.".startswith(_TALKING) for kind in type(module).__mro__):
        return True
    all_hooks = [hooks for hooks in (module._hooks, everywhere) if hooks is not None]
    kinds = [kind for h in all_hooks for kind in (h.forward_pre, h.forward, h.backward_pre, h.backward)]
    functions = [getattr(hook.function, "__func__", hook.function) for kind in kinds for hook in kind.values()]
    made = [getattr(f, "__module__", None) or "" for f in functions]
    return any(name.partition(".")[0] != "norch" or name.startswith(_TALKING) for name in made)


class PlainCall:
    """A module's call with its hooks, as it is before `Module.compile`."""

    def __init__(self, module: Any) -> None:
        self.module, self.source = module, module.forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _call_with_hooks(self.module, self.module._all_hooks(), args, kwargs)


def call_with_hooks(module: Any, hooks: ModuleHooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`module.forward(*args, **kwargs)` with every hook in its turn. A hook may remove itself."""
    compiled = hooks.compiled
    if compiled is not None:
        if any(runs_as_it_is(part) for part in module.modules()):
            return _call_with_hooks(module, hooks, args, kwargs)
        return compiled(*args, **kwargs)
    return _call_with_hooks(module, hooks, args, kwargs)


def _call_with_hooks(module: Any, hooks: ModuleHooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not any(hook.always_call for hook in hooks.forward.values()):
        return _call(module, hooks, args, kwargs, set())
    called: set[int] = set()
    try:
        return _call(module, hooks, args, kwargs, called)
    except Exception:
        for key, hook in tuple(hooks.forward.items()):
            if hook.always_call and key not in called:
                try:
                    _after(hook, module, args, kwargs, None)
                except Exception as error:
                    warnings.warn(f"a forward hook with always_call raised {error!r} itself", stacklevel=3)
        raise


def _call(module: Any, hooks: ModuleHooks, args: tuple[Any, ...], kwargs: dict[str, Any], called: set[int]) -> Any:
    for hook in tuple(hooks.forward_pre.values()):
        if hook.with_kwargs:
            changed = hook.function(module, args, kwargs)
            if changed is not None:
                if not (isinstance(changed, tuple) and len(changed) == 2):
                    raise TypeError(
                        f"a forward pre-hook with kwargs must return None or (args, kwargs), got {changed!r}"
                    )
                args, kwargs = changed
        else:
            changed = hook.function(module, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
    passage = None
    if (hooks.backward or hooks.backward_pre) and norch.is_grad_enabled():
        passage = _Passage(module, hooks)
        args = passage.enter(args)
    result = module.forward(*args, **kwargs)
    for key, hook in tuple(hooks.forward.items()):
        called.add(key)
        changed = _after(hook, module, args, kwargs, result)
        if changed is not None:
            result = changed
    return result if passage is None else passage.leave(result)


def _after(hook: Hook, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    if hook.with_kwargs:
        return hook.function(module, args, kwargs, result)
    return hook.function(module, args, result)


# --- The backward pass ----------------------------------------------------------------------------------------------


class _Gate(norch.autograd.Function):
    """Tensors as they are; in the backward pass their gradients go through `change`."""

    @staticmethod
    def forward(ctx: Any, change: Callable[[tuple[Any, ...]], tuple[Any, ...]], *tensors: norch.Tensor) -> Any:
        ctx.change = change
        ctx.set_materialize_grads(False)
        return tensors

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (None, *ctx.change(grads))


class _Passage:
    """One call of a module whose backward pass has hooks: what enters and leaves goes through a gate."""

    def __init__(self, module: Any, hooks: ModuleHooks) -> None:
        self.module = module
        self.before = tuple(h.function for h in hooks.backward_pre.values())
        self.after = tuple(h.function for h in hooks.backward.values())
        self.places: list[int] = []
        self.size = 0
        self.outputs: list[int] = []
        self.output_size = 0
        self.grad_output: tuple[Any, ...] | None = None

    def enter(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        self.size = len(args)
        self.places = [i for i, a in enumerate(args) if isinstance(a, norch.Tensor) and a.requires_grad]
        return _through(args, self.places, self._to_inputs)

    def leave(self, result: Any) -> Any:
        if isinstance(result, dict):
            keys = list(result)
            passed = self._leave(tuple(result.values()))
            changed = copy(result) if self.outputs else result
            for i in self.outputs:
                changed[keys[i]] = passed[i]
            return changed
        if isinstance(result, tuple):
            return self._leave(result)
        return list(self._leave(tuple(result))) if type(result) is list else self._leave((result,))[0]

    def _leave(self, results: tuple[Any, ...]) -> tuple[Any, ...]:
        self.output_size = len(results)
        self.outputs = [i for i, r in enumerate(results) if isinstance(r, norch.Tensor) and r.requires_grad]
        return _through(results, self.outputs, self._to_outputs)

    def _to_outputs(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        found = _placed(grads, self.outputs, self.output_size)
        for hook in self.before:
            found = _replaced(found, hook(self.module, found), "backward pre-hook", "grad_output")
        self.grad_output = found
        if not self.places:  # no gradient will come to the inputs
            none = (None,) * self.size
            for hook in self.after:
                if hook(self.module, none, found) is not None:
                    raise RuntimeError("a backward hook of a module whose inputs need no gradient must return None")
        return tuple(found[i] for i in self.outputs)

    def _to_inputs(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        if self.grad_output is None:  # the module's result was not what was differentiated
            return grads
        found = _placed(grads, self.places, self.size)
        for hook in self.after:
            found = _replaced(found, hook(self.module, found, self.grad_output), "backward hook", "grad_input")
        self.grad_output = None
        return tuple(found[i] for i in self.places)


def _through(values: tuple[Any, ...], places: list[int], change: Any) -> tuple[Any, ...]:
    if not places:
        return values
    passed = list(values)
    for i, tensor in zip(places, _Gate.apply(change, *[values[i] for i in places])):
        passed[i] = tensor
    kind = type(values)
    return tuple(passed) if kind is tuple else kind(*passed)  # a named tuple stays one


def _placed(grads: tuple[Any, ...], places: list[int], size: int) -> tuple[Any, ...]:
    found: list[Any] = [None] * size
    for i, grad in zip(places, grads):
        found[i] = grad
    return tuple(found)


def _replaced(found: tuple[Any, ...], changed: Any, kind: str, what: str) -> tuple[Any, ...]:
    if changed is None:
        return found
    new = changed if isinstance(changed, tuple) else (changed,)
    if len(new) != len(found):
        raise RuntimeError(f"a {kind} must return None or as many {what} as it got: {len(found)}, not {len(new)}")
    return new
