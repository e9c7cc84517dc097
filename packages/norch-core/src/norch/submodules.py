"""Submodules that are imported when they are first named, and PyTorch's paths that are no files."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from types import ModuleType
from typing import Any

missing_names: dict[str, None] = {}
"""Names that were asked for in norch's modules and are not there, in order: `norch run --report` lists them."""

PARTS_OF_DEVICES = ("graphs", "memory", "random", "streams")
"""Files that PyTorch has in `torch.cuda`, whose names are those of the device's module itself here."""


class EinopsFinder:
    """Asked first, until einops is imported, which from then on knows norch's tensors."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname != "einops._backends":
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        loader: Any = spec and spec.loader
        if loader is not None:
            run = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                import_module("norch.compat.einops")

            loader.exec_module = exec_module
        return spec


def join_einops() -> None:
    """Lets einops know norch's tensors: now, where it is imported already, or when it will be."""
    if "einops._backends" in sys.modules:
        import_module("norch.compat.einops")
    else:
        sys.meta_path.insert(0, EinopsFinder())


class LateFinder:
    """Asked after Python's own finders for `norch.…`, the paths that `compat.paths` makes, and einops' layers."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname == "einops.layers.norch":
            layers = PathFinder.find_spec("norch.nn.einops_layers", import_module("norch.nn").__path__)
            return layers and spec_from_file_location(fullname, layers.origin)
        if not fullname.startswith("norch."):
            return None
        found: ModuleSpec | None = import_module("norch.compat.paths").find_spec(fullname)
        return found


def late_submodules(package: str) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose submodules, those of `compat.paths` too, are imported when first named.

    Names of `compat.lacks` are there too.
    """

    def __getattr__(name: str) -> Any:
        if not name.startswith("__"):
            try:
                found = import_module(f"{package}.{name}")
                paths = sys.modules.get("norch.compat.paths")
                is_function = paths is not None and f"{package}.{name}".partition(".")[2] in paths.FUNCTIONS
                return getattr(found, name) if is_function else found
            except ModuleNotFoundError as error:
                if error.name != f"{package}.{name}":
                    raise
            lacking = import_module("norch.compat.lacks").find(package.partition(".")[2], name)
            if lacking is not None:
                return lacking
            missing_names[f"{package}.{name}"] = None
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return __getattr__
