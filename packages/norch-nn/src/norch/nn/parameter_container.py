"""Modules that hold parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import index as as_index
from typing import Any, Self

import norch

from .container import DictOfAttributes
from .module import Module
from .parameter import Parameter


def _held(value: Any) -> Any:
    """Tensors become parameters; anything else is held as it is."""
    return Parameter(value) if isinstance(value, norch.Tensor) and not isinstance(value, Parameter) else value


def _line(key: Any, value: Any) -> str:
    if not isinstance(value, norch.Tensor):
        return f"  ({key}): Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    where = "" if value.device.type == norch.Device("cpu").type else f" ({value.device})"
    size = "x".join(str(n) for n in value.shape)
    return f"  ({key}): {kind} containing: [{value.dtype} of size {size}{where}]"


class ParameterList(Module):
    """A list whose tensors are parameters, named "0", "1" and so on; any other value is held as it is."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter([self.__dict__[str(i)] for i in range(self._size)])

    def __getitem__(self, index: int | slice) -> Any:
        """A value, or for a slice a ParameterList. Raises IndexError outside the range."""
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return self.__dict__[self._name(index)]

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, self._name(index), _held(value))

    def __iadd__(self, values: Iterable[Any]) -> Self:
        return self.extend(values)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]

    def append(self, value: Any) -> Self:
        """Adds a value at the end. Returns the list."""
        setattr(self, str(self._size), _held(value))
        self._size += 1
        return self

    def extend(self, values: Iterable[Any]) -> Self:
        """Adds each of `values` at the end. Returns the list. Raises TypeError for a tensor, or what is no iterable."""
        if not isinstance(values, Iterable) or isinstance(values, norch.Tensor):
            raise TypeError(f"ParameterList.extend should be called with an iterable, not {type(values).__name__}")
        for value in list(values):
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join(_line(i, value) for i, value in enumerate(self))

    def _name(self, index: int) -> str:
        at = as_index(index)
        if not -self._size <= at < self._size:
            raise IndexError(f"index {at} is out of range for a ParameterList of {self._size}")
        return str(at % self._size)


class ParameterDict(DictOfAttributes):
    """A dict whose tensors are parameters, named by its keys; any other value is held as it is."""

    def __init__(self, parameters: Any = None) -> None:
        self.__dict__["_keys"] = {}
        super().__init__(parameters)

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):
            raise TypeError(f"ParameterDict: keys must be strings, got {key!r}")
        if key not in self._keys and hasattr(self, key):
            raise KeyError(f"attribute '{key}' already exists")
        setattr(self, key, _held(value))
        self._keys[key] = None

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, key)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._keys))

    def __or__(self, other: Mapping[str, Any]) -> ParameterDict:
        joined = self.copy()
        joined.update(other)
        return joined

    def __ior__(self, other: Mapping[str, Any]) -> Self:
        self.update(other)
        return self

    def copy(self) -> ParameterDict:
        """Another ParameterDict of the same parameters."""
        return ParameterDict(dict(self.items()))

    def get(self, key: str, default: Any = None) -> Any:
        """The value of `key`, `default` where there is none."""
        return self.__dict__[key] if key in self._keys else default

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value of `key`, which is made `default` where there is none."""
        if key not in self:
            self[key] = default
        return self[key]

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A ParameterDict with these keys, all of the value `default`."""
        return ParameterDict(dict.fromkeys(keys, default))

    def popitem(self) -> tuple[str, Any]:
        """Takes the last pair away and returns it."""
        key = next(reversed(self))
        return key, self.pop(key)

    def extra_repr(self) -> str:
        return "\n".join(_line(key, value) for key, value in self.items())
