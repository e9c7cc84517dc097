"""The public names of ops. An entry registers its function here; `norch.*`, `norch.ops.*` and Tensor are made of it."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

from ..dispatch.arguments import checked

F = TypeVar("F", bound=Callable[..., Any])

FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""Functions of `norch` and `norch.ops` by name."""

METHODS: dict[str, Callable[..., Any]] = {}
"""Methods of Tensor by name, operators such as `__add__` among them."""

IN_PLACE: dict[str, Callable[..., Any]] = {}
"""By name of the in-place method, such as `add_` or `__iadd__`: the function whose result it writes."""

LOOKUPS: list[Callable[[str], Any]] = []
"""Asked for a name that is none of these: the function of a plug-in's op, or None."""


def public(
    *also: str,
    function: bool = True,
    method: bool = True,
    inplace: bool = False,
    check: bool | str = True,
    entry: Callable[..., Any] | None = None,
) -> Callable[[F], F]:
    """Makes a function public under its own name, and under those of `also`.

    function: as a function of `norch` and `norch.ops`. method: as a method of Tensor. inplace: with an in-place method,
    whose name has "_" behind it. check: users call it through `dispatch.arguments.checked`; with "function" not as a
    method, with False not at all: it refuses arguments of a wrong type itself. A name such as "__matmul__" among `also`
    is a method only. entry: what is found under its names instead, where only that takes `out`. Raises ValueError for
    a name that is taken.
    """

    def register(target: F) -> F:
        shown: Any = entry or target
        bound: Any = target
        if check and not _checks_itself(target):
            shown = checked(target)
            bound = target if check == "function" else shown
        for name in (target.__name__, *also):
            operator = name.startswith("__")
            if function and not operator:
                _add(FUNCTIONS, name, shown)
            if method or operator:
                _add(METHODS, name, bound)
            if inplace and not operator:
                _add(IN_PLACE, f"{name}_", bound)
        return target

    return register


def method(*names: str, check: bool = True, inplace: bool = False) -> Callable[[F], F]:
    """Makes a function a method of Tensor only, under `names`, or else its own name. Raises ValueError as `public`.

    check: as of `public`; operators such as "__getitem__" check themselves. inplace: as of `public`.
    """

    def register(target: F) -> F:
        titles = names or (target.__name__,)
        known = target.__code__.co_varnames == ("self",) or titles[0].startswith("__") or _checks_itself(target)
        entry = checked(target, titles[0]) if check and not known else target
        if target.__name__ not in titles and not titles[0].startswith("__") and not _checks_itself(target):
            entry.__name__ = entry.__qualname__ = titles[0]  # by which `__torch_function__` knows it
        for name in titles:
            _add(METHODS, name, entry)
            if inplace:
                _add(IN_PLACE, f"{name}_", entry)
        return target

    return register


def _checks_itself(function: Any) -> bool:
    """Whether it is a class or a call path, or already explains its failures."""
    return not isinstance(function, FunctionType) or hasattr(function, "op") or hasattr(function, "explains")


def operator(name: str, call: Callable[..., Any], reflected: Callable[..., Any] | None = None) -> None:
    """Makes `call` Python's operator `name` ("add") on tensors; `reflected` is it with the operands exchanged.

    An operator that has a reflected form has an in-place form too. Raises ValueError as `public`.
    """
    _add(METHODS, f"__{name}__", call)
    if reflected is not None:
        _add(METHODS, f"__r{name}__", reflected)
        _add(IN_PLACE, f"__i{name}__", call)


def _add(table: dict[str, Callable[..., Any]], name: str, target: Callable[..., Any]) -> None:
    if name in table:
        taken: Any = table[name]
        owner = getattr(taken, "of_method", taken).__module__
        raise ValueError(f"{target.__module__}: the name {name!r} is taken by {owner}")
    table[name] = target
