"""What a captured step depends on besides values: modes of modules, and which tensors have which memory and hooks.

Whoever changes such a thing says so here; `norch.capture` compares two numbers at each call. Here is also what marks
methods whose Python runs in replays: those of optimisers and schedulers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from itertools import count
from typing import Any, TypeVar
from weakref import WeakValueDictionary

F = TypeVar("F", bound=Callable[..., Any])

_replacements = count(1)

latest: tuple[type, str] | None = None
"""Whose switch was changed last, and its name."""

fingerprint = 0
"""Of all switches as they are now: one that is put back gives the fingerprint that was there before."""

moves = 0
"""How often a tensor was given other memory or hooks, or was made a leaf that requires grad, or none."""


def switched(owner: object, name: str, old: Hashable, new: Hashable) -> None:
    """Notes that the switch `name` of `owner` was `old` and is `new` from now on."""
    global fingerprint, latest
    latest = type(owner), name
    # By repr: -1 and -2 have one hash, and so have 1 and True.
    fingerprint ^= hash((id(owner), name, repr(old))) ^ hash((id(owner), name, repr(new)))


def replaced(owner: object, name: str) -> None:
    """Notes that `name` of `owner`, a tensor, a module or a function, is another one from now on."""
    global fingerprint, latest
    latest = type(owner), name
    fingerprint ^= hash((id(owner), name, next(_replacements)))
    moved()


def moved() -> None:
    """Notes a change that a captured step may see in the tensors that it uses."""
    global moves
    moves += 1


noting: Callable[..., Any] | None = None
"""While a step is recorded, what calls methods that are `replayed`: noting(method, owner, args, kwargs)."""


recorded_since = 0
"""The sequence number at which the step that is recorded began."""


class Replayed:
    """Base of what counts steps in Python, with methods that are `replayed`: optimisers, schedulers, scalers.

    A step that changes its attributes, or what dicts and lists among them hold, by other Python is not captured.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        made = super().__new__(cls)
        _replayed[id(made)] = made
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        return super().__reduce_ex__(max(protocol, 2))  # older ones make objects without __new__


_replayed: WeakValueDictionary[int, Replayed] = WeakValueDictionary()


def living_replayed() -> list[Replayed]:
    """All that there are in the process."""
    return [thing for weak in _replayed.valuerefs() if (thing := weak()) is not None]


def replayed(method: F) -> F:
    """Marks a method whose Python runs in each replay of a captured step too, when the step has called it.

    Steps of optimisers that it makes (`norch.adam_step_` and the like) then become a part of the program. Where it
    calls anything else that computes, or reads values, it runs between two parts of the program.
    """

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if noting is None:
            return method(self, *args, **kwargs)
        return noting(method, self, args, kwargs)

    return call  # type: ignore[return-value]
