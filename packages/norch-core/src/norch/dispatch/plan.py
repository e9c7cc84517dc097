"""Plans: what dispatch does once for operands of given specs, and remembers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from weakref import WeakSet

from .. import settings
from ..backend.contract import IN_PLACE, Kernel
from ..device import Device, has_stand_in
from ..dtype import DType
from ..errors import DeviceError
from ..spec import Shape, Spec
from . import kernels
from .arguments import check_attributes, is_plain
from .kernels import BoundKernel, op_kernel
from .traced import KINDS

if TYPE_CHECKING:
    from .op import Op

PLAN_LIMIT = 8192
"""Plans that all caches together keep at most, in each of two generations: 2 kB each."""

MOST_KEPT = 3
"""States of precision and switches whose plans are kept besides those of the present one."""

SCALARS = frozenset({bool, int, float, *KINDS})
"""Python types that are operands by value. In a plan's key such an operand is its type."""


class Part(NamedTuple):
    """A step of an op that fills its result part by part: kernel `op` ("copy" or "fill") writes operand `operand` (its
    place among the operands) to the elements of the result that `spec` shows, `shift` elements from its first."""

    op: str
    spec: Spec
    shift: int
    operand: int


class Inferred(NamedTuple):
    """The result of an inference rule: what the op returns and what its kernel sees.

    outputs: specs of the results.
    operands: what the kernel gets for each operand: a dtype and a shape to broadcast to (core converts and broadcasts),
        or a Spec that views the operand's own buffer. Optional operands that are None have no entry.
    kernel_outputs: specs of the results as the kernel sees them, where they differ (a reduction's keep their dims).
    attrs: what the kernel is compiled for beside its operands.
    parts: for an op that fills its result part by part, unless the backend has a kernel for the whole.
    native: False where no backend is to be asked for a kernel.
    """

    outputs: tuple[Spec, ...]
    operands: tuple[tuple[DType, Shape] | Spec, ...]
    attrs: Mapping[str, Any] = {}
    kernel_outputs: tuple[Spec, ...] | None = None
    parts: tuple[Part, ...] | None = None
    native: bool = True


class Plan:
    """What dispatch remembers of an op for operands of given specs.

    kernel: called with buffers, offsets and scalars, outputs first; None means: decompose.
    make: the same for one output, which it allocates and returns: called with the other operands. None where there is
        no kernel, or one with more outputs.
    inputs: by parameter the spec, type of scalar or attribute that the plan was made for; `operands` those of tensors.
    out, outputs: the specs of the results. For a view, `shift` is added to the offset.
    in_place: for a plan that writes into a tensor, whether that has the result's shape and dtype.
    """

    __slots__ = (
        "allocate", "in_place", "index", "inputs", "kernel", "make", "op", "operands", "out", "outputs", "shift",
        "slots",
    )  # fmt: skip

    op: Op
    inputs: tuple[Any, ...]
    operands: tuple[Any, ...]
    out: Any  # a Spec; None for a view that there is not
    outputs: tuple[Spec, ...]
    kernel: Kernel
    make: Callable[..., Any]
    allocate: Callable[[int, int], Any]
    in_place: bool
    index: int
    shift: int
    slots: tuple[int, ...]


class Plans(dict[Any, Plan]):
    """A plan cache of an op: looking up a key that is not there makes the plan.

    The key has for each parameter of the op a spec, the type of a scalar or a hashable attribute. With `into`, the spec
    of the tensor that the result is written into comes first.

    Together they are a bounded, approximate LRU that costs nothing on a hit: when the young generation of all is full
    it becomes the old one, and what is then still used moves back from there.
    """

    __slots__ = ("__weakref__", "aside", "into", "kept", "old", "op")

    young: ClassVar[int] = 0

    def __init__(self, op: Op, into: bool = False) -> None:
        self.op, self.into = op, into
        self.old: dict[Any, Plan] = {}
        self.aside: tuple[dict[Any, Plan], dict[Any, Plan]] | None = None
        """Both generations that `exchange_plans` has put aside."""
        self.kept: dict[Hashable, tuple[dict[Any, Plan], dict[Any, Plan]]] = {}
        """Both generations of other states of precision and switches."""
        _caches.add(self)

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)

    def __missing__(self, key: Any) -> Plan:
        watched = kernels.watchers
        plan = self.old.pop(key, None)
        if plan is None:
            values = key if type(key) is tuple else (key,)
            if any(type(value) is type and value in KINDS for value in values):
                return self[tuple([KINDS.get(value, value) if type(value) is type else value for value in values])]
            if not all(map(is_plain, values)):
                raise TypeError("a call path leaves such arguments to run_again")
            plan = make_plan(self.op, values[1:], values[0]) if self.into else make_plan(self.op, values)
        if kernels.watchers is not watched:
            return plan  # another thread has begun or ended a recording, whose plans note their calls
        Plans.young += 1
        if Plans.young > PLAN_LIMIT:
            Plans.young = 1
            for plans in tuple(_caches):
                plans.old = dict(plans)
                plans.clear()
        self[key] = plan
        return plan


_caches: WeakSet[Plans] = WeakSet()


_kept: dict[Hashable, int] = {}
"""The states that have plans in `Plans.kept`, the oldest first, and how many of them are young."""


def forget_plans() -> None:
    """Empties every plan cache."""
    for plans in tuple(_caches):
        plans.clear()
        plans.old.clear()
        plans.kept.clear()
    Plans.young = 0
    _kept.clear()


def _switch_plans(before: Hashable, after: Hashable) -> None:
    """Keeps the plans that were made in the state `before`, and goes on with those of the state `after`."""
    if kernels.watchers:  # whoever watches kernels may have put plans aside
        forget_plans()
        return
    caches = tuple(_caches)
    if any(plans or plans.old for plans in caches):
        _kept[before] = Plans.young
    dropped = [next(iter(_kept))] if len(_kept) > MOST_KEPT else []
    for plans in caches:
        if plans or plans.old:
            plans.kept[before] = (dict(plans), plans.old)
            plans.clear()
            plans.old = {}
        young, old = plans.kept.pop(after, ({}, {}))
        plans.update(young)
        plans.old.update(old)
        for state in dropped:
            plans.kept.pop(state, None)
    Plans.young = _kept.pop(after, 0)
    for state in dropped:
        _kept.pop(state, None)


def exchange_plans() -> None:
    """Exchanges what every plan cache holds for what it held when this was last called."""
    for plans in tuple(_caches):
        aside = plans.aside
        if plans or plans.old or aside is not None:
            plans.aside = (dict(plans), plans.old) if plans or plans.old else None
            plans.clear()
            plans.old = {}
            if aside is not None:
                plans.update(aside[0])
                plans.old = aside[1]


def forget_plans_aside() -> None:
    for plans in tuple(_caches):
        plans.aside = None


settings.on_change(forget_plans, _switch_plans)


def make_plan(op: Op, values: tuple[Any, ...], into: Spec | None = None) -> Plan:
    """The plan of `op` for the parts of a key. Raises the errors that a user sees."""
    plan: Plan = object.__new__(Plan)
    plan.op = op
    if op.kind == "view":
        return _view_plan(plan, op, values)
    plan.inputs = values
    plan.operands = values[0] if op.variadic else tuple([values[i] for i in op.tensors])
    devices: set[Device] = set()
    if op.kind != "step":
        devices = _devices(op, plan.operands)
        if len(devices) > 1:
            values = _on_stand_ins(values)
        if op.decompose is not None:
            attributes = {p: v for i, (p, v) in enumerate(zip(op.params, values, strict=True)) if i not in op.slots}
            check_attributes(op.name, op.decompose.__annotations__, attributes)
    inferred: Inferred | None = op.infer(*values)
    values = plan.inputs
    plan.make = plan.kernel = None  # type: ignore[assignment]
    if inferred is None:  # a step whose tensors do not suit one kernel
        return plan
    plan.outputs = inferred.outputs
    plan.out = inferred.outputs[0]
    if into is not None:
        seen = inferred.kernel_outputs[0] if inferred.kernel_outputs else plan.out
        alike = into.shape == seen.shape == plan.out.shape and into.dtype is plan.out.dtype
        plan.in_place = alike and not into.overlaps
        inferred = inferred._replace(kernel_outputs=(into,))
    device = plan.out.device
    if into is not None:
        devices.add(into.device)
    if devices and {Device(device)} != set(map(Device, devices)):  # the result is where a 0-d tensor on the CPU is
        raise _on_several(op, {device, *devices})
    plan.index = device.index
    plan.allocate = device.backend.allocate
    if op.kind == "step":
        plan.slots, given = (), [(True, float)] * len(inferred.operands)
    elif op.variadic:
        plan.slots, given = (), [(False, v) for v in plan.operands]
    else:
        plan.slots = tuple([i for i in op.slots if values[i] is not None])
        given = [(i in op.scalars, values[i]) for i in plan.slots]
    if inferred.native and (into is None or plan.in_place or op.kernel in IN_PLACE):
        plan.kernel = op_kernel(op, device, given, inferred, values)
    if into is not None:
        plan.in_place = plan.in_place and plan.kernel is not None
    elif plan.kernel is not None and len(plan.outputs) == 1:
        whole = plan.kernel.kernel if type(plan.kernel) is BoundKernel else plan.kernel
        plan.make = device.backend.allocating(whole, plan.out.nbytes, plan.index)
        if type(plan.kernel) is BoundKernel:
            plan.make = partial(plan.make, *plan.kernel.numbers)
    return plan


def _view_plan(plan: Plan, op: Op, values: tuple[Any, ...]) -> Plan:
    if op.place is not None:
        values = (*values[: op.place], 0, *values[op.place :])
    plan.inputs, plan.operands = values, tuple([values[i] for i in op.tensors])
    found = op.infer(*values)
    plan.out, plan.shift = found if found is not None else (None, 0)
    plan.outputs = (plan.out,)
    return plan


def _devices(op: Op, operands: tuple[Any, ...]) -> set[Device]:
    """That of the operands, or it and what stands for it. 0-d tensors on the CPU go to the others, unless joined."""
    specs = [s for s in operands if type(s) is Spec]
    devices = {s.device for s in specs if op.variadic or s.ndim or s.device.type != "cpu"}
    if len(devices) > 1 and not (has_stand_in() and len(set(map(Device, devices))) == 1):
        raise _on_several(op, devices)
    return devices


def _on_several(op: Op, devices: set[Device]) -> DeviceError:
    return DeviceError(f"{op.name}(): operands are on different devices: {', '.join(sorted(map(str, devices)))}")


def _on_stand_ins(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The parts of a key with specs of stand-ins in place of those of the devices that they stand for."""
    return tuple(
        [
            v.like(v.shape, v.strides, device=Device(v.device)) if type(v) is Spec
            else _on_stand_ins(v) if type(v) is tuple
            else v
            for v in values
        ]
    )  # fmt: skip
