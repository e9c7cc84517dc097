"""Names: of the variables of a graph, and of the functions in its code."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any

import norch

_HOMES = ("norch", "norch.nn.functional", "norch.linalg", "norch.fft", "norch.special", "norch.nn", "norch.nn.init")
"""Where a public function of norch is looked for, by which its path is the one that users know."""


def root() -> str:
    """What norch is called where it shows itself: `torch` in the place of PyTorch."""
    return str(norch.float32).partition(".")[0]


class Namespace:
    """Names that are taken: `create_name` gives one that is not, an identifier and no name of Python's."""

    def __init__(self) -> None:
        self._taken: set[str] = {"norch", "torch", "self"}
        self._counts: dict[str, int] = {}
        self._names: dict[int, tuple[Any, str]] = {}

    def create_name(self, candidate: str, obj: Any = None) -> str:
        """A free name that begins as `candidate`, and that of `obj` from now on; the name it has, where it has one."""
        if obj is not None and id(obj) in self._names:
            return self._names[id(obj)][1]
        name = re.sub(r"\W", "_", candidate, flags=re.ASCII) or "_unnamed"
        if name[0].isdigit():
            name = f"_{name}"
        base, _, number = name.rpartition("_")
        counted = bool(base) and number.isdigit()
        base = base if counted else name
        count = int(number) if counted else self._counts.get(base, 0)
        while name in self._taken or keyword.iskeyword(name) or hasattr(builtins, name):
            count += 1
            name = f"{base}_{count}"
        self._taken.add(name)
        self._counts[base] = max(count, self._counts.get(base, 0))
        if obj is not None:
            self._names[id(obj)] = obj, name
        return name

    def associate_name_with_obj(self, name: str, obj: Any) -> None:
        """Takes `name` for `obj`."""
        self._taken.add(name)
        self._names[id(obj)] = obj, name


def snake_case(name: str) -> str:
    """`BatchNorm2d` as `batch_norm2d`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def find(path: str) -> Any:
    """The object at a dotted path of norch, "norch.nn.functional.relu". Raises AttributeError where there is none."""
    return attrgetter(path.partition(".")[2])(norch)


@cache
def _path_in_norch(function: Callable[..., Any]) -> str | None:
    name = getattr(function, "__name__", "")
    kinds = [kind for kind in norch.Tensor.__mro__[:-1] if vars(kind).get(name) is function]
    for home in (*_HOMES, "norch.Tensor" if kinds else str(getattr(function, "__module__", ""))):
        try:
            if find(f"{home}.{name}") is function:
                return f"{home}.{name}"
        except AttributeError:
            continue
    return None


def path_of(function: Any) -> str | None:
    """The path of a function or class of norch, as "norch.relu"; None for others, and those that have none."""
    module = str(getattr(function, "__module__", ""))
    if module == "torch._ops.aten":
        path = f"norch.ops.aten.{function.__name__}"
        return path if find(path) is function else None
    if module.partition(".")[0] not in ("norch", root()) or module.startswith("norch.vision."):
        return None
    try:
        return _path_in_norch(function)
    except TypeError:  # it has no hash
        return None


def shown_path(path: str) -> str:
    """A path of norch as users read it, who may know norch as torch."""
    return path.replace("norch", root(), 1)


def qualified_name(function: Any) -> str:
    """The dotted name of a function or class."""
    path = path_of(function)
    if path is not None:
        return shown_path(path)
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or type(function).__qualname__
    module = getattr(function, "__module__", None) or type(function).__module__
    return f"{'operator' if module == '_operator' else module}.{name}"


def is_public_function(function: Any) -> bool:
    """Whether a function is one of norch's under its own name, besides being a method of Tensor, as `norch.relu` is."""
    path = path_of(function)
    return path is not None and not path.startswith("norch.Tensor.")
