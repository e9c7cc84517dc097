"""PyTorch's `torch.overrides`: asks classes that define `__torch_function__` in functions of one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, wraps
from importlib import import_module
from inspect import Signature, signature
from types import FunctionType
from typing import Any

from ..overriding import DisableTorchFunctionSubclass as DisableTorchFunctionSubclass
from ..overriding import ask, disabled, is_enabled, is_overriding, overriding
from ..overriding import is_inside as _is_inside
from ..tensor import Tensor, _unwrapped
from ..tensor_base import TensorBase
from .function_modes import _UNASKED, _public, ask_mode, is_mode_on, modes, popped
from .function_modes import BaseTorchFunctionMode as BaseTorchFunctionMode
from .function_modes import TorchFunctionMode as TorchFunctionMode

_get_current_function_mode_stack = modes
_pop_mode_temporarily = popped

_disabled_torch_function_impl = disabled
_is_torch_function_enabled = is_enabled


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether this thread is in a `TorchFunctionMode`, or one of the arguments is of a class that defines
    `__torch_function__`, which is called in this thread."""
    return is_mode_on() or (is_enabled() and any(map(is_overriding, relevant_args)))


def has_torch_function_variadic(*relevant_args: Any) -> bool:
    """`has_torch_function` of the arguments."""
    return has_torch_function(relevant_args)


def has_torch_function_unary(relevant_arg: Any) -> bool:
    """`has_torch_function` of one argument."""
    return is_mode_on() or (is_enabled() and is_overriding(relevant_arg))


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """What the innermost mode, or else the classes of `relevant_args` that define `__torch_function__`, give for
    `public_api(*args, **kwargs)`.

    Subclasses are asked before what they are of, others from left to right. Raises TypeError where none gives anything.
    """
    if is_mode_on():
        return ask_mode(public_api, args, kwargs)
    return ask(public_api, args, kwargs, overriding(tuple(relevant_args), {}))


def wrap_torch_function(dispatcher: Callable[..., Iterable[Any]]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: `dispatcher(*args, **kwargs)` gives the arguments whose classes are asked what a function gives."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(call, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return call

    return decorate


def is_inside(module: str) -> bool:
    """Whether the code of the module of that name is a part of norch's functions, rather than calls them as users do.

    A class that stands for tensors may refuse what such code does with it: the function that was called is then asked
    for as a whole.
    """
    return _is_inside(module)


def is_tensor_like(inp: object) -> bool:
    """Whether `inp` is a Tensor, or of a class that defines `__torch_function__`."""
    return isinstance(inp, TensorBase) or hasattr(type(inp), "__torch_function__")


def get_default_nowrap_functions() -> set[Callable[..., Any]]:
    """The functions whose results `Tensor.__torch_function__` leaves of the class that they are."""
    return set(_unwrapped())


@cache
def get_testing_overrides() -> dict[Callable[..., Any], Callable[..., Any]]:
    """By each function and method that classes are asked for, a function of the same parameters that gives -1."""
    return {shown: _answering(function) for function, shown in _public() if function.__name__ not in _UNASKED}


def get_ignored_functions() -> set[Callable[..., Any]]:
    """The functions and methods that no class is asked for, such as those that make tensors of numbers alone."""
    places: list[Any] = [import_module(__name__.partition(".")[0]), *Tensor.__mro__[:-1]]
    found: set[Callable[..., Any]] = set()
    for place in places:
        found |= {value for value in vars(place).values() if isinstance(value, FunctionType)}
    return found - set(get_testing_overrides())


def _answering(function: Callable[..., Any]) -> Callable[..., Any]:
    def answer(*args: Any, **kwargs: Any) -> int:
        return -1

    try:
        found = signature(function)
    except ValueError:
        return answer
    answer.__signature__ = Signature(list(found.parameters.values()))  # type: ignore[attr-defined]
    return answer


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """Whether `func` is a method of Tensor, or the getter, setter or deleter of one of its attributes."""
    name = getattr(func, "__name__", "")
    return name in ("__get__", "__set__", "__delete__") or getattr(Tensor, name, None) is func


def resolve_name(f: Callable[..., Any]) -> str | None:
    """The name of a function that a class is asked for, such as "torch.Tensor.add"; None for what has none."""
    if isinstance(f, str):
        return f
    owner = getattr(f, "__self__", None)
    if isinstance(owner, property):
        return f"torch.Tensor.{getattr(owner.fget, '__name__', '?')}.{f.__name__}"
    name = getattr(f, "__name__", None)
    if name is None:
        return None
    if is_tensor_method_or_property(f):
        return f"torch.Tensor.{name}"
    return f"{f.__module__.replace('norch', 'torch', 1)}.{name}"
