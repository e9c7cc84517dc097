"""Modules that hold parameters."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

import norch

from .container import DictOfAttributes, ListOfAttributes
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


class ParameterList(ListOfAttributes):
    """A list of `values`, whose tensors are parameters, named "0", "1" and so on; any other value is held as it is."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._names: list[str] = []
        if values is not None:
            self.extend(values)

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, self._name(index), _held(value))

    def _complete(self) -> None:
        self._names = [str(i) for i in range(self.__dict__.pop("_size"))]

    def append(self, value: Any) -> Self:
        """Adds a value at the end. Returns the list."""
        name = str(len(self._names))
        setattr(self, name, _held(value))
        self._names.append(name)
        return self

    def extra_repr(self) -> str:
        return "\n".join(_line(i, value) for i, value in enumerate(self))


class ParameterDict(DictOfAttributes):
    """A dict whose tensors are parameters, named by its keys; any other value is held as it is.

    As in PyTorch, what comes from a plain dict is in the order of its keys, from pairs, an OrderedDict or another
    ParameterDict in theirs.
    """

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

    def update(self, parameters: Any) -> None:  # type: ignore[override]
        """Takes over a mapping or pairs, a plain dict's in the order of its keys, which optimisers see."""
        if isinstance(parameters, Mapping) and not isinstance(parameters, OrderedDict | ParameterDict):
            parameters = {key: parameters[key] for key in sorted(parameters)}
        super().update(parameters)

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
        return ParameterDict(self)

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A ParameterDict with these keys, all of the value `default`."""
        return ParameterDict((key, default) for key in keys)

    def popitem(self) -> tuple[str, Any]:
        """Takes the last pair away and returns it. Raises KeyError where there is none."""
        for key in reversed(self):
            return key, self.pop(key)
        raise KeyError("popitem(): the ParameterDict is empty")

    def extra_repr(self) -> str:
        return "\n".join(_line(key, value) for key, value in self.items())
