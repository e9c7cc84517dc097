"""The general path from a call of an op to a kernel: what the call paths of `codegen` leave to it."""

from __future__ import annotations

from collections.abc import Hashable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from ..autograd.graph import is_recording, record, resolve, set_recording
from ..errors import DTypeError, NorchError
from ..observing import DECOMPOSED, observable
from ..spec import Spec
from ..tensor_base import TakenOver, TensorBase, make_tensor
from .arguments import describe, foreign, is_plain, plain
from .codegen import general_paths
from .failure import allocate_for, raise_failure
from .kernels import compile_copy
from .op import Op
from .plan import SCALARS, Plan
from .traced import KINDS

if TYPE_CHECKING:
    from ..tensor import Tensor


def run(op: Op, *args: Any) -> Any:
    """Runs a primitive or composite on its arguments, in the order of its parameters.

    Operands are tensors, Python scalars where the op takes them, or None; everything else is hashable. Returns a
    tensor, or a tuple of them.
    """
    try:
        plan = op.plans[_key(op, args)]
    except TakenOver as error:
        return error.run(op, args)
    return execute(plan, args)


def run_again(error: Exception | None, op: Op, *args: Any) -> Any:
    """`run` where a call path could not look up its plan: it raises what a user should see of the mistake, if any."""
    if isinstance(error, TakenOver):
        return error.run(op, args)
    handed_over = foreign(args)
    if handed_over is not None:
        return handed_over(op.name, args, {})
    if isinstance(error, NorchError):
        raise error
    if op.kind == "primitive" and len(op.tensors) == len(op.params) == 2:
        return run_mixed(op, *args)
    try:
        args = tuple([a if i in op.tensors and i not in op.mixed else plain(a) for i, a in enumerate(args)])
        if not op.variadic:
            for i in op.tensors:
                if not (isinstance(args[i], TensorBase) or i in op.mixed or (args[i] is None and i in op.optional)):
                    raise DTypeError(f"{op.name}(): {op.params[i]} must be a Tensor, got {describe(args[i])}")
            if op.mixed and not any(isinstance(args[i], TensorBase) for i in op.tensors):  # of numbers only
                first = min(op.mixed)
                args = (*args[:first], TensorBase._result_class._scalar(args[first]), *args[first + 1 :])
        for i in set(range(len(args))).difference(op.slots):
            if not (is_plain(args[i]) and isinstance(args[i], Hashable)):
                raise DTypeError(f"{op.name}(): {op.params[i]} cannot be {describe(args[i])}")
        if op.kind != "view":
            return run(op, *args)
        if op.place is None:
            op.plans[_key(op, args)]  # what it raises names the op
            return op.call(*args)
        raise error or DTypeError(f"{op.name}(): unexpected arguments {args[1:]!r:.80}")
    except Exception as found:
        raise found from None


def run_into(error: Exception | None, op: Op, out: Tensor, *args: Any) -> None:
    """The same for a call path that writes into the memory of `out`."""
    if isinstance(error, TakenOver):
        return error.into(op, out, args)
    if isinstance(error, NorchError):
        raise error
    launch_into(op.into_plans[(out.spec, *_key(op, args))], out, args)


def launch_into(plan: Plan, out: Tensor, args: tuple[Any, ...]) -> None:
    flat = [out.buffer, out.offset]
    _flatten(flat, [args[i] for i in plan.slots])
    try:
        plan.kernel(*flat)
    except Exception as error:
        raise_failure(plan, error)


def run_mixed(op: Op, a: Any, b: Any) -> Any:
    """A binary op where an operand is not a tensor: a Python or NumPy scalar, or an array."""
    given = a, b
    a, b = as_operand(a), as_operand(b)
    if a is NotImplemented or b is NotImplemented:
        foreign = given[0 if a is NotImplemented else 1]
        if isinstance(foreign, complex):
            return import_module("norch.compat.complex_creation").with_number(op.name, *given)
        reflected = hasattr(type(foreign), f"__r{_DUNDERS.get(op.name, op.name)}__")
        if reflected or (op.name in _COMPARISONS and a is not NotImplemented):
            return NotImplemented  # Python then asks the other operand
        raise DTypeError(f"{op.name}(): operands must be tensors, numbers or arrays, got {describe(foreign)}") from None
    if not (isinstance(a, TensorBase) or isinstance(b, TensorBase)):
        a = TensorBase._result_class._scalar(a)
    if any(isinstance(x, np.ndarray) for x in given):
        a, b = TensorBase._result_class._as_in_numpy(op.name, a, b)
    return run(op, a, b)


_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
_DUNDERS = {
    "div": "truediv", "floor_divide": "floordiv", "remainder": "mod", "bitwise_and": "and", "bitwise_or": "or",
    "bitwise_xor": "xor", "bitwise_left_shift": "lshift", "bitwise_right_shift": "rshift",
}  # fmt: skip


def as_operand(value: Any) -> Any:
    """`value` as an operand: a tensor or Python scalar; NumPy's are converted; NotImplemented for anything else."""
    kind = type(value)
    if kind in SCALARS or isinstance(value, TensorBase):
        return value
    if isinstance(value, bool | int | float):
        return float(value) if isinstance(value, float) else int(value)
    return TensorBase._result_class._from_array(value)


def _is_tracked(op: Op, args: tuple[Any, ...]) -> bool:
    """Whether what is computed from `args` is to be differentiated."""
    if is_recording():
        for x in args[0] if op.variadic else [args[i] for i in op.tensors]:
            if getattr(x, "node", None) is not None and resolve(x) is not None:
                return True
    return False


def execute(plan: Plan, args: tuple[Any, ...]) -> Any:
    """Allocates, calls the kernel and records, or decomposes."""
    op = plan.op
    tracked = _is_tracked(op, args)
    # A composite without a rule of its own is differentiated through its parts.
    if plan.kernel is None or (tracked and op.rules is None and op.decompose is not None):
        if tracked and op.rules is not None:  # it records itself, so that its parts need not be
            set_recording(False)
            try:
                outputs = _decompose(plan, args)
            finally:
                set_recording(True)
        else:
            outputs = _decompose(plan, args)
    else:
        outputs = tuple([make_tensor(s, _allocate(plan, s.nbytes)) for s in plan.outputs])
        flat: list[Any] = []
        for out in outputs:
            flat += (out.buffer, 0)
        _flatten(flat, args[0] if op.variadic else [args[i] for i in plan.slots])
        try:
            plan.kernel(*flat)
        except Exception as error:
            raise_failure(plan, error)
    if tracked and op.rules is not None:
        record(plan, args, outputs)
    return outputs[0] if len(outputs) == 1 else outputs


def _allocate(plan: Plan, nbytes: int) -> Any:
    try:
        return plan.allocate(nbytes, plan.index)
    except Exception as error:
        raise_failure(plan, error)


def _flatten(flat: list[Any], values: Any) -> None:
    """Buffers, offsets and scalars, as a kernel takes them."""
    for value in values:
        if isinstance(value, TensorBase):
            flat += (value.buffer, value.offset)
        else:
            flat.append(value)


def _key(op: Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
    if op.variadic:
        if not all(isinstance(x, TensorBase) for x in args[0]):
            kinds = ", ".join([type(x).__name__ for x in args[0]])
            raise DTypeError(f"{op.name}(): expected a sequence of tensors, got {kinds}")
        return tuple([x.spec for x in args[0]]), *args[1:]
    return tuple([a.spec if isinstance(a, TensorBase) else _key_of(a, i, op) for i, a in enumerate(args)])


def _key_of(value: Any, at: int, op: Op) -> Any:
    if at in op.slots:
        kind = type(value)
        if kind in SCALARS:
            return KINDS.get(kind, kind)
        if value is not None and kind is not Spec:
            wanted = "a number" if at in op.numbers or at in op.scalars else "a Tensor"
            raise DTypeError(f"{op.name}(): {op.params[at]} must be {wanted}, got {describe(value)}")
    elif type(value) is list:
        return tuple(value)
    return value


@observable(DECOMPOSED)
def _decompose(plan: Plan, args: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """Computes a composite from its parts."""
    op = plan.op
    assert op.decompose is not None
    result = op.decompose(*args)
    if not isinstance(result, tuple):
        return (result if op.rules is None else _as_promised(result, plan.out),)
    if op.rules is None:
        return result
    return tuple([_as_promised(r, spec) for r, spec in zip(result, plan.outputs, strict=True)])


def _as_promised(result: Tensor, spec: Spec) -> Tensor:
    """A result in the layout that the op's inference rule gave it, by which its memory is read when it was saved."""
    if result.spec is spec:
        return make_tensor(spec, result.buffer, result.offset)
    buffer = allocate_for(spec)
    compile_copy(spec, result.spec)(buffer, 0, result.buffer, result.offset)
    return make_tensor(spec, buffer)


def call_in_place(plan: Plan, args: list[Any]) -> None:
    """Calls the kernel of `plan` on buffers, offsets and scalars as they are: it allocates nothing."""
    try:
        plan.kernel(*args)
    except Exception as error:
        raise_failure(plan, error)


general_paths.update(_execute=execute, _again=run_again, _into=run_into)
