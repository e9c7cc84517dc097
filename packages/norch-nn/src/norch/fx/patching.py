"""Names and attributes that have other values while a function is traced."""

from __future__ import annotations

import builtins
import functools
import inspect
from collections.abc import Callable, Collection
from typing import Any, Self, TypeVar

from norch import nn

from .proxy import find_proxies

F = TypeVar("F")

_wrapped_fns_to_patch: dict[tuple[int, str], dict[str, Any]] = {}
_orig_module_call = nn.Module.__call__


def _orig_module_getattr(module: nn.Module, name: str) -> Any:
    return object.__getattribute__(module, name)


class _Patcher:
    """What is replaced through it is as before when `with` of it ends."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self._visited: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        while self._undo:
            self._undo.pop()()

    def patch(
        self, frame_dict: dict[str, Any], name: str, new_fn: Callable[..., Any], deduplicate: bool = True
    ) -> None:
        """Gives a name of a module another value."""
        if name in frame_dict:
            self._undo.append(functools.partial(frame_dict.__setitem__, name, frame_dict[name]))
        else:
            self._undo.append(functools.partial(frame_dict.__delitem__, name))
        frame_dict[name] = new_fn

    def patch_method(self, cls: type, name: str, new_fn: Callable[..., Any], deduplicate: bool = True) -> None:
        """Gives a class another method."""
        if name in vars(cls):
            self._undo.append(functools.partial(setattr, cls, name, vars(cls)[name]))
        else:
            self._undo.append(functools.partial(delattr, cls, name))
        setattr(cls, name, new_fn)

    def visit_once(self, thing: Any) -> bool:
        """Whether it is asked for this object for the first time."""
        is_new = id(thing) not in self._visited
        self._visited.add(id(thing))
        return is_new


def _autowrap_check(patcher: _Patcher, frame_dict: dict[str, Any], function_ids: Collection[int]) -> None:
    """Has those of a module's functions recorded that a tracer records without being asked."""
    if patcher.visit_once(frame_dict):
        for name, value in list(frame_dict.items()):
            if not name.startswith("_") and callable(value) and id(value) in function_ids:
                patcher.patch(frame_dict, name, _recorded(value))


def _patch_wrapped_functions(patcher: _Patcher) -> None:
    """Has the functions recorded that `wrap` was given."""
    for (_, name), names in list(_wrapped_fns_to_patch.items()):
        wrapped: Any = names.get(name, getattr(builtins, name, None))
        if wrapped is not None:
            patcher.patch(names, name, _recorded(wrapped))


def _recorded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is recorded where it is given proxies."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        proxies = find_proxies(args, kwargs)
        if not proxies:
            return function(*args, **kwargs)
        found = proxies[0].tracer.create_proxy("call_function", function, args, kwargs)
        found.node.meta["is_wrapped"] = True
        return found

    return call


def wrap(fn_or_name: F) -> F:
    """Has calls of a function of the calling module recorded as one step. Returns what it is given.

    fn_or_name: the function, as of a decorator, or its name; "len" and other names of Python's can be given too. It is
    called at the top level of a module. Raises RuntimeError for what is no function or name, NotImplementedError where
    it is called in a function.
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError("Unsupported type for global function! Must be either a callable or string name")
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__  # type: ignore[attr-defined]
    frame = inspect.currentframe()
    caller = frame.f_back if frame is not None else None
    if caller is None or caller.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    _wrapped_fns_to_patch[id(caller.f_globals), name] = caller.f_globals
    return fn_or_name
