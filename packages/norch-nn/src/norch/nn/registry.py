"""What a module says of names that it has not, and before `Module.__init__` has run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .module import Module


class Registry:
    """Stands for a registry of a module until it has one of its own: asking for it raises."""

    def __get__(self, module: Module | None, owner: type[Module]) -> Any:
        if module is None:
            return self
        raise uninitialised(module)


def uninitialised(module: Module) -> AttributeError:
    title = type(module).__name__
    return AttributeError(
        f"{title}: Module.__init__() was not called; call super().__init__() first in {title}.__init__()"
    )


class NamedAccess:
    """The last base of modules whose code names `__getattr__`, for `super().__getattr__(name)`.

    Module itself has none: with it every attribute of a module would be found four times slower.
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__[name]
        except KeyError:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'") from None


def names_getattr(cls: type) -> bool:
    """Whether a function of the class is called `__getattr__`, or names it."""
    codes = [value.__code__ for value in vars(cls).values() if hasattr(value, "__code__")]
    return "__getattr__" in vars(cls) or any("__getattr__" in code.co_names for code in codes)
