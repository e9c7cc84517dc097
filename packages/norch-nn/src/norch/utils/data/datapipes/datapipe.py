"""The bases of data pipes, whose subclasses can be methods of all others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar, TypeVar

from ..dataset import Dataset, IterableDataset, T_co

T = TypeVar("T")


class DataChunk(list[T]):
    """A batch of samples. iterable: them."""

    def as_str(self, indent: str = "") -> str:
        """The samples as text, behind `indent`."""
        return f"{indent}[{', '.join(map(str, self))}]"

    def raw_iterator(self) -> Iterator[T]:
        """The samples."""
        yield from self


class _Functional:
    """The part of pipes that has others' classes as methods."""

    functions: ClassVar[dict[str, Callable[..., Any]]]

    def __getattr__(self, name: str) -> Any:
        found = type(self).functions.get(name) if not name.startswith("__") else None
        if found is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return partial(found, self)

    @classmethod
    def register_function(cls, function_name: str, function: Callable[..., Any]) -> None:
        """Makes `function`, whose first argument is the pipe, a method `function_name` of all pipes of the kind."""
        cls.functions[function_name] = function

    @classmethod
    def register_datapipe_as_function(
        cls, function_name: str, cls_to_register: type, enable_df_api_tracing: bool = False
    ) -> None:
        """Makes a class of pipes, `cls_to_register`, a method `function_name` of all others of the kind. Raises
        ValueError for a name that is taken. enable_df_api_tracing: PyTorch's, ignored.
        """
        if function_name in cls.functions:
            raise ValueError(f"register_datapipe_as_function(): there is a method {function_name!r} already")
        cls.functions[function_name] = cls_to_register

    def reset(self) -> None:
        """For subclasses: what is done before each pass."""


class IterDataPipe(_Functional, IterableDataset[T_co]):
    """A dataset that is gone through, made of another: a subclass has `__iter__`, and `__len__` where that is known."""

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}


class MapDataPipe(_Functional, Dataset[T_co]):
    """A dataset of samples by index or key, made of another: a subclass has `__getitem__` and `__len__`."""

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}


class functional_datapipe:  # a function in PyTorch's programs
    """A decorator of classes of pipes, whose objects other pipes make by a method of that `name`.

    Raises TypeError for what is no class of pipes. enable_df_api_tracing: PyTorch's, ignored.
    """

    def __init__(self, name: str, enable_df_api_tracing: bool = False) -> None:
        self.name = name

    def __call__(self, cls: Any) -> Any:
        base = next((b for b in (IterDataPipe, MapDataPipe) if isinstance(cls, type) and issubclass(cls, b)), None)
        if base is None:
            raise TypeError(f"functional_datapipe(): {cls!r} is no class of pipes")
        base.register_datapipe_as_function(self.name, cls)
        return cls


def _unwrapped(datapipe: Any) -> Any:
    """The data pipe, which PyTorch puts into an object that pickles it."""
    return datapipe


_IterDataPipeSerializationWrapper = _MapDataPipeSerializationWrapper = _unwrapped
