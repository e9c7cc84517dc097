"""Modules that are made of a list of modules."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from operator import index as as_index
from typing import Any, Self

from .module import Module


class Sequential(Module):
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

    def __len__(self) -> int:
        return len(self._module_names)

    def __iter__(self) -> Iterator[Module]:
        return iter([self.__dict__[name] for name in self._module_names])

    def __getitem__(self, index: int | slice) -> Any:
        """A module, or for a slice a Sequential of modules. Raises IndexError outside the range."""
        if isinstance(index, slice):
            return type(self)(OrderedDict((name, self.__dict__[name]) for name in list(self._module_names)[index]))
        return self.__dict__[self._name(index)]

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._name(index), module)

    def __delitem__(self, index: int | slice) -> None:
        names = list(self._module_names)
        for name in names[index] if isinstance(index, slice) else [self._name(index)]:
            delattr(self, name)
        if all(name.isdecimal() for name in names):
            self._refill(list(self))

    def __add__(self, other: Sequential) -> Sequential:
        if not isinstance(other, Sequential):
            return NotImplemented
        return Sequential(*self, *other)

    def append(self, module: Module) -> Self:
        """Adds a module at the end. Returns the Sequential."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Adds each of `modules` at the end. Returns the Sequential."""
        for module in modules:
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Self:
        """Adds a module before the one at `index`. The modules are numbered anew. Returns the Sequential."""
        if not isinstance(module, Module):
            raise TypeError(f"{type(module).__name__} is not a Module subclass")
        modules = list(self)
        modules.insert(index, module)
        self._refill(modules)
        return self

    def pop(self, index: int = -1) -> Module:
        """Takes the module at `index` away and returns it."""
        module: Module = self[index]
        del self[index]
        return module

    def _refill(self, modules: list[Module]) -> None:
        for name in list(self._module_names):
            delattr(self, name)
        self.extend(modules)

    def _name(self, index: int) -> str:
        at, size = as_index(index), len(self)
        if not -size <= at < size:
            raise IndexError(f"index {at} is out of range for a Sequential of {size} modules")
        return list(self._module_names)[at]
