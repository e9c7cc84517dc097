"""`torch.ops.aten`: PyTorch's ops by their own names, `aten.add.Tensor`, which are norch's functions of these names."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any


class _Overloads:
    """An op and each of its overloads: all call norch's function, which knows its arguments itself."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, overload: str) -> _Overloads:
        if overload.startswith("__"):
            raise AttributeError(overload)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(import_module("norch"), self.__name__)(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<aten.{self.__name__}>"


class _Namespace:
    @cache  # noqa: B019 - there is one
    def __getattr__(self, name: str) -> _Overloads:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Overloads(name)


aten = _Namespace()
