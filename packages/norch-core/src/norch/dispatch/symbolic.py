"""Elementwise composites as programs of the composite "fused": what a decomposition does to tensors that stand for
others, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from ..autograd.graph import is_recording, set_recording
from ..backend.contract import ELEMENTWISE, Operand
from ..backend.fused import FUSED_COMPOSITES, MAX_OPERANDS, MAX_STEPS, Step
from ..dtype import INTEGER, DType, float32
from ..spec import Spec, expand_strides
from ..tensor_base import TakenOver, TensorBase
from .scalars import as_scalar

if TYPE_CHECKING:
    from ..device import Device
    from .op import Op

Read = tuple[str, int]
"""What a step reads: ("operand", 0) is the composite's first, ("number", 0) one that its decomposition has, ("step", 0)
the result of the first step."""


class NotElementwise(TakenOver):
    """What a program cannot do, or, of a spec that a plan is looked up by, that the op is to become a step."""

    def run(self, op: Op, args: tuple[Any, ...]) -> Any:
        return next(a.program for a in args if isinstance(a, symbol_class())).call(op, args)

    def into(self, op: Op, out: Any, args: tuple[Any, ...]) -> NoReturn:
        raise NotElementwise(op.name)


class SymbolicSpec(Spec):
    __slots__ = ("real",)
    real: Spec

    def __hash__(self) -> int:
        raise NotElementwise

    def like(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotElementwise


def _symbolic(real: Spec) -> SymbolicSpec:
    out: SymbolicSpec = object.__new__(SymbolicSpec)
    for name in ("shape", "strides", "dtype", "device", "ndim", "numel", "nbytes", "is_contiguous", "overlaps"):
        setattr(out, name, getattr(real, name))
    out.real = real
    return out


@cache
def symbol_class() -> Any:
    """The class of tensors that stand for operands and results of a program. `name` is what steps read them by."""

    class Symbol(TensorBase._result_class, plain_results=True):  # type: ignore[call-arg, misc]
        __slots__ = ("is_number", "name", "program")

        @property
        def buffer(self) -> NoReturn:
            raise NotElementwise

        def to(self, dtype: DType) -> Any:
            real = self.spec.real
            if dtype is real.dtype:
                return self
            if self.is_number:
                raise NotElementwise
            return self.program.step("copy", (self.name,), {}, real.like(dtype=dtype))

        def detach(self) -> Symbol:
            return self

        def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
            raise NotElementwise

        __bool__ = __float__ = __int__ = __index__ = item = numpy = _refuse

    return Symbol


class Program:
    """The steps of a composite, noted while its decomposition runs. Its numbers become operands behind the outputs."""

    def __init__(self, outputs: int) -> None:
        self.first = outputs
        self.numbers: dict[tuple[str, str], int] = {}
        self.values: list[Any] = []
        self.number_operands: list[Operand] = []
        self.steps: list[tuple[str, DType, tuple[Read, ...], Mapping[str, Any]]] = []

    def symbol(self, name: Read, spec: Spec, is_number: bool = False) -> Any:
        made = object.__new__(symbol_class())
        made.spec, made.offset, made.node, made.base = _symbolic(spec), 0, None, None
        # Without _grad, so that what looks for living tensors passes over it, as over one that is being made.
        made.name, made.program, made.is_number = name, self, is_number
        return made

    def step(self, op: str, reads: Sequence[Read], attrs: Mapping[str, Any], out: Spec) -> Any:
        if out.dtype.is_stored or len(self.steps) == MAX_STEPS:
            raise NotElementwise
        self.steps.append((op, out.dtype, tuple(reads), attrs))
        return self.symbol(("step", len(self.steps) - 1), out)

    def number(self, value: Any, dtype: DType) -> Read:
        at = self.numbers.setdefault((dtype.name, repr(value)), len(self.values))
        if at == len(self.values):
            self.values.append(value)
            self.number_operands.append(Operand(dtype, (), (), True))
        return "number", at

    def call(self, op: Op, args: tuple[Any, ...]) -> Any:
        """What an op in the decomposition gives: a step, or the steps of its own decomposition."""
        if op.kernel not in ELEMENTWISE and op.kernel not in FUSED_COMPOSITES:
            if op.decompose is None:
                raise NotElementwise
            return op.decompose(*args)
        symbol = symbol_class()
        described = [a.spec.real if isinstance(a, symbol) else a for a in args]
        for i in op.slots:
            if type(described[i]) is not Spec:
                described[i] = type(described[i])
        inferred = op.infer(*described)
        (out,) = inferred.outputs
        whole = out.dtype.category == INTEGER
        if op.name == "copy":
            return self.step("copy", (args[0].name,), {}, out)
        if whole and op.name in ("floor_divide", "remainder"):
            raise NotElementwise  # they raise before they write
        reads = []
        for at, (i, wanted) in enumerate(zip(op.slots, inferred.operands, strict=True)):
            dtype = wanted.dtype if isinstance(wanted, Spec) else wanted[0]
            if isinstance(args[i], symbol):
                reads.append(args[i].to(dtype).name)
            elif type(args[i]) in (bool, int, float):
                reads.append(self.number(as_scalar(op, args[i], dtype, at), dtype))
            else:
                raise NotElementwise
        attrs = {name: value for name, value in inferred.attrs.items() if name != "given"}
        if not all(isinstance(v, int | float) or (isinstance(v, str) and v.isidentifier()) for v in attrs.values()):
            raise NotElementwise
        return self.step(op.kernel, reads, attrs, out)

    def text(self) -> str:
        """The attribute `steps`."""
        first = {"number": self.first, "operand": self.first + len(self.values)}
        steps = []
        for op, dtype, reads, attrs in self.steps:
            names = [f"s{at}" if kind == "step" else f"o{first[kind] + at}" for kind, at in reads]
            steps.append(str(Step(op, dtype.name, tuple(names), attrs)))
        return ";".join(steps)


def elementwise_program(
    op: Op, values: tuple[Any, ...], operands: Sequence[Operand], outputs: int, device: Device
) -> tuple[tuple[Operand, ...], dict[str, Any], list[Any]] | None:
    """What to ask for "fused" with in place of `op`, and its own numbers, which come behind the outputs. None where the
    decomposition of a composite is more than elementwise steps.

    values: by parameter None, an attribute, or anything for an operand. operands: what its kernel would be asked with.
    """
    shape = operands[0].shape
    if any(len(o.shape) > len(shape) or o.dtype.is_stored for o in operands):
        return None
    program = Program(outputs)
    args, seen = list(values), []
    given = [i for i in op.slots if values[i] is not None]
    for at, (i, o) in enumerate(zip(given, operands[outputs:], strict=True)):
        if o.is_scalar and o.dtype.is_floating_point and o.dtype.itemsize == 2:
            o = o._replace(dtype=float32)  # as which arithmetic takes a number
        args[i] = program.symbol(("operand", at), Spec(o.shape, o.strides, o.dtype, device), o.is_scalar)
        seen.append(o if o.is_scalar else o._replace(shape=shape, strides=expand_strides(o.shape, o.strides, shape)))
    before = is_recording()
    set_recording(False)
    try:
        found = program.call(op, tuple(args)) if op.decompose is None else op.decompose(*args)
        several = found if isinstance(found, tuple) else (found,)
        names = [r.to(o.dtype).name for r, o in zip(several, operands[:outputs], strict=True)]
    except NotElementwise:
        return None
    finally:
        set_recording(before)
    if any(kind != "step" for kind, _ in names) or len(operands) + len(program.values) > MAX_OPERANDS:
        return None
    attrs = {"steps": program.text(), "results": tuple([at for _, at in names])}
    return (*operands[:outputs], *program.number_operands, *seen), attrs, program.values
