"""How autocast gets between a call and its op: only while a thread is in a region are the listed ops hooked at all.

An op that is public itself gets plan caches of a class that asks for the casts; of another function what users call is
a closure (`dispatch.arguments.checked`), whose function is exchanged. What norch-core calls itself is left alone, as
what PyTorch does below autocast.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import wraps
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, Any

from ..dispatch.arguments import CHECKED_MODULES
from ..dispatch.op import Op
from ..dispatch.plan import Plans
from ..dtype import DType, bfloat16, float16, float32
from ..ops.nn.classification import cross_entropy_upcast
from ..ops.registry import FUNCTIONS, METHODS
from ..spec import Spec
from ..tensor_base import TakenOver, TensorBase
from .lists import CPU, FLOAT32, LOWER, OTHERS, REFUSE
from .state import cast, state

if TYPE_CHECKING:
    from types import CellType, CodeType, FrameType

    from ..dispatch.plan import Plan

_CASTABLE = frozenset({float32, float16, bfloat16})

_REFUSAL = (
    "binary_cross_entropy() and BCELoss are unsafe to autocast. Many models use a sigmoid layer right before the "
    "binary cross entropy layer. In this case, combine the two layers using binary_cross_entropy_with_logits() or "
    "BCEWithLogitsLoss, which are safe to autocast; or compute it in float32 in a region with enabled=False"
)

UPCASTS: dict[str, Callable[..., Any]] = {"cross_entropy": cross_entropy_upcast}
"""What computes 16-bit floats in float32 by itself, or gives None where its operands are to be cast."""

_ABOVE = ("norch.ops.matrix.einsum", "norch.ops.matrix.multi_dot", "norch.tensor.op_methods")
"""Modules of core whose calls are taken for the user's: they compute nothing themselves."""
_BELOW = "ops dispatch tensor autograd linalg func special amp plugin_ops nn.init nn.utils optim".split()


class _Below(dict[str, bool]):
    """By name of a module: whether what it calls is below autocast."""

    def __missing__(self, name: str) -> bool:
        part = name.removeprefix("norch.")
        below = name != part and name not in _ABOVE and any(f"{part}.".startswith(f"{p}.") for p in _BELOW)
        self[name] = below
        return below


_below = _Below()
_CODEGEN = "norch.dispatch.codegen"
_MODES = "norch.compat.function_modes"
_wrappers: set[CodeType] = set()
"""Public functions that do no more than call the call path of their op."""


def _before_modes(frame: Any) -> Any:
    """The frame that called a function; that of the hook where it is one that `TorchFunctionMode` hooks."""
    while frame.f_globals.get("__name__") == _MODES:
        frame = frame.f_back.f_back
    return frame


def _caller_is_below() -> bool:
    """Of a plan lookup: whether it is norch-core that called the call path."""
    frame: Any = sys._getframe(2)
    while True:  # a frame of the call path, a few where it is written first, and that of a function like `pow`
        frame = _before_modes(frame)
        name = frame.f_globals.get("__name__", "")
        if name != _CODEGEN and frame.f_code not in _wrappers:
            return _below[name]
        frame = frame.f_back


def _decide(name: str, specs: Iterable[Any]) -> tuple[str, str, DType | None] | None:
    """A device type for which autocast is on, what is to become of the function there, and the dtype that operands are
    to be cast to, None where all are as they should be. None where the function is not listed."""
    active = state.active
    device_type = policy = None
    given = []
    for spec in specs:
        kind = spec.device.type
        if device_type is None:
            if kind not in active:
                continue
            policy = (CPU if kind == "cpu" else OTHERS).get(name)
            if policy is None:
                return None
            device_type = kind
        if kind == device_type and spec.dtype in _CASTABLE:
            given.append(spec.dtype)
    if device_type is None or policy is None:
        return None
    dtype = None
    if policy == LOWER:
        dtype = active[device_type]
    elif policy == FLOAT32 or any(d is not given[0] for d in given):
        dtype = float32
    return device_type, policy, dtype if any(d is not dtype for d in given) else None


def _cast_all(value: Any, device_type: str, dtype: DType) -> Any:
    if isinstance(value, TensorBase):
        spec = value.spec
        if spec.dtype is dtype or spec.dtype not in _CASTABLE or spec.device.type != device_type:
            return value
        return cast(value, dtype)  # type: ignore[arg-type]
    if type(value) in (list, tuple):
        return [_cast_all(x, device_type, dtype) for x in value]
    return value


class Recast(TakenOver):
    """Raised where a plan is looked up for operands that autocast wants in another dtype."""

    def __init__(self, device_type: str, dtype: DType) -> None:
        self.to = device_type, dtype

    def run(self, op: Any, args: tuple[Any, ...]) -> Any:
        try:
            return op.call(*[_cast_all(a, *self.to) for a in args])
        except Exception as found:
            raise found from None


class AutocastPlans(Plans):
    """The plan cache of a listed op while it is hooked."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Plan:
        if state.active is not None:
            specs = [s for s in key if isinstance(s, Spec)] if type(key) is tuple else (key,)
            found = _decide(self.op.name, specs)
            if found is not None and found[2] is not None and not _caller_is_below():
                raise Recast(found[0], found[2])
        return dict.__getitem__(self, key)


def _has_dtype(values: Iterable[Any]) -> bool:
    """Whether the caller chose the dtype of the result."""
    return any(isinstance(v, DType) for v in values)


def _tensors(values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        if isinstance(value, TensorBase):
            yield value.spec
        elif type(value) in (list, tuple):
            yield from _tensors(value)


def _writes_out(frame: FrameType) -> bool:
    """Whether a call comes from the one that had `out=`, which autocast leaves alone."""
    return frame.f_globals.get("__name__") == "norch.tensor.out"


def _hooked(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        active = state.active
        if active is None or _writes_out(sys._getframe(1)):
            return function(*args, **kwargs)
        if _below[_before_modes(sys._getframe(2)).f_globals.get("__name__", "")]:
            return function(*args, **kwargs)
        specs = list(_tensors((*args, *kwargs.values())))
        found = _decide(name, specs)
        if found is None or kwargs.get("out") is not None:
            return function(*args, **kwargs)
        kind, policy, dtype = found
        if policy == REFUSE:
            raise RuntimeError(_REFUSAL)
        if dtype is float32 and name in UPCASTS and (out := UPCASTS[name](*args, **kwargs)) is not None:
            return out
        if dtype is not None and not (policy == FLOAT32 and _has_dtype((*args, *kwargs.values()))):
            args = tuple([_cast_all(a, kind, dtype) for a in args])
            if kwargs:
                kwargs = {k: _cast_all(a, kind, dtype) for k, a in kwargs.items()}
        state.active = None
        try:
            return function(*args, **kwargs)
        finally:
            state.active = active

    return call


# --- Hooking --------------------------------------------------------------------------------------------------------

_lock = Lock()
_threads = 0
_ops: list[Op] = []
_cells: list[tuple[CellType, Callable[..., Any], Callable[..., Any]]] = []
_seen = -1


def entry_of(function: Any) -> Op | CellType | None:
    """What is exchanged to hook a public function: the op that it is, or the cell that holds what it checks."""
    op = getattr(function, "op", None)
    if isinstance(op, Op):
        if function.__globals__["__name__"] != _CODEGEN:
            _wrappers.add(function.__code__)
        return op
    if hasattr(function, "explains"):
        return function.__closure__[function.__code__.co_freevars.index("function")]  # type: ignore[no-any-return]
    return None


def entries() -> dict[str, list[Any]]:
    """By the listed names, what there is to hook."""
    for late in (
        "norch.linalg",
        "norch.ops.nn.ctc",
        "norch.ops.nn.interpolation",
        "norch.ops.nn.sampling",
        "norch.ops.nn.volumes",
        "norch.spectral",
    ):
        import_module(late)
    tables = (FUNCTIONS, METHODS, *CHECKED_MODULES)
    found: dict[str, list[Any]] = {}
    for name in {**CPU, **OTHERS}:
        functions = {id(f): f for table in tables if (f := table.get(name)) is not None}
        found[name] = [e for e in map(entry_of, functions.values()) if e is not None]
    return found


def _collect() -> None:
    global _seen
    ops, cells, found_by_name = {}, {}, entries()
    _seen = len(CHECKED_MODULES)
    for name, found in found_by_name.items():
        for entry in found:
            if isinstance(entry, Op):
                ops[id(entry)] = entry
            else:
                function = entry.cell_contents
                cells[id(entry)] = entry, function, _hooked(name, function)
    _ops[:], _cells[:] = ops.values(), cells.values()


def hook() -> None:
    """A thread needs autocast: with the first, the listed ops are hooked."""
    global _threads
    with _lock:
        _threads += 1
        if _threads > 1:
            return
        if _seen != len(CHECKED_MODULES):
            _collect()
        for op in _ops:
            op.plans.__class__ = AutocastPlans
        for cell, _, hooked in _cells:
            cell.cell_contents = hooked


def unhook() -> None:
    """A thread needs it no more: after the last, ops are as they were."""
    global _threads
    with _lock:
        _threads -= 1
        if _threads:
            return
        for op in _ops:
            op.plans.__class__ = Plans
        for cell, function, _ in _cells:
            cell.cell_contents = function
