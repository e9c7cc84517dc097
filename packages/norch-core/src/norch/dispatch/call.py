"""Dispatch: from a call of an op to a kernel. Every kernel call of norch is in this file or in `composite_call`.

`run` is the general path. `unary_call` and `binary_call` make the functions of the two commonest families: the same
path with the loops written out, since what they cost is what a small model costs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, cast

from ..autograd.graph import (
    UNTRACKED,
    Node,
    is_recording,
    record,
    record_scalar,
    record_unary,
    resolve,
    set_recording,
    tick,
)
from ..errors import DTypeError, OutOfMemoryError
from ..spec import Spec
from .op import SCALARS, Op, Plan
from .plan import raise_failure

if TYPE_CHECKING:
    from ..device import Device
    from ..tensor import Tensor

_new = object.__new__


def bind(tensor_class: type[Tensor]) -> None:
    """Tells this module the class of results (it is loaded before that class is)."""
    globals()["Tensor"] = tensor_class


def make_tensor(spec: Spec, buffer: Any, offset: int = 0, node: Any = None, base: Tensor | None = None) -> Tensor:
    """A tensor from its parts."""
    out: Tensor = _new(Tensor)
    out.spec, out.buffer, out.offset, out.node, out.base, out._grad = spec, buffer, offset, node, base, None
    return out


# --- The call paths -------------------------------------------------------------------------------------------------


def run(op: Op, *args: Any) -> Any:
    """Runs a primitive or composite on its arguments, in the order of its parameters.

    Operands are tensors, Python scalars (those named in `op.scalars`, or where the op takes scalars) or None;
    everything else is hashable. Returns a tensor, or a tuple of them.
    """
    plan = op.plans[tuple([a.spec if isinstance(a, Tensor) else _key(a, i, op) for i, a in enumerate(args)])]
    return finish(plan, args)


def run_one(op: Op, input: Tensor, *attrs: Any) -> Any:
    """`run` for an op whose only operand is its first, and whose attributes are hashable as they are."""
    try:
        plan = op.plans[(input.spec, *attrs)]
    except AttributeError:
        _refuse(op, input)
    if plan.make is None:
        return finish(plan, (input, *attrs))
    out: Tensor = _new(Tensor)
    try:
        out.buffer = plan.make(input.buffer, input.offset)
    except Exception as error:
        raise_failure(plan, error)
    out.spec = plan.out
    out.offset = 0
    out.node = out.base = out._grad = None
    if input.node is not None:
        record(plan, (input, *attrs), (out,))
    return out


def finish(plan: Plan, args: tuple[Any, ...]) -> Any:
    """Allocates, calls the kernel and records, or decomposes."""
    op = plan.op
    # A composite without a rule of its own is differentiated through its parts.
    if plan.kernel is None or (op.rules is None and op.decompose is not None and is_recording()):
        if watcher is None:
            outputs = _decompose(plan, args)
        else:
            outputs = watcher(_decompose, op.name, plan.out.device, plan, args)
    else:
        outputs = tuple([make_tensor(s, allocate(plan, s.nbytes)) for s in plan.outputs])
        flat: list[Any] = []
        for out in outputs:
            flat += (out.buffer, 0)
        for i in plan.slots:
            value = args[i]
            if isinstance(value, Tensor):
                flat += (value.buffer, value.offset)
            else:
                flat.append(value)
        try:
            plan.kernel(*flat)
        except Exception as error:
            raise_failure(plan, error)
    record(plan, args, outputs)
    return outputs[0] if len(outputs) == 1 else outputs


def allocate(plan: Plan, nbytes: int) -> Any:
    try:
        return plan.allocate(nbytes, plan.index)
    except Exception as error:
        raise_failure(plan, error)


def allocate_on(device: Device, nbytes: int) -> Any:
    """A buffer for a tensor that no kernel has made yet."""
    try:
        return device.backend.allocate(nbytes, device.index)
    except MemoryError as error:
        raise OutOfMemoryError(f"device {device} has no room for {nbytes:,} bytes: {error}") from error


def _key(value: Any, at: int, op: Op) -> Any:
    if at in op.tensors or at in op.scalars:
        kind = type(value)
        if kind in SCALARS:
            return kind
        if value is not None and kind is not Spec:
            raise DTypeError(f"{op.name}(): {op.params[at]} must be a Tensor, got {_describe(value)}")
    elif type(value) is list:
        return tuple(value)
    return value


def _describe(value: object) -> str:
    return f"{type(value).__name__} {value!r:.80}"


watcher: Callable[..., Any] | None = None
"""`watcher(decompose, op, device, plan, args)` calls `decompose(plan, args)`: see norch.coverage."""


def _decompose(plan: Plan, args: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """Computes a composite from its parts. The composite records itself, so that its parts need not be."""
    op = plan.op
    assert op.decompose is not None
    if op.rules is None:
        result = op.decompose(*args)
        return result if isinstance(result, tuple) else (result,)
    before = is_recording()
    set_recording(False)
    try:
        result = op.decompose(*args)
    finally:
        set_recording(before)
    results = result if isinstance(result, tuple) else (result,)
    return tuple([_as_promised(r, spec) for r, spec in zip(results, plan.outputs, strict=True)])


def _as_promised(result: Tensor, spec: Spec) -> Tensor:
    """A result in the layout that the op's inference rule gave it, by which its memory is read when it was saved."""
    if result.spec is spec:
        return make_tensor(spec, result.buffer, result.offset)
    from ..ops.copying import write

    out = make_tensor(spec, allocate_on(spec.device, spec.nbytes))
    write(out, result)
    return out


def unary_call(op: Op) -> Callable[[Tensor], Tensor]:
    """The function of an op on one tensor."""
    plans = op.plans
    recorded = op.rules is not None
    keeps, keep_out = op.keeps[1] if recorded else (None, False)
    keep_in = keeps is None or keeps[0]

    def call(input: Tensor) -> Tensor:
        try:
            plan = plans[input.spec]
        except AttributeError:
            _refuse(op, input)
        out: Tensor = _new(Tensor)
        try:
            out.buffer = buffer = plan.make(input.buffer, input.offset)
        except Exception as error:
            raise_failure(plan, error)
        out.spec = plan.out
        out.offset = 0
        out.node = out.base = out._grad = None
        edge = input.node
        if edge is not None and recorded and is_recording():
            if input.base is not None:
                edge = resolve(input)
            if edge is not None:
                out.node = node = Node()
                node.order = tick()
                node.plan = plan
                node.edges = (edge,)
                node.hooks = None
                node.values = (input,) if keep_in else (None,)
                node.result = ((buffer, 0),) if keep_out else None
        return out

    return call


def binary_call(op: Op, reflected: bool = False) -> Callable[[Tensor, Tensor | float], Tensor]:
    """The function of an op on two operands, of which either may be a Python scalar."""
    plans = op.plans
    recorded = op.rules is not None
    keeps = [(a is None or a[0], a is None or a[1], y) for a, y in (op.keeps[i] for i in (1, 2, 3) if recorded)]

    def call(input: Tensor, other: Tensor | float) -> Tensor:
        if isinstance(other, Tensor):
            try:
                plan = plans[input.spec, other.spec]
            except AttributeError:
                return cast("Tensor", run_mixed(op, input, other))
            out: Tensor = _new(Tensor)
            try:
                out.buffer = buffer = plan.make(input.buffer, input.offset, other.buffer, other.offset)
            except Exception as error:
                raise_failure(plan, error)
            out.spec = plan.out
            out.offset = 0
            out.node = out.base = out._grad = None
            first, second = input.node, other.node
            if (first is not None or second is not None) and recorded and is_recording():
                if input.base is not None:
                    first = resolve(input)
                if other.base is not None:
                    second = resolve(other)
                if first is not None or second is not None:
                    keep_a, keep_b, keep_out = keeps[0 if second is None else 1 if first is None else 2]
                    node = Node()
                    node.order = tick()
                    node.plan = plan
                    node.edges = (first, second)
                    node.hooks = None
                    node.values = (input if keep_a else None, other if keep_b else None)
                    node.result = ((buffer, 0),) if keep_out else None
                    out.node = node
            return out
        if type(other) in SCALARS and isinstance(input, Tensor):
            plan = plans[input.spec, type(other)]
            out = _new(Tensor)
            try:
                out.buffer = plan.make(input.buffer, input.offset, other)
            except Exception as error:
                raise_failure(plan, error)
            out.spec = plan.out
            out.offset = 0
            out.node = out.base = out._grad = None
            if input.node is not None and recorded and is_recording():
                record_scalar(plan, input, other, out)
            return out
        return cast("Tensor", run_mixed(op, input, other))

    def reflected_call(input: Tensor, other: Tensor | float) -> Tensor:
        return cast("Tensor", run_mixed(op, other, input))

    return reflected_call if reflected else call


_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
_DUNDERS = {
    "div": "truediv", "floor_divide": "floordiv", "remainder": "mod", "bitwise_and": "and", "bitwise_or": "or",
    "bitwise_xor": "xor", "bitwise_left_shift": "lshift", "bitwise_right_shift": "rshift",
}  # fmt: skip


_REFLECTED = {
    "add": "__radd__",
    "sub": "__rsub__",
    "mul": "__rmul__",
    "div": "__rtruediv__",
    "floor_divide": "__rfloordiv__",
    "remainder": "__rmod__",
    "pow": "__rpow__",
    "matmul": "__rmatmul__",
}


def run_mixed(op: Op, a: Any, b: Any) -> Any:
    """A binary op where an operand is no tensor: a Python or NumPy scalar, or an array."""
    given = a, b
    a, b = as_operand(a), as_operand(b)
    if a is NotImplemented or b is NotImplemented:
        foreign = given[0 if a is NotImplemented else 1]
        if op.name in _COMPARISONS or hasattr(type(foreign), f"__r{_DUNDERS.get(op.name, op.name)}__"):
            return NotImplemented  # Python then asks the other operand
        raise DTypeError(f"{op.name}(): operands must be tensors, numbers or arrays, got {_describe(foreign)}")
    if not (isinstance(a, Tensor) or isinstance(b, Tensor)):
        a = Tensor._scalar(a)
    return run(op, a, b)


def as_operand(value: Any) -> Any:
    """`value` as an operand: a tensor or Python scalar; NumPy's are converted; NotImplemented for anything else."""
    kind = type(value)
    if kind in SCALARS or isinstance(value, Tensor):
        return value
    if isinstance(value, bool | int | float):
        return float(value) if isinstance(value, float) else int(value)
    return Tensor._from_array(value)


def _refuse(op: Op, *values: object) -> NoReturn:
    for value in values:
        if not isinstance(value, Tensor):
            raise DTypeError(f"{op.name}(): expected a Tensor, got {_describe(value)}") from None
    raise


def try_view(
    op: Op, input: Tensor, attrs: tuple[Any, ...], key: tuple[Any, ...] | None = None, shift: int = 0
) -> Tensor | None:
    """Runs a view op: the same buffer under another spec. None where the op finds that there is no such view.

    `key`: attributes of a view of the same spec, `shift` elements before this one, so that views which differ in their
    place alone share a plan.
    """
    try:
        plan = op.plans[input.spec, attrs if key is None else key]
    except AttributeError:
        _refuse(op, input)
    out: Tensor = _new(Tensor)
    out.spec = plan.out
    out.buffer = input.buffer
    shift += plan.shift
    out.offset = input.offset + shift
    out._grad = None
    base = input.base
    out.base = input if base is None else base
    node = input.node
    if node is None:
        out.node = UNTRACKED if base is None else None
    else:
        out.node = UNTRACKED if node is UNTRACKED else None
        if is_recording() and (node if base is None else resolve(input)) is not None:
            record_unary(plan, input, out)
            out.node.values = (input if op.keeps[1][0] is None else None, *attrs)
            out.node.result = ((None, shift),)
    return out if plan.out is not None else None


view_call = cast("Callable[..., Tensor]", try_view)
"""`try_view` for ops that always find a view."""


def fill_kernel_args(plan: Plan, out: Tensor, args: Sequence[Any]) -> None:
    """Calls the kernel of `plan` on the memory of `out`."""
    flat: list[Any] = [out.buffer, out.offset]
    for value in args:
        if isinstance(value, Tensor):
            flat += (value.buffer, value.offset)
        else:
            flat.append(value)
    try:
        plan.kernel(*flat)
    except Exception as error:
        raise_failure(plan, error)


def run_into(op: Op, out: Tensor, *args: Any) -> None:
    """Runs an op on tensors and scalars, its result written into the memory of `out`. Records nothing.

    The caller has seen to it that `out` has the result's shape and takes its dtype, and does not partly overlap an
    operand. A change of `out` that the graph should know of is marked by `mark_modified`.
    """
    keys = [a.spec if isinstance(a, Tensor) else _key(a, i, op) for i, a in enumerate(args)]
    plan = op.plans[("into", out.spec, *keys)]
    fill_kernel_args(plan, out, [args[i] for i in plan.slots])


def call_in_place(plan: Plan, args: list[Any]) -> None:
    """Calls the kernel of `plan` on buffers, offsets and scalars as they are: it allocates nothing."""
    try:
        plan.kernel(*args)
    except Exception as error:
        raise_failure(plan, error)


def mark_modified(tensor: Tensor, op: str) -> None:
    """Notes that `op` has changed the tensor's memory in place."""
    tensor.buffer.modified = (tick(), op)
