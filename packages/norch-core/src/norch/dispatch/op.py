"""Op: one entry for one operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from ..autograd.rules import Rule, bind_rule
from ..autograd.saved_attributes import name_saved
from .codegen import call_path
from .plan import Plans

if TYPE_CHECKING:
    from ..backend.contract import Backend, Kernel, Operand
    from ..tensor import Tensor

KernelFactory = Callable[["Backend", "tuple[Operand, ...]", Mapping[str, Any]], "Kernel | None"]
"""`factory(backend, operands, attrs)` is what `Backend.compile` is for an op that the backend does not know."""


class Op:
    """One operation: its name, parameters, inference rule, derivative and decomposition.

    name: that of the op; `kernel` that of the kernel which a backend is asked to compile, the same unless given.
    params: names of all parameters, in order.
    tensors: which of them (by position) are operands that may be tensors. Of these, `optional` ones may be None, and
        `mixed` ones Python scalars, which are converted to the operand's dtype. With `variadic`, the only one is a
        sequence of tensors.
    numbers: operands that are always Python scalars, converted likewise. scalars: such that are passed as they are,
        to a primitive ints.
    place: of a view, a parameter that moves the view and changes nothing else of it, so that plans do not depend on it.
    infer: `infer(*described)` -> Inferred, for a primitive or composite; `infer(spec, *attrs)` -> (Spec, offset) for
        a view, None where there is no such view. It raises the errors a user sees.
    vjp: a rule for each operand, None where the gradient is zero by nature; or one rule for all, returning a tuple.
    decompose: for a composite, the function that computes it from other ops.
    kernels: by device type, for an op of a plug-in: asked where the backend itself has no kernel.
    is_elementwise: of a composite, whether it decomposes into elementwise ops alone, which may be one kernel ("fused").
    owner: the distribution that an op of a plug-in comes from, with its version.

    `call(*arguments)` runs it, `into(out, *arguments)` writes its result into the memory of `out`, unrecorded.
    """

    __slots__ = (
        "__weakref__", "bound", "call", "decompose", "infer", "into", "into_plans", "is_elementwise", "joint", "kernel",
        "kernels", "kind", "mixed", "name", "numbers", "optional", "owner", "params", "place", "plans", "rules",
        "saves", "saves_tensors", "scalars", "slots", "tensors", "variadic",
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
        kernel: str | None = None,
        decompose: Callable[..., Any] | None = None,
        optional: tuple[int, ...] = (),
        mixed: tuple[int, ...] = (),
        numbers: tuple[int, ...] = (),
        scalars: tuple[int, ...] = (),
        place: int | None = None,
        variadic: bool = False,
        is_elementwise: bool = False,
        kernels: Mapping[str, KernelFactory] | None = None,
        owner: str = "norch-core",
    ) -> None:
        self.name, self.kernel = name, kernel or name
        self.kernels = kernels or {}
        self.owner = owner
        self.kind = kind
        self.params = params
        name_saved(params)
        self.tensors = tuple(range(tensors)) if isinstance(tensors, int) else tensors
        self.optional, self.mixed, self.numbers, self.scalars = optional, mixed, numbers, scalars
        self.slots = tuple(sorted((*self.tensors, *numbers, *scalars)))
        self.place, self.variadic = place, variadic
        self.infer = infer
        self.decompose, self.is_elementwise = decompose, is_elementwise
        self.joint = variadic or (callable(vjp) and len(self.tensors) > 1)
        self.rules: tuple[Rule | None, ...] | None = None
        if callable(vjp):
            self.rules = (Rule(self, vjp),) * len(self.tensors)
        elif vjp is not None:
            self.rules = tuple([rule and Rule(self, rule) for rule in vjp])
        self.bound = [None if rule is None else bind_rule(self, rule, i) for i, rule in enumerate(self.rules or ())]
        self.saves_tensors = any(
            rule.saved_outputs or not rule.saved_inputs.isdisjoint(self.tensors) for rule in self.rules or () if rule
        )
        self.saves = Saves(self)
        self.plans = Plans(self)
        self.into_plans = Plans(self, into=True)
        self.call: Callable[..., Tensor] = call_path(self)
        self.into: Callable[..., None] = call_path(self, into=True)
        _ops.add(self)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}({', '.join(self.params)})>"


class Saves(dict[int, "tuple[tuple[bool, ...] | None, int]"]):
    """What the graph saves of a call: by the operands that need a gradient (a bit mask of parameter positions), which
    arguments (None for all of them), and which outputs (`rules.NONE`, `SECOND` or `ALL`)."""

    __slots__ = ("op",)

    def __init__(self, op: Op) -> None:
        self.op = op

    def __missing__(self, wanted: int) -> tuple[tuple[bool, ...] | None, int]:
        op = self.op
        assert op.rules is not None
        live = [rule for at, rule in zip(op.tensors, op.rules, strict=True) if rule is not None and wanted >> at & 1]
        saved = tuple(
            i not in op.tensors or any(i in rule.saved_inputs for rule in live) for i in range(len(op.params))
        )
        self[wanted] = found = (None if all(saved) else saved, max(rule.saved_outputs for rule in live))
        return found


_ops: WeakSet[Op] = WeakSet()


def all_ops() -> Iterator[Op]:
    """Every op that was defined."""
    return iter(tuple(_ops))
