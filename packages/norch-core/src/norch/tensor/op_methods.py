"""The methods of Tensor that are functions elsewhere: ops and operators, their in-place forms, conversions."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from ..dispatch.arguments import INTO
from ..dispatch.codegen import general_paths
from ..ops.reduction import norms
from ..ops.registry import IN_PLACE, METHODS, method
from . import elements, indexing, interop, memory, shape_changes, transfer  # noqa: F401  (they register methods)
from .inplace import inplace


def _late(name: str) -> Callable[..., Any]:
    """A function of `norch`, which is loaded when it is first used."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(import_module("norch"), name)(self, *args, **kwargs)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"`norch.{name}` of this tensor."
    return call


for _name in (
    "cholesky", "cholesky_inverse", "cholesky_solve", "det", "inverse", "logdet", "lu_solve", "matrix_exp", "pinverse",
    "qr", "slogdet", "svd", "triangular_solve",
):  # fmt: skip
    method(_name)(_late(_name))

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

# A class that has __eq__ would else have no __hash__.
OpMethods = type("OpMethods", (), {"__slots__": (), "__hash__": object.__hash__, **METHODS, **_in_place})
