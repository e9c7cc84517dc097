"""`norch new-backend NAME`: a plug-in package that installs and passes at once, to be filled with real kernels.

The folder `plain` is such a package, for the device "newdevice"; `native` has the files that differ where kernels are
compiled. Both are copied with that word exchanged.
"""

from __future__ import annotations

import keyword
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from .. import plugins
from ..backend import registry
from ..errors import NorchError

if TYPE_CHECKING:
    import argparse

WORD = "newdevice"
SKIPPED = ("__pycache__", ".pyc", ".so")
RESERVED = frozenset(
    {"cpu", "cuda", "numpy", "nn", "optim", "utils", "vision", "core", "testing", "backend", "null", "strict", "shadow"}
)


class ScaffoldError(NorchError, ValueError):
    """A name or a folder that a new backend cannot have."""


def new_backend(name: str, folder: str | Path = ".", *, native: bool = False) -> Path:
    """Writes the package norch-`name` for the device `name` into a new folder of that name below `folder`.

    native: with kernels compiled by CMake and nanobind. Returns the package's folder. Raises ScaffoldError for a name
    that no device can have, and where the folder is there already.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise ScaffoldError(f"{name!r} cannot be a device type: lower-case letters, digits and _, a letter first")
    if name.endswith("_") or "__" in name:  # norch-a_ is no name of a distribution, norch-a--b is that of norch-a-b
        raise ScaffoldError(
            f"{name!r} cannot be a device type: a distribution's name has no _ at its end, nor two together"
        )
    is_module = not registry.is_device_type(name) and find_spec(f"norch.{name}") is not None
    if name in RESERVED or is_module or name in plugins.reserved_names():  # norch.NAME is to be the device's module
        raise ScaffoldError(f"{name!r} is a name of norch's own; choose another device type")
    to = Path(folder) / f"norch-{name.replace('_', '-')}"
    if to.exists():
        raise ScaffoldError(f"{to} is there already")
    for source in ("plain", "native") if native else ("plain",):
        root = Path(__file__).parent / source
        for file in sorted(root.rglob("*")):
            if file.is_file() and not any(part.endswith(SKIPPED) for part in file.parts):
                target = to / str(file.relative_to(root)).replace(WORD, name)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(_renamed(file.read_text(), name))
    if native:
        _use_native(to / "src" / f"norch_{name}" / "backend.py")
    return to


def _renamed(text: str, name: str) -> str:
    camel = "".join(part.capitalize() for part in name.split("_"))
    text = text.replace(f"norch-{WORD}", f"norch-{name.replace('_', '-')}")
    return text.replace(WORD, name).replace("NewDevice", camel)


def _use_native(backend: Path) -> None:
    """Lets `compile` ask for a native kernel first."""
    text = backend.read_text()
    asks = "        function = KERNELS.get(op)\n"
    imports = "\nArray = Any\n"
    assert asks in text
    assert imports in text
    text = text.replace(
        asks, f"        found = native.compile(op, operands)\n        if found:\n            return found\n{asks}"
    )
    backend.write_text(text.replace(imports, f"\nfrom . import native\n{imports}"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the device type, such as opencl")
    parser.add_argument("--native", action="store_true", help="with kernels compiled by CMake and nanobind")
    parser.add_argument("--to", type=Path, default=Path(), metavar="FOLDER", help="where to make its folder (here)")


def main(options: argparse.Namespace) -> int:
    """0, or 2 where the package cannot be made."""
    try:
        folder = new_backend(options.name, options.to, native=options.native)
    except (ScaffoldError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{folder}: a backend that passes. Try it, then make it yours:")
    print(f"    pip install -e {folder}\n    norch conformance --device {options.name}")
    return 0
