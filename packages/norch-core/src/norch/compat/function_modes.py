"""PyTorch's `TorchFunctionMode`: a context that is asked for all public functions that are called within it.

Functions stay the objects that they are, so that a mode can compare them: while a thread is in such a context their
code is exchanged for that of `_template`, whose constant is the hook of the function. Outside of it that costs nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from threading import Lock, local
from types import CodeType, FunctionType
from typing import Any, Self

from ..overriding import is_inside, overriding
from ..overriding_methods import CALLED
from ..tensor import Tensor

ROOT = __name__.partition(".")[0]


class _Thread(local):
    def __init__(self) -> None:
        self.modes: list[Any] = []


_thread = _Thread()
_lock = Lock()
_count = 0

_PLACES = ("", "nn.functional", "nn.init", "linalg", "special", "fft")
_PARTS = "compat dispatch fft linalg nn.functional nn.init ops plugin_ops sparse special special_functions spectral"
_HOMES = tuple([f"{ROOT}.{part}." for part in (*_PARTS.split(), "tensor")])
_UNASKED = frozenset(
    "is_tensor is_storage manual_seed seed initial_seed get_rng_state set_rng_state fork_rng set_printoptions "
    "get_default_dtype set_default_dtype compile __init__ __new__ __hash__ __init_subclass__ __torch_function__ "
    "__class_getitem__ __reduce_ex__ __deepcopy__ as_subclass _make_subclass calculate_gain".split()
)
"""What PyTorch asks nobody for either."""


class TorchFunctionMode:
    """Within `with` of an object of a subclass, its `__torch_function__` gives what public functions of norch, methods
    and operators of tensors give in this thread, those without tensors too.

    `__torch_function__(func, types, args, kwargs)` is called with the mode off, so that `func(*args, **kwargs)` is what
    there would be without it; of nested modes the inner one is asked first. Functions that norch itself calls within
    another are not asked for. Attributes, such as `x.shape`, are never asked for, and a captured step that is replayed
    calls no function.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Raises NotImplementedError: a subclass says what it gives."""
        raise NotImplementedError(f"{type(self).__name__} defines no __torch_function__")

    def __enter__(self) -> Self:
        _push(self)
        return self

    def __exit__(self, *error: object) -> None:
        _pop()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Self:
        """An object of the class, to be entered."""
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that changes nothing."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """What `func` gives."""
        return func(*args, **(kwargs or {}))


def is_mode_on() -> bool:
    """Whether this thread is in a mode that is asked."""
    return bool(_thread.modes)


def modes() -> list[Any]:
    """The modes of this thread that are asked, the innermost last."""
    return list(_thread.modes)


@contextmanager
def popped() -> Iterator[Any]:
    """Within it, the innermost mode, which it gives, is off. Raises IndexError where there is none."""
    mode = _thread.modes.pop()
    try:
        yield mode
    finally:
        _thread.modes.append(mode)


def ask_mode(func: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]) -> Any:
    """What the innermost mode gives. Raises TypeError where that is NotImplemented."""
    types = tuple([type(value) for value in overriding(args, kwargs)])
    with popped() as mode:
        result = mode.__torch_function__(func, types, args, dict(kwargs))
    if result is NotImplemented:
        raise TypeError(f"{type(mode).__name__} gives nothing for {getattr(func, '__name__', func)}()")
    return result


# --- Exchanging functions' code -------------------------------------------------------------------------------------


def _template(*args: Any, **kwargs: Any) -> Any:
    hook: Any = "the hook"
    return hook(args, kwargs)


_HOOK = "the hook"


def _hook(function: FunctionType, shown: Callable[..., Any]) -> Callable[..., Any]:
    original = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    original.__kwdefaults__ = function.__kwdefaults__
    original.__dict__.update(function.__dict__)

    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        caller = sys._getframe(2).f_globals.get("__name__", "")
        if not _thread.modes or (is_inside(caller) and caller != __name__):
            return original(*args, **kwargs)
        return ask_mode(shown, args, kwargs)

    return call


def _public() -> Iterator[tuple[FunctionType, Callable[..., Any]]]:
    """Functions, and what a mode is asked for in their place."""
    for place in _PLACES:
        try:
            module = import_module(f"{ROOT}.{place}".rstrip("."))
        except ModuleNotFoundError:
            continue  # norch-nn is not installed
        for name in dir(module):
            function = getattr(module, name, None) if not name.startswith("_") else None
            if isinstance(function, FunctionType) and f"{function.__globals__['__name__']}.".startswith(_HOMES):
                yield function, function
    for kind in Tensor.__mro__[:-1]:
        for name, function in vars(kind).items():
            operator = name.startswith("__") and name.endswith("__")
            if isinstance(function, FunctionType) and (operator or not name.startswith("_")):
                yield function, getattr(Tensor, CALLED.get(name, name), function)


@cache
def _exchanged() -> list[tuple[FunctionType, CodeType, CodeType]]:
    """Functions, their code, and that which asks a mode."""
    found: dict[int, tuple[FunctionType, CodeType, CodeType]] = {}
    constants = _template.__code__.co_consts
    for function, shown in _public():
        if function.__name__ not in _UNASKED and id(function) not in found:
            code, hook = function.__code__, _hook(function, shown)
            asking = _template.__code__.replace(
                co_consts=tuple([hook if constant == _HOOK else constant for constant in constants]),
                co_freevars=code.co_freevars,
                co_name=code.co_name,
            )
            found[id(function)] = function, code, asking
    return list(found.values())


def _push(mode: Any) -> None:
    global _count
    functions = _exchanged()
    with _lock:
        if not _count:
            for function, _, asking in functions:
                function.__code__ = asking
        _count += 1
    _thread.modes.append(mode)


def _pop() -> None:
    global _count
    _thread.modes.pop()
    with _lock:
        _count -= 1
        if not _count:
            for function, code, _ in _exchanged():
                function.__code__ = code
