"""Plans: what dispatch does once for operands of given specs, and remembers. Infer, convert, broadcast, compile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from weakref import WeakSet

from .. import settings
from ..backend.contract import CHANNELS_LAST, IN_PLACE, IndexOutOfBounds, Kernel, Operand
from ..device import CPU, Device, has_stand_in
from ..dtype import BOOL, INTEGER, DType
from ..errors import BackendError, DeviceError, NorchError
from ..spec import Shape, Spec, expand_strides
from .arguments import check_attributes, is_plain
from .failure import check_dtype, provider
from .fallback import cpu_fallback, is_cpu_fallback_allowed
from .scalars import scalar_conversion
from .traced import Traced

if TYPE_CHECKING:
    from .op import Op

PLAN_LIMIT = 8192
"""Plans that all caches together keep at most, in each of two generations: 2 kB each."""

SCALARS = frozenset({bool, int, float, Traced})
"""Python types that are operands by value. In a plan's key such an operand is its type."""

Watcher = Callable[[str, "Device", tuple[Operand, ...], Any, Kernel, str], Kernel]

watchers: tuple[Watcher, ...] = ()
"""`watcher(op, device, operands, attrs, kernel, whose)` gives what to use instead of a kernel: see norch.coverage, and
norch.capture while it records. whose: OWN (the backend's), OF_PLUGIN (of the op's own package) or ON_CPU (the
fallback)."""

OWN, OF_PLUGIN, ON_CPU = "own", "of plug-in", "on the CPU"


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

    __slots__ = ("__weakref__", "aside", "into", "old", "op")

    young: ClassVar[int] = 0

    def __init__(self, op: Op, into: bool = False) -> None:
        self.op, self.into = op, into
        self.old: dict[Any, Plan] = {}
        self.aside: tuple[dict[Any, Plan], dict[Any, Plan]] | None = None
        """Both generations that `exchange_plans` has put aside."""
        _caches.add(self)

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)

    def __missing__(self, key: Any) -> Plan:
        watched = watchers
        plan = self.old.pop(key, None)
        if plan is None:
            values = key if type(key) is tuple else (key,)
            if any(value is Traced for value in values):
                return self[tuple([float if value is Traced else value for value in values])]
            if not all(map(is_plain, values)):
                raise TypeError("a call path leaves such arguments to run_again")
            plan = make_plan(self.op, values[1:], values[0]) if self.into else make_plan(self.op, values)
        if watchers is not watched:
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


def forget_plans() -> None:
    """Empties every plan cache."""
    for plans in tuple(_caches):
        plans.clear()
        plans.old.clear()
    Plans.young = 0


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


settings.on_change(forget_plans)


def make_plan(op: Op, values: tuple[Any, ...], into: Spec | None = None) -> Plan:
    """The plan of `op` for the parts of a key. Raises the errors that a user sees."""
    plan: Plan = object.__new__(Plan)
    plan.op = op
    if op.kind == "view":
        return _view_plan(plan, op, values)
    plan.inputs = values
    plan.operands = values[0] if op.variadic else tuple([values[i] for i in op.tensors])
    if op.kind != "step":
        if not _check_devices(op, plan.operands):
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
        plan.in_place = (into.shape, into.dtype) == (plan.out.shape, plan.out.dtype) and not into.overlaps
        inferred = inferred._replace(kernel_outputs=(into,))
    device = plan.out.device
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
        plan.kernel = _compile(op, device, given, inferred, values)
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


def _check_devices(op: Op, operands: tuple[Any, ...]) -> bool:
    """Whether the operands are on one device, or on a device and on what stands for it, which is False."""
    devices = {s.device for s in operands if type(s) is Spec and not (s.ndim == 0 and s.device.type == "cpu")}
    if len(devices) > 1:
        if has_stand_in() and len(set(map(Device, devices))) == 1:
            return False
        raise DeviceError(f"{op.name}(): operands are on different devices: {', '.join(sorted(map(str, devices)))}")
    return True


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


def _compile(op: Op, device: Device, given: list[tuple[bool, Any]], inferred: Inferred, values: tuple[Any, ...]) -> Any:
    """The kernel, with whatever conversions its operands need folded into it; None if the op is to be decomposed."""
    outputs = inferred.kernel_outputs or inferred.outputs
    operands = [Operand(s.dtype, tuple(s.shape), s.strides) for s in outputs]
    at = 2 * len(outputs)
    converts: list[tuple[int, Callable[[list[Any], int], None]]] = []
    places = []
    for (by_value, value), wanted in zip(given, inferred.operands, strict=True):
        places.append(at)
        if type(value) is not Spec:
            dtype = wanted.dtype if isinstance(wanted, Spec) else wanted[0]
            operands.append(Operand(dtype, (), (), True))
            if not by_value and (dtype.category == INTEGER or (value is bool) != (dtype.category == BOOL)):
                converts.append((at, scalar_conversion(op, dtype)))
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
            view = source.like(shape, expand_strides(source.shape, source.strides, shape))
        operands.append(Operand(view.dtype, tuple(view.shape), view.strides))
        at += 2
    if op.kind == "primitive" and not any(s.numel for s in outputs):
        for spec in outputs:
            check_dtype(device, spec.dtype, f"{op.name}()")
        return _nothing_to_do
    kernel = None
    is_row_major = op.kernel not in CHANNELS_LAST or all(s.is_contiguous for s in outputs)
    if is_row_major or op.kernel in device.backend.channels_last:
        kernel = compile_kernel(op.kernel, device, tuple(operands), inferred.attrs, op.kind == "primitive", op)
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


def _fused(op: Op, device: Device, values: tuple[Any, ...], operands: list[Operand], outputs: int) -> Kernel | None:
    """The decomposition of an elementwise composite as one kernel, where it is that and the backend makes one."""
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
