"""PyTorch's functions of sizes that may be symbols, `torch.sym_max` and others. norch's sizes are Python's numbers, of
which they are what Python has."""

from __future__ import annotations

import math
from typing import Any


def sym_float(a: Any) -> float:
    """A number as a float."""
    return float(a)


def sym_int(a: Any) -> int:
    """The number `a` without its fraction."""
    return int(a)


def sym_max(a: Any, b: Any) -> Any:
    """The larger of the numbers `a` and `b`, a float where one of them is."""
    return float(max(a, b)) if float in (type(a), type(b)) else max(a, b)


def sym_min(a: Any, b: Any) -> Any:
    """The smaller of the numbers `a` and `b`, a float where one of them is."""
    return float(min(a, b)) if float in (type(a), type(b)) else min(a, b)


def sym_not(a: Any) -> bool:
    """Whether a bool is False."""
    return not a


def sym_ite(b: bool, t: Any, f: Any) -> Any:
    """`t` where `b`, `f` elsewhere."""
    return t if b else f


def sym_sum(args: Any) -> Any:
    """The sum of `args`, numbers."""
    return sum(args)


def sym_sqrt(a: Any) -> float:
    """The square root of a number."""
    return math.sqrt(a)


def guard_or_false(a: Any) -> bool:
    """Whether a condition on sizes holds, which is known."""
    return bool(a)


guard_or_true = statically_known_true = is_true_always = definitely_true = guard_or_false


def free_symbols(value: Any) -> set[Any]:
    """The symbols that a value depends on: none."""
    return set()


free_unbacked_symbols = free_symbols


def has_free_symbols(value: Any) -> bool:
    """Whether a value depends on symbols: never."""
    return False


def hint_int(a: Any, fallback: int | None = None) -> int:
    """A size itself."""
    return int(a)


class GuardOnDataDependentSymNode(RuntimeError):
    """What PyTorch raises where a condition on a symbol is not known."""
