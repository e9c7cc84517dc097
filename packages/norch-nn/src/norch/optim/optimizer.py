"""What all optimisers share: groups of parameters with their options, a state for each parameter, hooks."""

from __future__ import annotations

import copy
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from types import MappingProxyType
from typing import Any, ClassVar

import norch
from norch import switches
from norch.autograd import note_step
from norch.nn.hooks import Hook, RemovableHandle

Params = Iterable[norch.Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, norch.Tensor]]
ParamsT = Params
State = dict[str, Any]

required: Any = type("_Required", (), {"__repr__": lambda self: "<required parameter>"})()
"""As a default: the option has none, and each group must give it."""


_before_all: dict[int, Hook] = {}  # hooks of the steps of all optimisers
_after_all: dict[int, Hook] = {}


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """`hook(optimizer, args, kwargs)` is called before each step of every optimiser, and may return other (args,
    kwargs), until the result's `remove()`.
    """
    return RemovableHandle(_before_all, Hook(hook, False))


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """`hook(optimizer, args, kwargs)` is called after each step of every optimiser, until the result's `remove()`."""
    return RemovableHandle(_after_all, Hook(hook, False))


def _use_grad_for_differentiable(step: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates the `step` of an optimiser of one's own, as PyTorch's are: it is recorded with the option
    `differentiable` alone."""

    @wraps(step)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        with norch.set_grad_enabled(bool(self.defaults.get("differentiable", False))):
            return step(self, *args, **kwargs)

    return call


def _default_to_fused_or_foreach(params: Any, differentiable: bool, use_fused: bool = False) -> tuple[bool, bool]:
    """Whether optimisers of one's own that are written as PyTorch's take their paths `fused` and `foreach`: neither."""
    return False, False


class Optimizer(switches.Replayed):
    """Base of all optimisers. A subclass passes its options as `defaults` and defines `step`.

    `params`: an iterable of tensors, of (name, tensor), or of dicts `{"params": tensors, option: value}`, each a group
    with options of its own. `param_groups` may be changed between steps: `optimizer.param_groups[0]["lr"] = 0.01`.

    Raises DTypeError for a Tensor in place of an iterable and for a parameter that is not a Tensor; ValueError for no
    parameters, for results of ops that do not `retain_grad` and for a parameter that is in two groups. One that is
    twice in a group takes two steps at a time, with a warning, as in PyTorch.
    """

    param_groups: list[dict[str, Any]]
    state: defaultdict[Any, State]

    elementwise: ClassVar[bool] = True
    """Whether a step changes each element by its own gradient and state alone, so that a part of a parameter can be
    stepped on by itself, as `norch.distributed.optim.ZeroRedundancyOptimizer` does. A subclass may say it is not so."""

    _numbers: ClassVar[dict[str, Any]] = {}
    """What of a parameter's state are plain numbers, and their first values or the options that are those."""

    _before: Mapping[str, dict[int, Hook]] = MappingProxyType({})  # hooks by what they come before
    _after: Mapping[str, dict[int, Hook]] = MappingProxyType({})
    _repeats = False  # whether a group has a parameter twice
    _is_stepping = False
    _is_scheduled = False
    _opt_called = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            setattr(cls, "step", _with_hooks(cls.__dict__["step"]))  # noqa: B010

    def __init__(self, params: Params, defaults: dict[str, Any]) -> None:
        if isinstance(params, norch.Tensor):
            raise norch.DTypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, but got a "
                f"{type(params).__name__}"
            )
        self.defaults = defaults
        self.state = defaultdict(dict)
        self.param_groups = []
        groups: list[Any] = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        before = switches.fingerprint
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)
        switches.fingerprint = before  # no captured step knows an optimiser that is being made

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds `{"params": a tensor or an iterable of them, option: value}`; other options are the defaults.

        The dict itself becomes the group, as in PyTorch: what is changed in it later counts.
        """
        if not isinstance(param_group, dict) or "params" not in param_group:
            raise norch.DTypeError(f"param group must be a dict with a key 'params', got {param_group!r:.80}")
        params = param_group["params"]
        if isinstance(params, set):
            raise norch.DTypeError("optimizer parameters need an order, which a set does not have; use a list")
        params = [params] if isinstance(params, norch.Tensor) else list(params)
        names = [p[0] for p in params if isinstance(p, tuple)]
        if names and len(names) != len(params):
            raise ValueError(f"{len(names)} of {len(params)} parameters of a group have names; give all or none")
        params = [_parts(p[1] if names else p) for p in params]
        self._check_params(params)
        group = {**self.defaults, **param_group, "params": params}
        if names:
            group["param_names"] = names
        for other in self.param_groups:
            if ("param_names" in other) != ("param_names" in group):
                raise ValueError("some parameter groups have names and others have none; give all or none")
        for name, value in group.items():
            if value is required:
                raise ValueError(f"{type(self).__name__}: a parameter group gives no value of {name!r}, which it must")
        self._check(group)
        param_group.update(group)
        self.param_groups.append(param_group)
        switches.replaced(self, "param_groups")  # step() and zero_grad() do more from now on

    def _check_params(self, params: list[Any]) -> None:
        seen = {id(p) for group in self.param_groups for p in group["params"]}
        own: set[int] = set()
        for param in params:
            if not isinstance(param, norch.Tensor):
                raise norch.DTypeError(
                    f"optimizer can only optimize Tensors, but one of the params is {type(param).__name__}"
                )
            if not (param.is_leaf or param.retains_grad or self.defaults.get("differentiable")):
                raise ValueError(f"can't optimize a non-leaf Tensor: it is a result of {param.grad_fn}")
            if id(param) in seen:
                raise ValueError("a parameter is given to the optimizer twice, in two groups")
            own.add(id(param))
        if len(own) < len(params):
            self._repeats = True
            warnings.warn("a parameter is in its group twice: it takes two steps at a time", stacklevel=4)

    def _check(self, group: dict[str, Any]) -> None:
        """Raises for options that a group cannot have."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients of all parameters, or sets them to 0 where `set_to_none=False`."""
        for group in self.param_groups:
            for param in group["params"]:
                if set_to_none or param.grad is None:
                    param.zero_grad()
                else:
                    param.grad = norch.zeros_like(param.grad)

    # --- Steps ------------------------------------------------------------------------------------------------------

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Changes the parameters by their gradients. `closure` computes the loss again, and its result is returned.

        Raises NotImplementedError: subclasses have it.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define step()")

    def _evaluate(self, closure: Callable[[], Any] | None) -> Any:
        """What `closure` returns, called with recording on."""
        if closure is None:
            return None
        with norch.enable_grad():
            return closure()

    def _patch_step_function(self) -> None:
        """What PyTorch's subclasses call that skip `__init__`; hooks are called here without it."""

    # --- Hooks ------------------------------------------------------------------------------------------------------

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """`hook(optimizer, args, kwargs)` is called before each step; it may return other (args, kwargs)."""
        return self._register("_before", "step", hook, False)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """`hook(optimizer, args, kwargs)` is called after each step."""
        return self._register("_after", "step", hook, False)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """`hook(optimizer)` is called before `state_dict`."""
        return self._register("_before", "state_dict", hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """`hook(optimizer, state_dict)` is called after `state_dict`; it may return another one."""
        return self._register("_after", "state_dict", hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """`hook(optimizer, state_dict)` is called before `load_state_dict`; it may return another one."""
        return self._register("_before", "load_state_dict", hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """`hook(optimizer)` is called after `load_state_dict`."""
        return self._register("_after", "load_state_dict", hook, prepend)

    def _register(self, when: str, what: str, hook: Callable[..., Any], prepend: bool) -> RemovableHandle:
        hooks = self.__dict__.setdefault(when, {}).setdefault(what, {})
        return RemovableHandle(hooks, Hook(hook, False), prepend)

    def _has_step_hooks(self) -> bool:
        return "step" in self._before or "step" in self._after or bool(_before_all or _after_all)

    def _hooks(self, when: Mapping[str, dict[int, Hook]], what: str) -> list[Callable[..., Any]]:
        return [hook.function for hook in when.get(what, {}).values()]

    # --- State ------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """`{"state": {index: state}, "param_groups": [options with indices]}`: parameters are counted across groups.

        Its tensors are the optimiser's own; copy them to keep them as they are.
        """
        for hook in self._hooks(self._before, "state_dict"):
            hook(self)
        index: dict[int, int] = {}
        at = 0
        for group in self.param_groups:  # one that is in two groups has the number that it has in the first
            index = {id(p): i for i, p in enumerate(group["params"], at)} | index
            at += len(group["params"])
        groups = [{**group, "params": [index[id(p)] for p in group["params"]]} for group in self.param_groups]
        states = {
            index[id(p)] if isinstance(p, norch.Tensor) else p: dict(s) if isinstance(s, dict) else s
            for p, s in self.state.items()
        }
        found: dict[str, Any] = {"state": states, "param_groups": groups}
        for hook in self._hooks(self._after, "state_dict"):
            changed = hook(self, found)
            found = found if changed is None else changed
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over state and options from a `state_dict`; tensors are copied to the parameters' dtypes and devices.

        Raises ValueError, changing nothing, where the groups are not as many or not as long as this optimiser's.
        """
        state_dict = dict(state_dict)
        for hook in self._hooks(self._before, "load_state_dict"):
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        groups = state_dict["param_groups"]
        if len(groups) != len(self.param_groups):
            raise ValueError(
                f"loaded state dict has {len(groups)} parameter groups, the optimizer {len(self.param_groups)}"
            )
        for i, (theirs, ours) in enumerate(zip(groups, self.param_groups, strict=True)):
            if len(theirs["params"]) != len(ours["params"]):
                raise ValueError(
                    f"loaded state dict has {len(theirs['params'])} parameters in group {i}, the optimizer "
                    f"{len(ours['params'])}"
                )
        keys = [key for group in groups for key in group["params"]]
        params = dict(zip(keys, self._params(), strict=True))
        state: defaultdict[Any, State] = defaultdict(dict)
        for key, values in state_dict["state"].items():
            if key in params:
                state[params[key]] = {name: self._adopt(name, v, params[key]) for name, v in values.items()}
            else:
                state[key] = values
        groups = [
            {**self.defaults, **_names_of(ours), **copy.deepcopy(theirs), "params": ours["params"]}
            for theirs, ours in zip(groups, self.param_groups, strict=True)
        ]
        self.__setstate__({"state": state, "param_groups": groups})
        switches.moved()
        for hook in self._hooks(self._after, "load_state_dict"):
            hook(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Takes attributes: those of a copy, or `state` and `param_groups` of a loaded state. Subclasses add what an
        older state lacks."""
        self.__dict__.update(state)

    def _adopt(self, name: str, value: Any, param: norch.Tensor) -> Any:
        """A value of a loaded state: PyTorch keeps numbers as tensors, norch keeps them as numbers."""
        if name in self._numbers and value is not None:
            return int(value) if name == "step" else float(value)
        if isinstance(value, norch.Tensor):
            value = value.detach()
            if name == "step":  # a count, which a narrow dtype could not hold
                return value.clone()
            return value.to(param.device, param.dtype if value.is_floating_point() else None, copy=True)
        if isinstance(value, list | tuple):
            return type(value)([self._adopt("", v, param) for v in value])
        return value

    def _params(self) -> list[norch.Tensor]:
        return [param for group in self.param_groups for param in group["params"]]

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines += [""] * (i > 0) + [f"Parameter Group {i}"]
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join([*lines, ")"])


def _parts(param: Any) -> Any:
    """The real tensor of complex numbers, whose parts are stepped on each for itself, as PyTorch does; others as they
    are."""
    return norch.view_as_real(param) if getattr(param, "is_complex", bool)() else param


def _names_of(group: dict[str, Any]) -> dict[str, Any]:
    return {"param_names": group["param_names"]} if "param_names" in group else {}


def _with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(step)
    def call(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        if "param_groups" not in vars(self):  # one that wraps another, and is an Optimizer by name alone
            return step(self, *args, **kwargs)
        self._opt_called = True  # what schedulers ask for
        note_step(self.param_groups[0]["params"])
        if self._is_stepping or not self._has_step_hooks():
            return step(self, *args, **kwargs)
        self._is_stepping = True  # so that a step made of its base's runs them once
        try:
            for hook in [*[h.function for h in _before_all.values()], *self._hooks(self._before, "step")]:
                changed = hook(self, args, kwargs)
                if changed is not None:
                    if not (isinstance(changed, tuple) and len(changed) == 2):
                        raise TypeError(f"a step pre-hook must return None or (args, kwargs), got {changed!r}")
                    args, kwargs = changed
            result = step(self, *args, **kwargs)
            for hook in [*self._hooks(self._after, "step"), *[h.function for h in _after_all.values()]]:
                hook(self, args, kwargs)
            return result
        finally:
            self._is_stepping = False

    return switches.replayed(call)


Optimizer.step = _with_hooks(Optimizer.step)  # type: ignore[method-assign]
