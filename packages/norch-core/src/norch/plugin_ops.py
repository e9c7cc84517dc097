"""Ops of plug-ins: what their authors import, and how norch finds them.

    # pyproject.toml                      # the module norch_fused
    [project.entry-points."norch.ops"]    @new_op(infer, {"gate": ..., "up": ...}, kernels={"cpu": ...}, sample=...)
    swiglu = "norch_fused"                def swiglu(gate: Tensor, up: Tensor) -> Tensor: ...

                                          @hookimpl
                                          def norch_ops():
                                              return [swiglu]

`norch.swiglu` then loads that module when it is first asked for. What goes wrong with one op hurts nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from . import plugins
from .backend import registry
from .backend.contract import Kernel, Operand
from .dispatch.op import KernelFactory, Op
from .dispatch.plan import Inferred
from .ops.families import by_name, composite, floating, infer_elementwise
from .plugins import discovery
from .plugins.discovery import Plugin, Refused
from .plugins.hooks import hookimpl
from .spec import Spec

if TYPE_CHECKING:
    from .testing.samples import Sample

__all__ = [
    "Inferred",
    "Kernel",
    "KernelFactory",
    "Operand",
    "Spec",
    "floating",
    "hookimpl",
    "infer_elementwise",
    "new_op",
]

GROUP = "norch.ops"

P = ParamSpec("P")
R = TypeVar("R")


def new_op(
    infer: Callable[..., Any],
    vjp: Callable[..., Any] | Mapping[str, Callable[..., Any]] | None = None,
    *,
    sample: Callable[[], Sample],
    kernels: Mapping[str, KernelFactory] | None = None,
    joint: bool = False,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Makes an op of a function that computes it from other ops: its decomposition, right on any device.

    Parameters annotated `Tensor` or `Tensor | None` are operands, all others hashable attributes.

    infer: gets the operands' specs and the attributes, and returns the result's spec, or Inferred. Raises ShapeError
        and DTypeError for what the op does not take.
    vjp: a rule for each operand by name, written with ops: `g` is the result's gradient, `y` the result, other names
        are the op's parameters. With `joint`, one rule for all. Without any, the op is differentiated through its
        parts: it is decomposed unless gradients are off.
    sample: gives the record of norch.testing.samples that the op is tried with, on every device.
    kernels: by device type, `factory(backend, operands, attrs)`, which returns a kernel as `Backend.compile` does, or
        None. It is asked where the backend has no kernel of that name.

    Raises ValueError for a name that norch has.
    """

    def make(function: Callable[P, R]) -> Callable[P, R]:
        name = function.__name__
        if name in by_name():
            raise ValueError(f"op {name} of {function.__module__}: norch has an op of that name; choose another")
        function.__annotations__ = {n: _plain(note) for n, note in function.__annotations__.items()}
        rules = dict(vjp) if isinstance(vjp, Mapping) else vjp
        plugin = {"kernels": dict(kernels or {}), "owner": function.__module__}
        op_function: Any = composite(infer, rules, joint=joint, plugin=plugin)(function)
        op_function.sample = sample
        return op_function  # type: ignore[no-any-return]

    return make


def _plain(note: Any) -> str:
    """An annotation as `composite` reads it: "Tensor | None", not "norch.Tensor | None" nor the class."""
    text = note.__name__ if isinstance(note, type) else str(note)
    return re.sub(r"\b(\w+\.)+", "", text)


# --- Finding them ---------------------------------------------------------------------------------------------------

_found: list[Plugin] | None = None
_functions: dict[str, Any] = {}
"""The functions of the plug-ins that are loaded, by name."""


def installed() -> list[Plugin]:
    """The ops that installed distributions declare, loaded or not."""
    global _found
    with discovery.lock:
        if _found is None:
            _found = discovery.declared(GROUP)
            for plugin in _found:
                reason = None if plugin.loaded else _refusal(plugin, _found)
                if reason is not None:
                    plugin.reason, plugin.loaded = reason, True
                    plugin.advice = f"pip uninstall {plugin.distribution}"
        return list(_found)


def _refusal(plugin: Plugin, among: list[Plugin]) -> str | None:
    """Why an op may not have its name."""
    if not plugin.name.isidentifier() or plugin.name.startswith("_"):
        return f"{plugin.name!r} cannot be the name of an op"
    if _is_norchs_own(plugin.name):
        return f"norch itself has the name {plugin.name!r}"
    others = [p.distribution for p in among if p.name == plugin.name and p is not plugin]
    if others:
        return f"{' and '.join(others)} has an op of that name too"
    return None


def _is_norchs_own(name: str) -> bool:
    from importlib.util import find_spec

    return (
        name in plugins.reserved_names()
        or name in by_name()
        or registry.is_device_type(name)
        or find_spec(f"norch.{name}") is not None
    )


def load(plugin: Plugin) -> None:
    """Loads the module of a plug-in and takes in its ops. What fails becomes its reason."""
    discovery.load_once(plugin, "norch_ops", _adopt)


def _adopt(plugin: Plugin, functions: Any) -> None:
    given = {getattr(f, "__name__", "?"): f for f in functions}
    for name, function in given.items():
        if not (isinstance(getattr(function, "op", None), Op) and callable(getattr(function, "sample", None))):
            raise Refused(f"its hook gives {name}, which was not made with norch.plugin_ops.new_op")
    if plugin.name not in given:
        raise Refused(f"its hook gives no op {plugin.name}; it gives {', '.join(given) or 'none'}")
    for name, function in given.items():
        other = _functions.get(name, function)
        if other is not function:
            raise Refused(f"its op {name} has the name of an op of {other.op.owner}")
    for function in given.values():
        function.op.owner = f"{plugin.distribution} {plugin.version}"
    _functions.update(given)
    plugin.reason = None


def lookup(name: str) -> Any:
    """The function of a plug-in's op, its module loaded if it was not; None where no plug-in has one of that name.

    Raises AttributeError, which names the distribution and what to do, where it cannot be used.
    """
    found = [p for p in installed() if p.name == name]
    for plugin in found:
        load(plugin)
    if any(p.usable for p in found):
        return _functions[name]
    if found:
        raise AttributeError(
            "\n  ".join([f"op {name!r} cannot be used. Installed plug-ins:", *[p.describe() for p in found]])
        )
    return None


def load_all() -> list[Any]:
    """The functions of all plug-ins that can be used, loaded if they were not."""
    for plugin in installed():
        load(plugin)
    return list(_functions.values())
