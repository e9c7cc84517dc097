"""The methods of Tensor that are functions elsewhere: ops and operators, their in-place forms, conversions."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, update_wrapper
from importlib import import_module
from types import CellType, FunctionType
from typing import Any

from ..dispatch.arguments import INTO
from ..dispatch.codegen import general_paths
from ..ops.reduction import norms
from ..ops.registry import FUNCTIONS, IN_PLACE, METHODS, method
from . import (  # noqa: F401  (they register methods)
    assignment,
    dlpack,
    elements,
    indexing,
    interop,
    late_methods,
    linear_algebra,
    memory,
    shape_changes,
    sharing,
    special,
    transfer,
)
from .inplace import inplace


def _of_linalg(name: str) -> Callable[[Any], Any]:
    """A function of `norch.linalg`, which is loaded when it is first used."""

    def call(self: Any) -> Any:
        return getattr(import_module("norch.linalg"), name)(self)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"`norch.linalg.{name}` of this tensor."
    return call


_LINALG = {"det": "det", "inverse": "inv", "logdet": "logdet", "matrix_exp": "matrix_exp", "slogdet": "slogdet"}
for _name, _original in _LINALG.items():
    method(_name)(_of_linalg(_original))

norms.matrix_norm = lambda *args: import_module("norch.linalg").matrix_norm(*args)


def _of_out(name: str) -> Callable[..., Any]:
    """A function of `norch.tensor.out`, loaded likewise."""
    return lambda *args, **kwargs: getattr(import_module("norch.tensor.out"), name)(*args, **kwargs)


INTO.append(_of_out("write_out"))
general_paths["_with_out"] = _of_out("of_call_path")

_in_place: dict[str, Any] = {}
_shared: dict[Any, Any] = {}  # aliases such as sub_ and subtract_ are one method
for _name, _function in IN_PLACE.items():
    _key = (_function, _name.startswith("__"))
    if _key not in _shared:
        _shared[_key] = inplace(_function, _name[:-1])
    _in_place[_name] = _shared[_key]


@cache
def _copied(function: Any) -> Any:
    """A function that is told apart from `function`, which does the same."""
    code, itself = function.__code__, CellType()
    cells = [
        itself if name == "call" else cell for name, cell in zip(code.co_freevars, function.__closure__, strict=True)
    ]
    own = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, tuple(cells))
    itself.cell_contents = own
    own.__kwdefaults__ = function.__kwdefaults__
    return update_wrapper(own, function)


for _name in METHODS:
    if FUNCTIONS.get(_name) is METHODS[_name] and METHODS[_name].__closure__:
        METHODS[_name] = _copied(METHODS[_name])  # by which a class knows what it is asked for (`overriding`)

# A class that has __eq__ would else have no __hash__.
OpMethods = type("OpMethods", (), {"__slots__": (), "__hash__": object.__hash__, **METHODS, **_in_place})
