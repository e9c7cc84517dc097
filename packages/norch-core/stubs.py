"""Writes tensor/op_methods.pyi, which tells type checkers of the methods that ops register: hatch run stubs

A test fails where it is stale.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from textwrap import fill
from typing import Any

import norch
from norch.ops.registry import IN_PLACE, METHODS

STUB = Path(norch.__file__).parent / "tensor" / "op_methods.pyi"
HEADER = "# Written by packages/norch-core/stubs.py\nfrom typing import Any\n\n"
KINDS = """
def reflected(self: Tensor, other: Any) -> Tensor: ...
def in_place(self: Tensor, *args: Any, **kwargs: Any) -> Tensor: ...
def late(self: Tensor) -> Any: ...

class OpMethods:
"""


def methods() -> str:
    """The text of tensor/op_methods.pyi."""
    found = {name: _path(name, function) for name, function in METHODS.items()} | dict.fromkeys(IN_PLACE, "in_place")
    lines = [f"    {name} = {found.pop(name)}  # type: ignore[assignment]" for name in ("__eq__", "__ne__")]
    lines.append(_wrapped([f"{name} = {path}" for name, path in found.items()], "; "))
    modules = sorted({function.__module__ for function in METHODS.values()})
    imports = [f"import {module} as {_alias(module)}" for module in modules] + ["from norch.tensor import Tensor"]
    return HEADER + "\n".join(imports) + "\n" + KINDS + "\n".join(lines) + "\n"


def _path(name: str, function: Callable[..., Any]) -> str:
    """Where a method's function is, or its kind where no module has it under a name."""
    module = sys.modules[function.__module__]
    wanted: Any = function
    while wanted is not None:
        for known, value in vars(module).items():
            if value is wanted:
                return f"{_alias(module.__name__)}.{known}"
        wanted = getattr(wanted, "__wrapped__", None)  # modules have it as it was before `checked`
    return "reflected" if name.startswith("__r") else "late"


def _alias(module: str) -> str:
    return "_".join(module.split(".")[-2:])  # two modules are called indexing


def _wrapped(parts: Iterable[str], separator: str) -> str:
    """The parts in lines of at most 120 characters, each kept whole."""
    text = separator.join(part.replace(" ", "\0") for part in sorted(parts))
    return fill(text, 120, initial_indent="    ", subsequent_indent="    ").replace("\0", " ")


if __name__ == "__main__":
    STUB.write_text(methods())
