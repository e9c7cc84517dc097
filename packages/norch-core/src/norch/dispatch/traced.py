"""Numbers that a captured step is called with: what is computed of them is noted, so that each replay computes it anew.

A `Traced` is a float like any other for who computes with it, and ops take it as one; a `TracedInt` is an int. What
becomes of it is an expression: ("argument", position), or the name of an operator and its operands. Where Python
decides by its value, the comparison is noted with its outcome; where the value gets somewhere else, the trace is
`pinned`: it tells of that value alone.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

ARGUMENT = "argument"

Expression = Any
"""A tuple as above, or a number."""


class Trace:
    """What one run of a step has done with its numbers, within a `with`; afterwards they are plain floats.

    decisions: expressions that were compared, with what came of it. pinned: what got a value as it was, or None.
    """

    def __init__(self) -> None:
        self.decisions: dict[Expression, bool] = {}
        self.pinned: str | None = None
        self.is_open = False

    def __enter__(self) -> None:
        self.is_open = True

    def __exit__(self, *error: object) -> None:
        self.is_open = False


class Traced(float):
    """A float with the expression that it is the value of."""

    __slots__ = ("expression", "trace")
    expression: Expression
    trace: Trace

    def __reduce__(self) -> Any:
        return float, (plain(self, "one is copied or saved"),)

    def __copy__(self) -> Traced:
        return self

    def __deepcopy__(self, memo: Any) -> Traced:
        return self


class TracedInt:
    """Stands for an int, with the expression that it is the value of. No subclass of int: as an index, as the bound of
    a slice and beside a float the interpreter reads those without asking them.
    """

    number: int
    expression: Expression
    trace: Trace
    __class__ = int  # type: ignore[assignment]  # for isinstance

    def __reduce__(self) -> Any:
        return int, (plain(self, "one is copied or saved"),)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(plain(self, "an array gets one"), dtype)

    def __copy__(self) -> TracedInt:
        return self

    def __deepcopy__(self, memo: Any) -> TracedInt:
        return self


KINDS: dict[type, type] = {Traced: float, TracedInt: int}
"""What each stands for."""


def traced(value: Any, expression: Expression, trace: Trace) -> Any:
    """A float or an int that is followed."""
    if type(value) is float:
        made: Any = float.__new__(Traced, value)
    else:
        made = object.__new__(TracedInt)
        made.number = value
    made.expression, made.trace = expression, trace
    return made


def evaluate(expression: Expression, numbers: Sequence[Any]) -> Any:
    """The value of an expression, where these are the step's numbers. Raises as Python's operators do."""
    if type(expression) is not tuple:
        return expression
    name, *operands = expression
    if name == ARGUMENT:
        return numbers[operands[0]]
    return _OPERATORS[name](*[evaluate(x, numbers) for x in operands])


def arguments_of(expression: Expression) -> set[int]:
    """The positions of the numbers that it is made of."""
    if type(expression) is not tuple:
        return set()
    name, *operands = expression
    return {operands[0]} if name == ARGUMENT else set().union(*map(arguments_of, operands))


def plain(x: Any, what: str | None = None) -> Any:
    """The number itself. what: where its value gets, if that is somewhere that is not noted."""
    if type(x) not in KINDS:
        return x
    if what is not None and x.trace.is_open and x.trace.pinned is None:
        x.trace.pinned = what
    return float.__float__(x) if type(x) is Traced else x.number


def _expression(x: Any) -> Expression:
    return x.expression if type(x) in KINDS else x


_NUMBERS = (Traced, TracedInt, float, int, bool)
_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
_UNARY = ("neg", "pos", "abs")
_ESCAPES = (
    "int", "float", "str", "repr", "format", "hash", "round", "trunc", "floor", "ceil", "divmod", "rdivmod",
    "getnewargs",
)  # fmt: skip
_OF_INTS = ("and", "or", "xor", "lshift", "rshift")
_OPERATORS: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in (*_ARITHMETIC, *_COMPARISONS, *_UNARY)},
    "bool": bool,
}
"""What floats and ints have alike, each expression by its name."""


def _noted(name: str, operands: tuple[Any, ...]) -> Any:
    """What an operator gives, as a number whose origin is known, or as a decision."""
    if not all(type(x) in _NUMBERS for x in operands):
        return NotImplemented
    value = _OPERATORS[name](*map(plain, operands))
    operands = tuple([x if type(x) in KINDS and x.trace.is_open else plain(x) for x in operands])
    trace = next((x.trace for x in operands if type(x) in KINDS), None)
    if trace is None:
        return value
    expression = (name, *map(_expression, operands))
    if name == "pow":  # which may be a complex number
        trace.decisions["lt", expression[1], 0] = bool(operands[0] < 0)
    if type(value) is bool:
        trace.decisions[expression] = value
        return value
    if type(value) not in (float, int):
        trace.pinned = trace.pinned or f"{name} of one is no real number"
        return value
    return traced(value, expression, trace)


def _binary(name: str, reflected: bool = False) -> Any:
    if reflected:
        return lambda self, other: _noted(name, (other, self))
    return lambda self, other: _noted(name, (self, other))


def _power(self: Any, other: Any, modulus: Any = None) -> Any:
    return NotImplemented if modulus is not None else _noted("pow", (self, other))


def _escaping(kind: type, name: str, shown: str) -> Any:
    method = getattr(kind, name)
    return lambda self, *args: method(plain(self, f"{shown}() gets one"), *map(plain, args))


def _complete(traced: Any, kind: type, special: Sequence[str], methods: Sequence[str]) -> None:
    """Gives a class the operators of `kind`. `special` ones and other methods get the value, which pins the trace."""
    for name in _ARITHMETIC:
        setattr(traced, f"__{name}__", _binary(name))
        setattr(traced, f"__r{name}__", _binary(name, reflected=True))
    for name in _COMPARISONS:
        setattr(traced, f"__{name}__", _binary(name))
    for name in (*_UNARY, "bool"):
        setattr(traced, f"__{name}__", lambda self, name=name: _noted(name, (self,)))
    traced.__pow__ = _power
    for name in special:
        if hasattr(kind, f"__{name}__"):
            setattr(traced, f"__{name}__", _escaping(kind, f"__{name}__", name))
    for name in methods:
        setattr(traced, name, _escaping(kind, name, name))


_complete(Traced, float, _ESCAPES, ("hex", "is_integer", "as_integer_ratio"))
_complete(
    TracedInt,
    int,
    (*_ESCAPES, "index", "invert", *_OF_INTS, *[f"r{name}" for name in _OF_INTS]),
    ("bit_length", "bit_count", "to_bytes", "as_integer_ratio", "conjugate"),
)
