"""Op: one entry for one operation, and the plans that dispatch remembers for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet

from .. import settings
from ..autograd.rules import Rule, bind_rule
from ..dtype import DType
from ..spec import Shape, Spec

if TYPE_CHECKING:
    from ..backend.contract import Backend, Kernel, Operand

PLAN_LIMIT = 4096
"""Plans that one op keeps at most, in each of two generations."""

SCALARS = frozenset({bool, int, float})
"""Python types that are operands by value. In a plan's key such an operand is its type."""

Described = Spec | type | None
"""What an inference rule sees of an operand: its spec, the type of a Python scalar, or None for an optional one."""


class Inferred(NamedTuple):
    """The result of an inference rule: what the op returns and what its kernel sees.

    outputs: specs of the results.
    operands: what the kernel gets for each operand: a dtype and a shape to broadcast to (core converts and broadcasts),
        or a Spec that views the operand's own buffer. Optional operands that are None have no entry.
    kernel_outputs: specs of the results as the kernel sees them, where they differ (a reduction's keep their dims).
    attrs: what the kernel is compiled for beside its operands.
    """

    outputs: tuple[Spec, ...]
    operands: tuple[tuple[DType, Shape] | Spec, ...]
    attrs: Mapping[str, Any] = {}
    kernel_outputs: tuple[Spec, ...] | None = None


KernelFactory = Callable[["Backend", "tuple[Operand, ...]", Mapping[str, Any]], "Kernel | None"]
"""`factory(backend, operands, attrs)` is what `Backend.compile` is for an op that the backend does not know."""


class Op:
    """One operation: its name, parameters, inference rule, derivative and decomposition.

    name: also the name that a backend is asked to compile.
    params: names of all parameters, in order.
    tensors: which of them (by position) are operands that may be tensors.
    infer: `infer(*described)` -> Inferred, for a primitive or composite; `infer(spec, *attrs)` -> (Spec, offset) for
        a view. It raises the errors a user sees.
    vjp: a rule for each operand, None where the gradient is zero by nature; or one rule for all, returning a tuple.
    decompose: for a composite, the function that computes it from other ops.
    kernels: by device type, for an op of a plug-in: asked where the backend itself has no kernel.
    owner: the distribution that an op of a plug-in comes from, with its version.
    """

    __slots__ = (
        "__weakref__", "bound", "decompose", "infer", "joint", "keeps", "kernels", "kind", "name", "owner", "params",
        "plans", "rules", "scalars", "tensors",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        params: tuple[str, ...],
        tensors: int | tuple[int, ...],
        infer: Callable[..., Any],
        vjp: Callable[..., Any] | tuple[Callable[..., Any] | None, ...] | None = None,
        *,
        kind: str = "primitive",
        decompose: Callable[..., Any] | None = None,
        scalars: tuple[int, ...] = (),
        kernels: Mapping[str, KernelFactory] | None = None,
        owner: str = "norch-core",
    ) -> None:
        self.name = name
        self.kernels = kernels or {}
        self.owner = owner
        self.kind = kind
        self.params = params
        self.tensors = tuple(range(tensors)) if isinstance(tensors, int) else tensors
        self.scalars = scalars
        self.infer = infer
        self.decompose = decompose
        self.joint = callable(vjp) and len(self.tensors) > 1
        self.rules: tuple[Rule | None, ...] | None = None
        if callable(vjp):
            self.rules = (Rule(self, vjp),) * len(self.tensors)
        elif vjp is not None:
            self.rules = tuple([rule and Rule(self, rule) for rule in vjp])
        self.bound = [None if rule is None else bind_rule(self, rule, i) for i, rule in enumerate(self.rules or ())]
        self.keeps = Keeps(self)
        self.plans = Plans(self)
        _ops.add(self)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}({', '.join(self.params)})>"


class Keeps(dict[int, "tuple[tuple[bool, ...] | None, bool]"]):
    """What the graph keeps of a call: by the operands that need a gradient (a bit mask of parameter positions), which
    arguments (None for all of them), and whether the result."""

    __slots__ = ("op",)

    def __init__(self, op: Op) -> None:
        self.op = op

    def __missing__(self, wanted: int) -> tuple[tuple[bool, ...] | None, bool]:
        op = self.op
        assert op.rules is not None
        live = [rule for at, rule in zip(op.tensors, op.rules, strict=True) if rule is not None and wanted >> at & 1]
        kept = tuple(i not in op.tensors or any(i in rule.keeps for rule in live) for i in range(len(op.params)))
        self[wanted] = found = (None if all(kept) else kept, any(rule.keeps_result for rule in live))
        return found


class Plan:
    """What dispatch remembers of an op for operands of given specs.

    kernel: called with buffers, offsets and scalars, outputs first; None means: decompose.
    make: the same for one output, which it makes and returns: called with the other operands. None where there is no
        kernel, or one with more outputs.
    inputs: the key's parts: the specs, or types of scalars, and attributes that the plan was made for.
    out, outputs: the specs of the results. For a view, `shift` is added to the offset.
    """

    __slots__ = ("allocate", "index", "inputs", "kernel", "make", "op", "out", "outputs", "shift", "slots")

    op: Op
    inputs: tuple[Any, ...]
    out: Any  # a Spec; None for a view that there is not
    outputs: tuple[Spec, ...]
    kernel: Kernel
    make: Callable[..., Any]
    allocate: Callable[[int, int], Any]
    index: int
    shift: int
    slots: tuple[int, ...]


class Plans(dict[Any, Plan]):
    """The plan cache of an op: looking up a key that is not there makes the plan.

    A bounded, approximate LRU that costs nothing on a hit: when the young generation is full it becomes the old one,
    and what is then still used moves back from there.
    """

    __slots__ = ("old", "op")

    def __init__(self, op: Op) -> None:
        self.op = op
        self.old: dict[Any, Plan] = {}

    def __missing__(self, key: Any) -> Plan:
        plan = self.old.pop(key, None)
        if plan is None:
            from .plan import make_plan

            plan = make_plan(self.op, key)
        if len(self) >= PLAN_LIMIT:
            self.old = dict(self)
            self.clear()
        self[key] = plan
        return plan


_ops: WeakSet[Op] = WeakSet()


def all_ops() -> Iterator[Op]:
    """Every op that was defined."""
    return iter(tuple(_ops))


def forget_plans() -> None:
    """Empties every plan cache: after a change of default dtype or of a device's backend."""
    for op in all_ops():
        op.plans.clear()
        op.plans.old.clear()


settings.on_change(forget_plans)
