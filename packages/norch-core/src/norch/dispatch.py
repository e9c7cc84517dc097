"""Dispatch: from a call of an op to a kernel. Every kernel call of norch is in this file.

`run` is the general path. `unary_call` and `binary_call` make the functions of the two commonest families: the same
path with the loops written out, since what they cost is what a small model costs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, cast

from .autograd.graph import (
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
from .backend.contract import IndexOutOfBounds, Kernel, Operand
from .dtype import INTEGER, DType, iinfo
from .errors import BackendError, DeviceError, DTypeError, IndexError, NorchError, OutOfMemoryError, ShapeError
from .op import SCALARS, Inferred, Op, Plan
from .spec import Shape, Spec, expand_strides, span

if TYPE_CHECKING:
    from .device import Device
    from .tensor import Tensor

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
    return _finish(plan, args)


def run_one(op: Op, input: Tensor, *attrs: Any) -> Any:
    """`run` for an op whose only operand is its first, and whose attributes are hashable as they are."""
    try:
        plan = op.plans[(input.spec, *attrs)]
    except AttributeError:
        _refuse(op, input)
    return _finish(plan, (input, *attrs))


def _finish(plan: Plan, args: tuple[Any, ...]) -> Any:
    """Allocates, calls the kernel and records, or decomposes."""
    if plan.kernel is None:
        outputs = _decompose(plan, args)
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
    return tuple([make_tensor(r.spec, r.buffer, r.offset) for r in results])


def unary_call(op: Op) -> Callable[[Tensor], Tensor]:
    """The function of an op on one tensor."""
    plans = op.plans
    recorded = op.rules is not None

    def call(input: Tensor) -> Tensor:
        try:
            plan = plans[input.spec]
        except AttributeError:
            _refuse(op, input)
        out: Tensor = _new(Tensor)
        try:
            out.buffer = buffer = plan.allocate(plan.nbytes, plan.index)
            plan.kernel(buffer, 0, input.buffer, input.offset)
        except Exception as error:
            raise_failure(plan, error)
        out.spec = plan.out
        out.offset = 0
        out.node = out.base = out._grad = None
        if input.node is not None and recorded and is_recording():
            record_unary(plan, input, out)
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
                out.buffer = buffer = plan.allocate(plan.nbytes, plan.index)
                plan.kernel(buffer, 0, input.buffer, input.offset, other.buffer, other.offset)
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
                    node: Node = _new(Node)
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
                out.buffer = buffer = plan.allocate(plan.nbytes, plan.index)
                plan.kernel(buffer, 0, input.buffer, input.offset, other)
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


def run_mixed(op: Op, a: Any, b: Any) -> Any:
    """A binary op where an operand is no tensor: a Python or NumPy scalar, or an array."""
    a, b = as_operand(a), as_operand(b)
    if a is NotImplemented or b is NotImplemented:
        return NotImplemented
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


def try_view(op: Op, input: Tensor, attrs: tuple[Any, ...]) -> Tensor | None:
    """Runs a view op: the same buffer under another spec. None where the op finds that there is no such view."""
    try:
        plan = op.plans[input.spec, attrs]
    except AttributeError:
        _refuse(op, input)
    out: Tensor = _new(Tensor)
    out.spec = plan.out
    out.buffer = input.buffer
    out.offset = input.offset + plan.shift
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
    return out if plan.out is not None else None


view_call = cast("Callable[[Op, Tensor, tuple[Any, ...]], Tensor]", try_view)
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


def mark_modified(tensor: Tensor, op: str) -> None:
    """Notes that `op` has changed the tensor's memory in place."""
    tensor.buffer.modified = (tick(), op)


# --- Making plans ---------------------------------------------------------------------------------------------------


def make_plan(op: Op, key: Any) -> Plan:
    """The plan of `op` for a key: infer, convert, broadcast, compile. Raises the errors that a user sees."""
    plan: Plan = _new(Plan)
    plan.op = op
    if op.kind == "view":
        plan.inputs = (key[0], *key[1])
        found = op.infer(*plan.inputs)
        plan.out, plan.shift = found if found is not None else (None, 0)
        plan.outputs = (plan.out,)
        return plan
    plan.inputs = values = key if type(key) is tuple else (key,)
    into = None
    if values and values[0] == "into":
        into, values = values[1], values[2:]
        plan.inputs = values
    _check_devices(op, [values[i] for i in op.tensors])
    inferred: Inferred = op.infer(*values)
    plan.outputs = inferred.outputs
    plan.out = inferred.outputs[0]
    if into is not None:
        inferred = inferred._replace(kernel_outputs=(into,))
    device = plan.out.device
    plan.index = device.index
    plan.allocate = device.backend.allocate
    plan.nbytes = plan.out.nbytes
    given = [i for i in (*op.tensors, *op.scalars) if values[i] is not None and i < len(values)]
    plan.slots = tuple(sorted(given))
    plan.kernel = _compile(op, device, [values[i] for i in plan.slots], inferred)
    return plan


def _check_devices(op: Op, operands: list[Any]) -> None:
    devices = {s.device for s in operands if type(s) is Spec and not (s.ndim == 0 and s.device.type == "cpu")}
    if len(devices) > 1:
        raise DeviceError(f"{op.name}(): operands are on different devices: {', '.join(sorted(map(str, devices)))}")


def _compile(op: Op, device: Device, values: list[Any], inferred: Inferred) -> Any:
    """The kernel, with whatever conversions its operands need folded into it; None if the op is to be decomposed."""
    outputs = inferred.kernel_outputs or inferred.outputs
    operands = [Operand(s.dtype, tuple(s.shape), s.strides) for s in outputs]
    at = 2 * len(outputs)
    converts: list[tuple[int, Callable[[list[Any], int], None]]] = []
    for value, wanted in zip(values, inferred.operands, strict=True):
        if type(value) is not Spec:
            dtype = wanted.dtype if isinstance(wanted, Spec) else wanted[0]
            operands.append(Operand(dtype, (), (), True))
            if dtype.category == INTEGER:
                converts.append((at, _scalar_conversion(op, dtype)))
            at += 1
            continue
        if isinstance(wanted, Spec):
            view = wanted
        else:
            dtype, shape = wanted
            source = value
            if dtype is not value.dtype or value.device is not device:
                source = value.like(dtype=dtype, device=device)
                converts.append((at, _tensor_conversion(op, value, source)))
            view = source.like(shape, expand_strides(source.shape, source.strides, shape))
        operands.append(Operand(view.dtype, tuple(view.shape), view.strides))
        at += 2
    if op.kind == "primitive" and not any(s.numel for s in outputs):
        return _nothing_to_do
    kernel = compile_kernel(op.name, device, tuple(operands), inferred.attrs, op.kind == "primitive")
    if kernel is None or not converts:
        return kernel
    converts.reverse()  # a scalar keeps its place, so any order would do; from the back no index moves

    def converted(*args: Any) -> None:
        flat = list(args)
        for place, convert in converts:
            convert(flat, place)
        kernel(*flat)

    return converted


def _nothing_to_do(*args: Any) -> None:
    """The kernel of results without elements."""


def _scalar_conversion(op: Op, dtype: DType) -> Callable[[list[Any], int], None]:
    limits = iinfo(dtype)
    span_of_dtype = limits.max - limits.min + 1

    def convert(args: list[Any], at: int) -> None:
        value = int(args[at])
        if not limits.min <= value <= limits.max:
            # As PyTorch does, -1 wraps in an unsigned tensor, so that subtraction can be addition.
            if dtype.is_signed or not -limits.max <= value < 0:
                raise DTypeError(f"{op.name}(): {value} is out of range for {dtype}")
            value += span_of_dtype
        args[at] = value

    return convert


def _tensor_conversion(op: Op, source: Spec, target: Spec) -> Callable[[list[Any], int], None]:
    if source.device is not target.device:
        from .tensor.transfer import move_bytes

        def move(args: list[Any], at: int) -> None:
            moved = move_bytes(make_tensor(source, args[at], args[at + 1]), target.device).to(target.dtype)
            args[at], args[at + 1] = moved.buffer, moved.offset

        return move
    backend, index, nbytes = target.device.backend, target.device.index, target.nbytes
    copy = compile_kernel(
        "copy",
        target.device,
        (Operand(target.dtype, target.shape, target.strides), Operand(source.dtype, source.shape, source.strides)),
        {},
        True,
    )
    assert copy is not None

    def convert(args: list[Any], at: int) -> None:
        buffer = backend.allocate(nbytes, index)
        copy(buffer, 0, args[at], args[at + 1])
        args[at], args[at + 1] = buffer, 0

    return convert


def compile_kernel(
    name: str, device: Device, operands: tuple[Operand, ...], attrs: Any, required: bool
) -> Kernel | None:
    """Asks the device's backend for a kernel; where it has none for a required op, the fallback on the CPU."""
    backend = device.backend
    try:
        kernel = backend.compile(name, operands, attrs)
    except NorchError:
        raise
    except Exception as error:
        raise BackendError(f"{provider(device)} failed to compile {name}: {error!r}") from error
    if kernel is None and required:
        from .fallback import cpu_fallback

        return cpu_fallback(name, device, operands, attrs)
    return kernel


def provider(device: Device) -> str:
    """The distribution behind a device, with its version, for error messages."""
    from .backend.registry import provider_of

    found = provider_of(device.backend)
    return f"backend '{device.type}' of {found.distribution} {found.version}"


def raise_failure(plan: Plan, error: Exception) -> NoReturn:
    """Raises what a user should see of an exception from a kernel."""
    if isinstance(error, IndexOutOfBounds):
        shapes = ", ".join(str(tuple(s.shape)) for s in plan.inputs if type(s) is Spec)
        raise IndexError(f"{plan.op.name}(): {error} (operands of shapes {shapes})") from None
    if isinstance(error, NorchError | ZeroDivisionError):
        raise error
    if isinstance(error, MemoryError):
        raise OutOfMemoryError(
            f"{plan.op.name}(): device {plan.out.device} has no room for {plan.out}: {error}"
        ) from error
    raise BackendError(f"{provider(plan.out.device)}: kernel {plan.op.name} raised {error!r}") from error


# --- What inference rules share -------------------------------------------------------------------------------------


def require_shape(op: str, condition: bool, message: str) -> None:
    if not condition:
        raise ShapeError(f"{op}(): {message}")


def overlapping(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors may share memory without being the same view of it."""
    if a.buffer is not b.buffer or (a.spec is b.spec and a.offset == b.offset):
        return False
    first, last = a.offset, a.offset + span(a.spec.shape, a.spec.strides)
    return first < b.offset + span(b.spec.shape, b.spec.strides) and b.offset < last


def elementwise_layout(shape: Shape, specs: Sequence[Any]) -> Shape | None:
    """Strides for a result: those of the operands where all that have its shape agree on dense ones, else contiguous."""
    from .spec import dense_strides

    found = {s.strides for s in specs if type(s) is Spec and s.shape == shape}
    return dense_strides(shape, found.pop()) if len(found) == 1 else None
