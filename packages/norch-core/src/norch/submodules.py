"""Submodules that are imported when they are first named, and PyTorch's paths that are no files."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import Any

missing_names: dict[str, None] = {}
"""Names that were asked for in norch's modules and are not there, in order: `norch run --report` lists them."""


class LateFinder:
    """Asked after Python's own finders for `norch.…`: the paths that `compat.paths` makes."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if not fullname.startswith("norch."):
            return None
        found: ModuleSpec | None = import_module("norch.compat.paths").find_spec(fullname)
        return found


def late_submodules(package: str) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose submodules, those of `compat.paths` too, are imported when first named."""

    def __getattr__(name: str) -> Any:
        if not name.startswith("__"):
            try:
                return import_module(f"{package}.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"{package}.{name}":
                    raise
            missing_names[f"{package}.{name}"] = None
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return __getattr__


def late_function(module: str, name: str, doc: str) -> Callable[..., Any]:
    """A function of a module that is imported when it is first called."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(import_module(module), name)(*args, **kwargs)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = doc
    return call
