"""What a step returns, taken apart into tensors and values: objects that it makes, such as caches, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import BuiltinFunctionType, FunctionType
from typing import Any, NamedTuple
from weakref import ref

from ..func.trees import LEAF, REGISTERED, _children, _Context
from ..tensor_base import TensorBase
from .signatures import VALUES, Same

_FIXED = (type, FunctionType, BuiltinFunctionType)
"""Values that are the same where they are one object."""


class Value(NamedTuple):
    """A number, a text or the like in an object. where: of which it is. path: the way to an attribute, as `Counter` has
    it; empty for what is in a container, or behind a key that is no text and no number."""

    where: int
    name: str
    text: Any
    kind: type
    path: tuple[Any, ...] = ()


class Known:
    """Objects that are there in every run: arguments, and what a step returns that was there before. They are not
    kept alive by this."""

    def __init__(self, arguments: Iterable[Any]) -> None:
        self.same: dict[int, Same] = {}
        for thing in arguments:
            if not isinstance(thing, TensorBase) and type(thing) not in (*VALUES, float):
                self.add(thing)

    def add(self, thing: Any) -> None:
        self.same[id(thing)] = Same(thing)

    def __contains__(self, thing: Any) -> bool:
        found = self.same.get(id(thing))
        return found is not None and found.get() is thing

    @property
    def gone(self) -> bool:
        """Whether one of them is no more."""
        return any(same.get() is None for same in self.same.values())

    def weak(self) -> list[Any]:
        return [same.get for same in self.same.values() if isinstance(same.get, ref)]

    def number(self, thing: Any) -> int:
        """Which of them it is."""
        return list(self.same).index(id(thing))

    def at(self, which: int) -> Any:
        """Number `which` of them, or None."""
        same = list(self.same.values())
        return same[which].get() if which < len(same) else None

    def values(self) -> list[Value]:
        """The numbers, texts and the like in their attributes."""
        found: list[Value] = []
        stack: list[tuple[Any, str, tuple[Any, ...]]] = []
        for which, same in enumerate(self.same.values()):
            if _comes_apart(thing := same.get()):
                stack.append((thing, type(thing).__name__, (which,)))
        seen: dict[int, Any] = {}
        while stack and len(seen) < _MOST_OBJECTS:
            thing, name, path = stack.pop()
            if id(thing) in seen:
                continue
            seen[id(thing)] = thing
            if isinstance(thing, dict | list | tuple):
                for key, part in thing.items() if isinstance(thing, dict) else enumerate(thing):
                    if is_value(part):
                        found.append(Value(id(thing), name, (repr(key), repr(part)), type(part)))
                    else:
                        stack.append((part, name, (*path, key) if path and type(key) in (int, str) else ()))
            elif _comes_apart(thing):
                for key, part in vars(thing).items():
                    behind = (*path, key) if path else ()
                    if is_value(part):
                        found.append(Value(id(thing), f"{name}.{key}", repr(part), type(part), behind))
                    else:
                        stack.append((part, f"{name}.{key}", behind))
        return found

    @staticmethod
    def changed(before: Sequence[Value], now: Sequence[Value]) -> str | None:
        """The attribute whose value is not what it was before, by its name."""
        if now == before:
            return None
        known = set(before)
        return next((f"`{value.name}`" for value in now if value not in known), "an argument")


class Apart:
    """`tree` taken apart: its `leaves`, and its `structure`. objects: what came apart into its attributes (weakly)."""

    def __init__(self, tree: Any, known: Known) -> None:
        self.known = known
        self.leaves: list[Any] = []
        self.objects: list[Any] = []
        self.containers: list[Any] = []
        """What holds the leaves: lists, dicts, tuples, registered containers, objects, and the attributes of these."""
        self._numbers: dict[int, int] = {}
        self.structure = self._walk(tree)

    def _walk(self, thing: Any) -> Any:
        number = self._numbers.get(id(thing))
        if number is not None:
            return "again", number
        found = _children(thing)
        if found is None:
            if thing in self.known or not _comes_apart(thing):
                self.leaves.append(thing)
                return LEAF
            self.objects.append(ref(thing))
            found = (type(thing), _Attributes(vars(thing))), list(vars(thing).values())
        self.containers.append(thing)
        if type(found[0][1]) is _Attributes or (type(thing) in REGISTERED and hasattr(thing, "__dict__")):
            self.containers.append(vars(thing))
        self._numbers[id(thing)] = len(self._numbers)
        return found[0], [self._walk(part) for part in found[1]]

    def described(self) -> list[Any]:
        """The leaves but for tensors, as they can be compared; of what is known, which it is."""
        return [
            None
            if isinstance(x, TensorBase)
            else repr(x)
            if is_value(x)
            else self.known.number(x)
            if x in self.known
            else Same(x)
            for x in self.leaves
        ]

    def odd(self) -> bool:
        """Whether there is a leaf that no replay can return."""
        return any(
            not (isinstance(x, TensorBase) or is_value(x) or isinstance(x, _FIXED) or x in self.known)
            for x in self.leaves
        )

    def builder(self) -> Callable[[list[Any]], Any]:
        """Puts results where they are in the tree."""
        leaves, structure = self.leaves, self.structure
        if structure is LEAF and isinstance(leaves[0], TensorBase):
            return lambda made: made[0]
        at = [i for i, x in enumerate(leaves) if isinstance(x, TensorBase)]
        which = {n: i for i, n in enumerate(dict.fromkeys(id(leaves[i]) for i in at))}
        order = [which[id(leaves[i])] for i in at]
        known = [(i, self.known.same[id(x)].get) for i, x in enumerate(leaves) if x in self.known]
        there = {i for i, _ in known}
        plain = [None if isinstance(x, TensorBase) or i in there else x for i, x in enumerate(leaves)]

        def build(made: list[Any]) -> Any:
            values = list(plain)
            for i, get in known:
                values[i] = get()
            for i, number in zip(at, order, strict=True):
                values[i] = made[number]
            return together(structure, values)

        return build


class _Attributes:
    """That a container is an object with attributes of these names."""

    __slots__ = ("names",)

    def __init__(self, attributes: dict[str, Any]) -> None:
        self.names = tuple(attributes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Attributes) and self.names == other.names

    __hash__ = None  # type: ignore[assignment]


def together(structure: Any, leaves: list[Any]) -> Any:
    """The tree of that structure with these leaves."""
    return _build(structure, iter(leaves), [])


def _build(structure: Any, leaves: Iterator[Any], made: list[Any]) -> Any:
    if structure is LEAF:
        return next(leaves)
    head, parts = structure
    if head == "again":
        return made[parts]
    kind, keys = head
    number = len(made)
    new: Any = None
    if type(keys) is _Attributes:
        new = object.__new__(kind)
    elif kind is list:
        new = []
    made.append(new)
    values = [_build(part, leaves, made) for part in parts]
    if type(keys) is _Attributes:
        vars(new).update(zip(keys.names, values, strict=True))
    elif kind is list:
        new += values
    elif type(keys) is _Context:
        new = REGISTERED[kind].unflatten_fn(values, keys.value)
    elif keys is not None:
        new = kind(zip(keys, values, strict=True))
    else:
        new = kind(*values) if hasattr(kind, "_fields") else kind(values)
    made[number] = new
    return new


def is_value(x: Any) -> bool:
    return type(x) in (*VALUES, float)


_apart: dict[type, bool] = {}


def _comes_apart(thing: Any) -> bool:
    """Whether a thing is an object of a class written in Python that is no more than its attributes."""
    kind = type(thing)
    found = _apart.get(kind)
    if found is None:
        plain = all(
            getattr(kind, name, None) is getattr(object, name, None)
            for name in ("__new__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__del__")
        )
        found = plain and bool(kind.__flags__ & _OF_PYTHON) and kind.__dictoffset__ != 0
        found = found and not any(vars(c).get("__slots__") for c in kind.__mro__)
        found = found and kind.__weakrefoffset__ != 0
        if len(_apart) < _MOST_KINDS:
            _apart[kind] = found
    return found


_OF_PYTHON = 1 << 9
"""The flag of classes that a class statement has made."""
_MOST_KINDS = 1000
_MOST_OBJECTS = 1000
