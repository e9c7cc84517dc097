"""Kernels: asked of the backend, of a plug-in or of the fallback, with the conversions that operands need, or made of
several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..backend.contract import CHANNELS_LAST, ELEMENTWISE, IndexOutOfBounds, Kernel, Operand
from ..device import CPU, Device
from ..dtype import BOOL, INTEGER
from ..errors import BackendError, NorchError
from ..spec import Spec, expand_strides
from .failure import check_dtype, provider
from .fallback import cpu_fallback, is_cpu_fallback_allowed
from .scalars import scalar_conversion

if TYPE_CHECKING:
    from .op import Op
    from .plan import Inferred, Part

Watcher = Callable[[str, "Device", tuple[Operand, ...], Any, Kernel, str], Kernel]

watchers: tuple[Watcher, ...] = ()
"""`watcher(op, device, operands, attrs, kernel, whose)` gives what to use instead of a kernel: see norch.coverage, and
norch.capture while it records. whose: OWN (the backend's), OF_PLUGIN (of the op's own package) or ON_CPU (the
fallback)."""

OWN, OF_PLUGIN, ON_CPU = "own", "of plug-in", "on the CPU"


def op_kernel(
    op: Op, device: Device, given: list[tuple[bool, Any]], inferred: Inferred, values: tuple[Any, ...]
) -> Any:
    """The kernel, with whatever conversions its operands need folded into it; None if the op is to be decomposed."""
    outputs = inferred.kernel_outputs or inferred.outputs
    operands = [Operand(s.dtype, tuple(s.shape), s.strides) for s in outputs]
    at = 2 * len(outputs)
    converts: list[tuple[int, Callable[[list[Any], int], None]]] = []
    places: list[int] = []
    views: list[Spec] = []
    own = list(operands)
    for i, ((by_value, value), wanted) in enumerate(zip(given, inferred.operands, strict=True)):
        places.append(at)
        if type(value) is not Spec:
            dtype = wanted.dtype if isinstance(wanted, Spec) else wanted[0]
            operands.append(Operand(dtype, (), (), True))
            own.append(operands[-1])
            if not by_value and (dtype.category == INTEGER or (value is bool) != (dtype.category == BOOL)):
                converts.append((at, scalar_conversion(op, dtype, i)))
            at += 1
            continue
        if isinstance(wanted, Spec):
            view = wanted
        else:
            dtype, shape = wanted
            source = value
            if dtype is not value.dtype or value.device is not device:
                source = value.like(dtype=dtype, device=device)
                converts.append((at, _tensor_conversion(value, source)))
            view = source
            if shape != source.shape:
                view = source.like(shape, expand_strides(source.shape, source.strides, shape))
        operands.append(Operand(view.dtype, tuple(view.shape), view.strides))
        own.append(operands[-1])
        if view.dtype is not value.dtype and view.device is value.device and value.numel > 1:
            own[-1] = Operand(value.dtype, own[-1].shape, expand_strides(value.shape, value.strides, view.shape))
        views.append(view)
        at += 2
    if op.kind == "primitive" and not any(s.numel for s in outputs):
        for spec in outputs:
            check_dtype(device, spec.dtype, f"{op.name}()")
        return _nothing_to_do
    if own != operands and len(converts) == sum(a is not b for a, b in zip(own, operands, strict=True)):
        kernel = _widening(op, device, values, own, len(outputs))
        if kernel is not None:
            return kernel
    kernel = None
    is_row_major = op.kernel not in CHANNELS_LAST or all(s.is_contiguous for s in outputs)
    if is_row_major or op.kernel in device.backend.channels_last:
        kernel = compile_kernel(op.kernel, device, tuple(operands), inferred.attrs, op.kind == "primitive", op)
        if kernel is None and op.decompose is not None and op.params[0] == "grad" and views[0].overlaps:
            kernel = _of_dense_gradient(op, device, operands, len(outputs), views[0], inferred.attrs)
    if kernel is None and not is_row_major and inferred.parts is None:
        kernel = _to_row_major(op, device, outputs, operands, inferred.attrs)
    if kernel is None and inferred.parts is not None:
        kernel = _by_parts(device, inferred.parts, operands, places)
    if kernel is None and op.is_elementwise and "fused" in device.backend.kept and outputs[0].numel:
        kernel = _fused(op, device, values, operands, len(outputs))
    if kernel is None or not converts:
        return kernel
    converts.reverse()  # a scalar keeps its place, so any order would do; from the back no index moves

    def converted(*args: Any) -> None:
        flat = list(args)
        for place, convert in converts:
            convert(flat, place)
        kernel(*flat)

    return converted


def _widening(op: Op, device: Device, values: tuple[Any, ...], operands: list[Operand], outputs: int) -> Kernel | None:
    """An elementwise primitive that converts its operands itself, as one kernel, where the backend makes one."""
    if op.kind != "primitive" or op.kernel not in ELEMENTWISE or "fused" not in device.backend.kept:
        return None
    return _fused(op, device, values, operands, outputs)


def _fused(op: Op, device: Device, values: tuple[Any, ...], operands: list[Operand], outputs: int) -> Kernel | None:
    """An elementwise op, of a composite its decomposition, as one kernel, where the backend makes one."""
    from .symbolic import elementwise_program  # `import norch` need not load it

    found = elementwise_program(op, values, operands, outputs, device)
    if found is None:
        return None
    seen, attrs, numbers = found
    kernel = compile_kernel("fused", device, seen, attrs, False)
    return None if kernel is None else BoundKernel(kernel, outputs, numbers)


class BoundKernel:
    """A kernel called without the numbers that come behind its outputs."""

    __slots__ = ("at", "kernel", "numbers")

    def __init__(self, kernel: Kernel, outputs: int, numbers: Sequence[Any]) -> None:
        self.kernel, self.at, self.numbers = kernel, 2 * outputs, tuple(numbers)

    def __call__(self, *args: Any) -> None:
        self.kernel(*args[: self.at], *self.numbers, *args[self.at :])


def _to_row_major(
    op: Op, device: Device, outputs: tuple[Spec, ...], operands: list[Operand], attrs: Any
) -> Kernel | None:
    """A kernel of contiguous outputs, whose results are copied."""
    plain = [s.like() for s in outputs]
    seen = [Operand(s.dtype, tuple(s.shape), s.strides) for s in plain]
    kernel = compile_kernel(op.kernel, device, (*seen, *operands[len(outputs) :]), attrs, False, op)
    if kernel is None:
        return None
    copies = [(2 * i, s.nbytes, compile_copy(out, s)) for i, (out, s) in enumerate(zip(outputs, plain, strict=True))]
    allocate, index, found = device.backend.allocate, device.index, kernel

    def call(*args: Any) -> None:
        flat = list(args)
        for at, nbytes, _ in copies:
            flat[at], flat[at + 1] = allocate(nbytes, index), 0
        found(*flat)
        for at, _, copy in copies:
            copy(args[at], args[at + 1], flat[at], 0)

    return call


def _of_dense_gradient(
    op: Op, device: Device, operands: list[Operand], at: int, grad: Spec, attrs: Any
) -> Kernel | None:
    """A kernel that takes the gradient without repeated elements, which that of `sum` has: copying it costs less than
    decomposing."""
    dense = grad.like()
    seen = Operand(dense.dtype, tuple(dense.shape), dense.strides)
    kernel = compile_kernel(op.kernel, device, (*operands[:at], seen, *operands[at + 1 :]), attrs, False, op)
    if kernel is None:
        return None
    convert, place, found = _tensor_conversion(grad, dense), 2 * at, kernel

    def call(*args: Any) -> None:
        flat = list(args)
        convert(flat, place)
        found(*flat)

    return call


def _nothing_to_do(*args: Any) -> None:
    """The kernel of results without elements."""


def _by_parts(device: Device, parts: tuple[Part, ...], operands: list[Operand], places: list[int]) -> Kernel:
    """A kernel that fills its output part by part."""
    steps: list[tuple[Kernel, int, int, bool]] = []
    compiled: dict[tuple[str, Operand, Operand], Kernel] = {}  # many parts are alike: a batch of samples
    for part in parts:
        source = operands[1 + part.operand]
        out = Operand(part.spec.dtype, tuple(part.spec.shape), part.spec.strides)
        kernel = compiled.get((part.op, out, source))
        if kernel is None:
            kernel = compile_kernel(part.op, device, (out, source), {}, True)
            assert kernel is not None
            compiled[part.op, out, source] = kernel
        steps.append((kernel, part.shift, places[part.operand], source.is_scalar))
    if not any(scalar for *_, scalar in steps):
        copies = [(kernel, shift, at) for kernel, shift, at, _ in steps]

        def copy_parts(*args: Any) -> None:
            buffer, offset = args[0], args[1]
            for kernel, shift, at in copies:
                kernel(buffer, offset + shift, args[at], args[at + 1])

        return copy_parts

    def fill_parts(*args: Any) -> None:
        buffer, offset = args[0], args[1]
        for kernel, shift, at, scalar in steps:
            if scalar:
                kernel(buffer, offset + shift, args[at])
            else:
                kernel(buffer, offset + shift, args[at], args[at + 1])

    return fill_parts


def _tensor_conversion(source: Spec, target: Spec) -> Callable[[list[Any], int], None]:
    """Copies an operand into memory of the dtype and device that the kernel takes."""
    backend, index, nbytes = target.device.backend, target.device.index, target.nbytes
    moves = source.device is not target.device and not target.device.is_meta
    place = CPU if moves else target.device  # only 0-d tensors on the CPU come from another device
    copy = compile_copy(target.like(target.shape, target.strides, device=place), source)

    def convert(args: list[Any], at: int) -> None:
        buffer = backend.allocate(nbytes, index)
        copy(buffer, 0, args[at], args[at + 1])
        args[at], args[at + 1] = buffer, 0

    def convert_and_move(args: list[Any], at: int) -> None:
        staged = CPU.backend.allocate(nbytes, 0)
        copy(staged, 0, args[at], args[at + 1])
        data = bytearray(nbytes)
        CPU.backend.copy_out(staged, 0, memoryview(data))
        args[at], args[at + 1] = backend.allocate(nbytes, index), 0
        backend.copy_in(args[at], 0, memoryview(data))

    return convert_and_move if moves else convert


def compile_kernel(
    name: str, device: Device, operands: tuple[Operand, ...], attrs: Any, required: bool, op: Op | None = None
) -> Kernel | None:
    """Asks the device's backend for a kernel, then the plug-in that the op comes from.

    Where there is none for a required op, the fallback on the CPU.
    """
    if any(o.dtype.is_stored for o in operands):
        from . import stored  # `import norch` need not load it

        stored.COMPILE[:] = (compile_kernel,)
        return stored.stored_kernel(name, device, operands, attrs, required)
    backend = device.backend
    asked = (name if op is None else op.name) + "()"
    if backend.missing_dtypes:
        _check_dtypes(device, operands, asked)
    try:
        kernel = backend.compile(name, operands, attrs)
    except NorchError:
        raise
    except Exception as error:
        raise BackendError(f"{provider(device)} failed to compile {name}: {error!r}") from error
    whose = OWN
    if kernel is None and op is not None and device.type in op.kernels:
        kernel, whose = _kernel_of_plugin(op, device, operands, attrs), OF_PLUGIN
    if kernel is None and required:
        if backend.missing_dtypes and not is_cpu_fallback_allowed():
            _check_dtypes(device, operands, asked, computes=True)
        kernel, whose = cpu_fallback(name, device, operands, attrs), ON_CPU
    if kernel is not None:
        for watcher in watchers:
            kernel = watcher(name, device, operands, attrs, kernel, whose)
    return kernel


def _check_dtypes(device: Device, operands: tuple[Operand, ...], asked: str, computes: bool = False) -> None:
    for operand in operands:
        if not operand.is_scalar:
            check_dtype(device, operand.dtype, asked, computes)


def compile_copy(target: Spec, source: Spec) -> Kernel:
    """A kernel that copies elements of `source` to memory laid out as `target`, on the device of that."""
    operands = tuple([Operand(s.dtype, tuple(s.shape), s.strides) for s in (target, source)])
    kernel = compile_kernel("copy", target.device, operands, {}, True)
    assert kernel is not None
    return kernel


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
