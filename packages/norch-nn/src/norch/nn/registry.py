"""What a module says that is used before `Module.__init__` has run."""

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
