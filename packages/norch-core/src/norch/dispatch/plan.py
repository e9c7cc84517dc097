"""Making plans: what dispatch does when it meets operands of new specs. Infer, convert, broadcast, compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from ..backend.contract import IndexOutOfBounds, Kernel, Operand
from ..dtype import BOOL, INTEGER, DType, iinfo
from ..errors import BackendError, DeviceError, DTypeError, IndexError, NorchError, OutOfMemoryError
from ..spec import Spec, expand_strides
from .op import Inferred, Op, Plan

if TYPE_CHECKING:
    from ..device import Device


watcher: Callable[..., Kernel | None] | None = None
"""`watcher(op, device, operands, kernel, fell_back)` gives the kernel to use instead: see norch.coverage."""


def make_plan(op: Op, key: Any) -> Plan:
    """The plan of `op` for a key: infer, convert, broadcast, compile. Raises the errors that a user sees."""
    plan: Plan = object.__new__(Plan)
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
    given = [i for i in (*op.tensors, *op.scalars) if values[i] is not None and i < len(values)]
    plan.slots = tuple(sorted(given))
    plan.kernel = _compile(op, device, [(i in op.scalars, values[i]) for i in plan.slots], inferred)
    plan.make = None  # type: ignore[assignment]
    if plan.kernel is not None and into is None and len(plan.outputs) == 1:
        plan.make = device.backend.allocating(plan.kernel, plan.out.nbytes, plan.index)
    return plan


def _check_devices(op: Op, operands: list[Any]) -> None:
    devices = {s.device for s in operands if type(s) is Spec and not (s.ndim == 0 and s.device.type == "cpu")}
    if len(devices) > 1:
        raise DeviceError(f"{op.name}(): operands are on different devices: {', '.join(sorted(map(str, devices)))}")


def _compile(op: Op, device: Device, values: list[tuple[bool, Any]], inferred: Inferred) -> Any:
    """The kernel, with whatever conversions its operands need folded into it; None if the op is to be decomposed."""
    outputs = inferred.kernel_outputs or inferred.outputs
    operands = [Operand(s.dtype, tuple(s.shape), s.strides) for s in outputs]
    at = 2 * len(outputs)
    converts: list[tuple[int, Callable[[list[Any], int], None]]] = []
    for (by_value, value), wanted in zip(values, inferred.operands, strict=True):
        if type(value) is not Spec:
            dtype = wanted.dtype if isinstance(wanted, Spec) else wanted[0]
            operands.append(Operand(dtype, (), (), True))
            if not by_value and (dtype.category == INTEGER or (value is bool) != (dtype.category == BOOL)):
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
    kernel = compile_kernel(op.name, device, tuple(operands), inferred.attrs, op.kind == "primitive", op)
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


_MODULAR = frozenset({"add", "sub", "mul", "fill", "bitwise_and", "bitwise_or", "bitwise_xor"})


def _scalar_conversion(op: Op, dtype: DType) -> Callable[[list[Any], int], None]:
    if dtype.category != INTEGER:
        kind = bool if dtype.category == BOOL else float

        def cast(args: list[Any], at: int) -> None:
            args[at] = kind(args[at])

        return cast
    limits = iinfo(dtype)
    span_of_dtype = limits.max - limits.min + 1

    def convert(args: list[Any], at: int) -> None:
        value = int(args[at])
        if not limits.min <= value <= limits.max:
            # As in PyTorch, -1 wraps in an unsigned tensor, so that subtraction can be addition; but only where
            # arithmetic modulo 256 is what is asked, not in a comparison.
            if dtype.is_signed or op.name not in _MODULAR or not -limits.max <= value < 0:
                raise DTypeError(f"{op.name}(): {value} is out of range for {dtype}")
            value += span_of_dtype
        args[at] = value

    return convert


def _tensor_conversion(op: Op, source: Spec, target: Spec) -> Callable[[list[Any], int], None]:
    if source.device is not target.device:
        from ..tensor.transfer import move_bytes
        from .call import make_tensor

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
    name: str, device: Device, operands: tuple[Operand, ...], attrs: Any, required: bool, op: Op | None = None
) -> Kernel | None:
    """Asks the device's backend for a kernel, then the plug-in that the op comes from.

    Where there is none for a required op, the fallback on the CPU.
    """
    backend = device.backend
    try:
        kernel = backend.compile(name, operands, attrs)
    except NorchError:
        raise
    except Exception as error:
        raise BackendError(f"{provider(device)} failed to compile {name}: {error!r}") from error
    if kernel is None and op is not None and device.type in op.kernels:
        kernel = _kernel_of_plugin(op, device, operands, attrs)
    fell_back = kernel is None and required
    if fell_back:
        from .fallback import cpu_fallback

        kernel = cpu_fallback(name, device, operands, attrs)
    return kernel if watcher is None else watcher(name, device, operands, kernel, fell_back)


def _kernel_of_plugin(op: Op, device: Device, operands: tuple[Operand, ...], attrs: Any) -> Kernel | None:
    """The kernel that the op's own distribution has for a device type. Its errors name that distribution."""
    who = f"op {op.name} of {op.owner}"
    try:
        kernel = op.kernels[device.type](device.backend, operands, attrs)
    except NorchError:
        raise
    except Exception as error:
        raise BackendError(f"{who}: its kernel for {device.type!r} failed to compile: {error!r}") from error
    if kernel is None:
        return None
    found = kernel

    def call(*args: Any) -> None:
        try:
            found(*args)
        except (NorchError, MemoryError, IndexOutOfBounds, ZeroDivisionError):
            raise
        except Exception as error:
            raise BackendError(f"{who}: its kernel for {device.type!r} raised {error!r}") from error

    return call


def provider(device: Device) -> str:
    """The distribution behind a device, with its version, for error messages."""
    from ..backend.registry import provider_of

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
