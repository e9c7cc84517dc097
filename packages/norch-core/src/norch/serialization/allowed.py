"""Classes and functions that the user declared safe: `load` may call them for a file that names them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ..errors import DTypeError

_NEVER = frozenset({"builtins.eval", "builtins.exec", "builtins.compile", "builtins.__import__", "builtins.getattr"})
_NEVER_MODULES = frozenset({"os", "posix", "nt", "sys", "subprocess"})

_allowed: dict[str, Any] = {}

Named = Callable[..., Any] | tuple[Callable[..., Any], str]


def _entries(given: list[Named], op: str) -> dict[str, Any]:
    found = {}
    for item in given:
        value, name = item if isinstance(item, tuple) and len(item) == 2 else (item, None)
        if name is None:
            name = f"{getattr(value, '__module__', None)}.{getattr(value, '__qualname__', None)}"
        if not callable(value) or not isinstance(name, str):
            raise DTypeError(f"{op}(): expected classes and functions, or pairs of one and its name, got {item!r:.80}")
        if is_never_safe(name):
            raise DTypeError(f"{op}(): {name} is never safe; load(weights_only=False) reads a file that you trust")
        found[name] = value
    return found


def is_never_safe(name: str) -> bool:
    """Whether to call what has this name is to run any code."""
    return name in _NEVER or name.partition(".")[0] in _NEVER_MODULES


def add_safe_globals(safe_globals: list[Named]) -> None:
    """From now on `load` makes objects of these classes, and calls these functions, for files that name them.

    safe_globals: classes and functions, or pairs of one and the name that files have for it.
    """
    _allowed.update(_entries(safe_globals, "add_safe_globals"))


def get_safe_globals() -> list[Any]:
    """What `add_safe_globals` was given."""
    return list(_allowed.values())


def clear_safe_globals() -> None:
    """Takes back all of `add_safe_globals`."""
    _allowed.clear()


class safe_globals:
    """`add_safe_globals` for a `with` block. Raises as that does."""

    def __init__(self, safe_globals: list[Named]) -> None:
        self._entries = _entries(safe_globals, "safe_globals")

    def __enter__(self) -> None:
        self._before = dict(_allowed)
        _allowed.update(self._entries)

    def __exit__(self, *exception: object) -> None:
        _allowed.clear()
        _allowed.update(self._before)


def allowed(name: str) -> Any:
    """The class or function of that name, or None."""
    return _allowed.get(name)


def allowed_in(module: str, name: str) -> Any:
    """The class or function that has this name in a module which is loaded, if it is allowed; or None."""
    found = vars(sys.modules[module]).get(name) if module in sys.modules else None
    return found if found is not None and is_allowed(found) else None


def is_allowed(value: Any) -> bool:
    return any(value is known for known in _allowed.values())
