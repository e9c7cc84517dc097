"""`torch.ops.aten`: PyTorch's ops by their own names, `aten.add.Tensor`, which are norch's functions of these names."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Self

asked: Callable[..., Callable[[], Any] | None] = lambda overload, args, kwargs: None  # noqa: E731
"""What a call of an overload is that a `TorchDispatchMode` was asked for; see `dispatch_modes`."""


class _One:
    """There is one object of each, by which it is known: a copy is itself."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self


class Overload(_One):
    """An op for arguments of one kind, such as `aten.add.Tensor`.

    Called, it computes what PyTorch's does: norch's function of that name, which knows its arguments itself.
    """

    def __init__(self, packet: Packet, overload: str) -> None:
        self.overloadpacket = self._overloadpacket = packet
        self._overloadname = overload
        self.__name__ = f"{packet.__name__}.{overload}"
        self.__module__ = "torch._ops.aten"
        self.namespace = "aten"

    def name(self) -> str:
        """Its name in schemas: "aten::add.Tensor", and "aten::relu" for the overload "default"."""
        name = f"aten::{self.overloadpacket.__name__}"
        return name if self._overloadname == "default" else f"{name}.{self._overloadname}"

    @property
    def _schema(self) -> SimpleNamespace:
        """Its names, as those of PyTorch's schemas."""
        overload = "" if self._overloadname == "default" else self._overloadname
        return SimpleNamespace(name=f"aten::{self.overloadpacket.__name__}", overload_name=overload)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = asked(self, args, kwargs)
        return self.overloadpacket(*args, **kwargs) if given is None else given()

    def __str__(self) -> str:
        return f"aten.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverload(op='aten.{self.overloadpacket.__name__}', overload='{self._overloadname}')>"


class Packet(_One):
    """An op with its overloads: `aten.add`."""

    def __init__(self, name: str, function: Callable[..., Any] | None = None) -> None:
        self.__name__ = name
        self._function = function
        self._overloads: dict[str, Overload] = {}

    def __getattr__(self, overload: str) -> Overload:
        if overload.startswith("__"):
            raise AttributeError(overload)
        return self._overloads.setdefault(overload, Overload(self, overload))

    def overloads(self) -> list[str]:
        """The names of the overloads that were asked for so far."""
        return list(self._overloads)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._function is None:
            self._function = import_module("norch.compat.aten_calls").find(self.__name__)
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<aten.{self.__name__}>"

    __str__ = __repr__


class _Namespace:
    def __init__(self) -> None:
        self._packets: dict[str, Packet] = {}

    def __getattr__(self, name: str) -> Packet:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._packets.setdefault(name, Packet(name))


aten = _Namespace()


loaded_libraries: set[str] = set()


def load_library(path: str) -> None:
    """Raises OSError: a library of PyTorch's ops, `path`, has none for norch. A backend brings compiled kernels."""
    raise OSError(f"Could not load this library: there are no ops for norch in {path!r}")
