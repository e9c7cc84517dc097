"""Modules that hold modules."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from itertools import groupby
from operator import index as as_index
from typing import Any, Self

import norch

from .module import Module


class ListOfAttributes(Module):
    """Values that are attributes, named by numbers, with the ways to reach and to change them that a list has.

    A subclass defines `_names`, the names in order, and `append`.
    """

    _names: Any

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[Any]:
        return iter([getattr(self, name) for name in self._names])

    def __getitem__(self, index: int | slice) -> Any:
        """A value, or for a slice a container of values. Raises IndexError outside the range."""
        if isinstance(index, slice):
            return type(self)(list(self)[index])  # type: ignore[call-arg]
        return getattr(self, self._name(index))

    def __iadd__(self, values: Iterable[Any]) -> Self:
        return self.extend(values)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]

    def append(self, value: Any) -> Self:
        """Adds a value at the end. Returns the container."""
        raise NotImplementedError

    def extend(self, values: Iterable[Any]) -> Self:
        """Adds each of `values` at the end. Returns the container. Raises TypeError unless they are iterable."""
        if not isinstance(values, Iterable) or isinstance(values, norch.Tensor):
            title = f"{type(self).__name__}.extend"
            raise TypeError(f"{title} should be called with an iterable, not {type(values).__name__}")
        for value in list(values):
            self.append(value)
        return self

    def _name(self, index: int) -> str:
        at, names = as_index(index), self._names
        if not -len(names) <= at < len(names):
            raise IndexError(f"index {at} is out of range for a {type(self).__name__} of {len(names)}")
        return names[at] if isinstance(names, list) else list(names)[at]


class _ModuleSequence(ListOfAttributes):
    """Modules in order."""

    @property
    def _names(self) -> Any:
        return self._module_names

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._name(index), module)

    def __delitem__(self, index: int | slice) -> None:
        names = list(self._module_names)
        for name in names[index] if isinstance(index, slice) else [self._name(index)]:
            delattr(self, name)
        if all(name.isdecimal() for name in names):
            self._refill(list(self))

    def append(self, module: Module) -> Self:
        """Adds a module at the end. Returns the container."""
        self.add_module(str(len(self)), module)
        return self

    def insert(self, index: int, module: Module) -> Any:
        """Adds a module before the one at `index`. The modules are numbered afresh.

        Raises TypeError unless it is a Module.
        """
        if not isinstance(module, Module):
            raise TypeError(f"{type(module).__name__} is not a Module subclass")
        modules = list(self)
        modules.insert(index, module)
        self._refill(modules)
        return self

    def pop(self, index: int | slice = -1) -> Any:
        """Takes the module at `index` away and returns it."""
        module = self[index]
        del self[index]
        return module

    def _refill(self, modules: list[Module]) -> None:
        for name in list(self._module_names):
            delattr(self, name)
        self.extend(modules)


class Sequential(_ModuleSequence):
    """Calls its modules in turn, each on the result of the one before.

    `Sequential(a, b)` names them "0" and "1"; `Sequential(OrderedDict(first=a, second=b))` as the dict does. It can be
    indexed, sliced (which shares the modules), added to another and changed like a list.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], dict | OrderedDict):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            self.extend(args)

    def forward(self, input: Any) -> Any:
        """The result of the last module; `input` itself where there is none."""
        own = self.__dict__
        for name in own["_module_names"]:
            input = own[name](input)
        return input

    def __getitem__(self, index: int | slice) -> Any:
        """A module, or for a slice a Sequential of modules. Raises IndexError outside the range."""
        if isinstance(index, slice):
            return type(self)(OrderedDict((name, self.__dict__[name]) for name in list(self._module_names)[index]))
        return getattr(self, self._name(index))

    def __add__(self, other: Sequential) -> Sequential:
        if not isinstance(other, Sequential):
            return NotImplemented
        return Sequential(*self, *other)

    def __mul__(self, times: int) -> Sequential:
        return Sequential(*[module for _ in range(_times(times)) for module in self])

    __rmul__ = __mul__

    def __imul__(self, times: int) -> Self:
        modules = list(self)
        for _ in range(_times(times) - 1):
            self.extend(modules)
        return self


def _times(times: int) -> int:
    if not isinstance(times, int):
        raise TypeError(f"a Sequential can be multiplied by an int, not by {type(times).__name__}")
    if times <= 0:
        raise ValueError(f"a Sequential can be multiplied by a positive int, not by {times}")
    return times


class ModuleList(_ModuleSequence):
    """A list of modules, named "0", "1" and so on, that are registered as children. It cannot be called."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def insert(self, index: int, module: Module) -> None:
        """Adds a module before the one at `index`. The modules are numbered afresh."""
        super().insert(index, module)

    def __repr__(self) -> str:
        lines, at = [], 0
        for text, same in groupby(map(repr, self)):
            count = len(list(same))
            place = f"({at}-{at + count - 1}): {count} x " if count > 1 else f"({at}): "
            lines.append(place + text.replace("\n", "\n  "))
            at += count
        return f"{type(self).__name__}(\n  " + "\n  ".join(lines) + "\n)" if lines else f"{type(self).__name__}()"


class DictOfAttributes(Module, MutableMapping[str, Any]):
    """Values that are attributes under their keys, with the ways to reach and to change them that a dict has.

    A subclass defines `_keys`, the keys in order, `__setitem__` and `__delitem__`. It equals itself alone, as every
    module does.
    """

    _keys: Any
    __eq__, __hash__ = Module.__eq__, Module.__hash__  # type: ignore[assignment]

    def __init__(self, values: Any = None) -> None:
        super().__init__()
        if values is not None:
            self.update(values)

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return getattr(self, key)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._keys))

    def __contains__(self, key: object) -> bool:
        return key in self._keys


class ModuleDict(DictOfAttributes):
    """A dict of modules that are registered as children under its keys. It cannot be called."""

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None) -> None:
        super().__init__(modules)

    @property
    def _keys(self) -> Any:
        return self._module_names

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        if key not in self._module_names:
            raise KeyError(key)
        delattr(self, key)
