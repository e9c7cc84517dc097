"""The shadow device: runs the NumPy reference beside another device, op by op, and stops at the first that differs.

    device = shadow("opencl")
    model.to(device)            # forward, backward and optimiser then run on both
    loss.backward()             # raises Divergence, which names the op and the script that shows it

Each op of the device is judged alone: the reference goes on with what the device computed. Nothing of this is fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..autograd import no_grad
from ..backend.contract import ELEMENTWISE, IN_PLACE, PRIMITIVES, TWO_OUTPUTS, Backend, Kernel, Operand
from ..backend.registry import register, unregister
from ..device import Device
from ..dispatch.op import Op, all_ops
from ..dtype import FLOATING, DType
from ..errors import BackendError
from ..numpy_backend.backend import HostBuffer, NumpyBackend
from ..spec import Spec
from ..tensor_base import make_tensor

TOLERANCES = {"float64": 1e-9, "float32": 1e-5, "float16": 1e-2, "bfloat16": 5e-2}
"""How far apart results may be, relative to the largest that the op gives: rounding, and sums in another order."""


class Divergence(BackendError):
    """The shadowed device and the reference differ.

    op: the kernel's name. script: what shows it alone. path: the file that holds that script, if one was written.
    """

    op: str
    script: str
    path: Path | None


class ShadowBuffer:
    """Memory of the device, and of the host beside it."""

    __slots__ = ("host", "modified", "nbytes", "there")

    def __init__(self, there: Any, host: HostBuffer) -> None:
        self.there = there
        self.host = host
        self.nbytes = host.nbytes
        self.modified: tuple[int, str] | None = None


class _Launch(NamedTuple):
    """A kernel call: what it was compiled for, and what each operand held before, an array or a scalar's number."""

    op: str
    operands: tuple[Operand, ...]
    attrs: Mapping[str, Any]
    values: list[Any]


class ShadowBackend(Backend):
    """Device type "shadow": index i runs device i of another type and the reference."""

    device_type = "shadow"

    def __init__(self, device_type: str, folder: str | Path | None = None) -> None:
        self.target = Device(device_type).backend
        self.folder = None if folder is None else Path(folder)
        self._host = NumpyBackend()
        self.missing_dtypes = self.target.missing_dtypes

    def device_count(self) -> int:
        return self.target.device_count()

    def allocate(self, nbytes: int, index: int) -> ShadowBuffer:
        return ShadowBuffer(self.target.allocate(nbytes, index), self._host.allocate(nbytes, 0))

    def copy_in(self, buffer: ShadowBuffer, offset: int, data: memoryview) -> None:
        self.target.copy_in(buffer.there, offset, data)
        self._host.copy_in(buffer.host, offset, data)

    def copy_out(self, buffer: ShadowBuffer, offset: int, data: memoryview) -> None:
        self.target.copy_out(buffer.there, offset, data)

    def copy(self, out: ShadowBuffer, out_offset: int, source: ShadowBuffer, source_offset: int, nbytes: int) -> None:
        self.target.copy(out.there, out_offset, source.there, source_offset, nbytes)
        self._host.copy(out.host, out_offset, source.host, source_offset, nbytes)

    def synchronize(self, index: int) -> None:
        self.target.synchronize(index)

    def compile(self, op: str, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel | None:
        reference = self._reference(op, operands, attrs)
        kernel = None if reference is None else self.target.compile(op, operands, attrs)
        if reference is None or kernel is None:
            return None  # decomposed, or missing, on both alike
        outputs = 2 if op in TWO_OUTPUTS else 1

        def call(*args: Any) -> None:
            there = [a.there if isinstance(a, ShadowBuffer) else a for a in args]
            host = [a.host if isinstance(a, ShadowBuffer) else a for a in args]
            given: Iterator[Any] = iter(host)
            values = [next(given) if o.is_scalar else _view(o, next(given).data, next(given)).copy() for o in operands]
            kernel(*there)
            reference(*host)
            for i in range(outputs):
                self._compare(_Launch(op, operands, attrs, values), operands[i], args[2 * i], args[2 * i + 1])

        return call

    def _reference(self, op: str, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel | None:
        if op in PRIMITIVES:
            return self._host.compile(op, operands, attrs)
        found = next((o for o in all_ops() if o.name == op and o.decompose is not None), None)
        if found is None or len(found.tensors) != len(operands) - 1 or any(o.is_scalar for o in operands):
            return None
        if any(p not in attrs for i, p in enumerate(found.params) if i not in found.tensors):
            return None
        return _decomposed(found, operands, attrs) if _asks_for(found, operands, attrs) else None

    def _compare(self, launch: _Launch, out: Operand, buffer: ShadowBuffer, offset: int) -> None:
        op, operands = launch.op, launch.operands
        memory = np.empty(buffer.nbytes, np.uint8)
        self.target.copy_out(buffer.there, 0, memory.data)
        got, want = (_view(out, m, offset) for m in (memory, buffer.host.data))
        wrong = differing(got, want, out.dtype, _scale(launch))
        if not wrong.any():
            buffer.host.data[...] = memory  # from here on both go on with the same numbers
            return
        place = tuple(int(n) for n in np.argwhere(wrong)[0])
        script = _script(self.target.device_type, launch, place)
        error = Divergence(
            f"{op} of {', '.join(f'{o.dtype.name}{list(o.shape)}' for o in operands[1:])} on "
            f"{self.target.device_type}: element {place} is {got[place]}, the reference has {want[place]} "
            f"({int(wrong.sum())} of {wrong.size} differ)"
        )
        error.op, error.script, error.path = op, script, None
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            error.path = self.folder / f"divergence_{op}.py"
            error.path.write_text(script)
            error.add_note(f"{error.path} shows it alone")
        raise error


def shadow(device: str | Device, folder: str | Path | None = None) -> Device:
    """The shadow device of another one. `folder`: where to write the script of a divergence.

    The last call decides which device type is shadowed; tensors of an earlier one must be gone by then.
    """
    wanted = Device(device)
    unregister("shadow")
    register(ShadowBackend(wanted.type, folder), "norch-core")
    return Device("shadow", wanted.index)


def differing(got: Any, want: Any, dtype: DType, scale: float = 0.0) -> Any:
    """Which elements differ by more than rounding, relative to the largest of them or to `scale`."""
    if dtype.category != FLOATING:
        return np.asarray(got != want)
    a, b = got.astype(np.float64), want.astype(np.float64)
    bound = TOLERANCES[dtype.name] * max(_largest(b), scale, 1e-30)
    with np.errstate(invalid="ignore"):
        return np.asarray(~((np.abs(a - b) <= bound) | (a == b) | (np.isnan(a) & np.isnan(b))))


def _largest(values: Any) -> float:
    size = np.abs(values[np.isfinite(values)])
    return float(size.max(initial=0))


def _scale(launch: _Launch) -> float:
    """How large the numbers are that may cancel each other in a result: none do in an elementwise op."""
    if launch.op in ELEMENTWISE:
        return 0.0
    given = list(zip(launch.operands, launch.values, strict=True))[1:]  # what the output holds is not defined
    inputs = [
        _largest(values.astype(np.float64)) if operand.dtype.category == FLOATING else 0.0
        for operand, values in given
        if not operand.is_scalar
    ] or [0.0]
    return max(*inputs, prod(inputs)) if launch.op == "matmul" else max(inputs)


def _asks_for(op: Op, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> bool:
    """Whether the kernel's operands are those of the composite's own function, as they are."""
    given = iter([Spec(o.shape, o.strides, o.dtype, Device("cpu")) for o in operands[1:]])
    described = [next(given) if i in op.tensors else attrs[p] for i, p in enumerate(op.params)]
    try:
        found = op.infer(*described)
    except Exception:
        return False
    seen = [tuple(o.shape) if isinstance(o, Spec) else tuple(o[1]) for o in found.operands]
    return seen == [tuple(o.shape) for o in operands[1:]] and tuple(found.outputs[0].shape) == tuple(operands[0].shape)


def _decomposed(op: Op, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel:
    """A composite from its parts, on host memory."""
    here = Device("cpu")
    specs = [Spec(o.shape, o.strides, o.dtype, here) for o in operands]

    def tensor(spec: Spec, buffer: HostBuffer, offset: int) -> Any:
        backend = here.backend
        host = backend.from_host(buffer.data.data) if buffer.nbytes else backend.allocate(0, 0)
        return make_tensor(spec, host, offset)

    def reference(*args: Any) -> None:
        given = iter([tensor(s, *args[2 * i : 2 * i + 2]) for i, s in enumerate(specs)][1:])
        values = [next(given) if i in op.tensors else attrs[p] for i, p in enumerate(op.params)]
        assert op.decompose is not None
        with no_grad():
            result = op.decompose(*values)
        _view(operands[0], args[0].data, args[1])[...] = result.numpy()

    return reference


def _view(operand: Operand, memory: Any, offset: int) -> Any:
    size = operand.dtype.itemsize
    if 0 in operand.shape:
        return np.empty(operand.shape, operand.dtype.numpy)
    strides = tuple(s * size for s in operand.strides)
    return np.ndarray(operand.shape, operand.dtype.numpy, memory, offset * size, strides)


def _script(device: str, launch: _Launch, place: tuple[int, ...]) -> str:
    """The call alone: of an elementwise op only the element that is wrong."""
    from .conformance.calls import Call
    from .conformance.case import kernel_snippet
    from .conformance.place import Number, Place

    op, operands, attrs, held_before = launch
    outputs = 2 if op in TWO_OUTPUTS else 1
    one_element = not attrs and op not in ("matmul", "arange", "random", *IN_PLACE)
    places: list[Any] = []
    values = []
    for i, (operand, held) in enumerate(zip(operands, held_before, strict=True)):
        if operand.is_scalar:
            places.append(Number(operand.dtype.name, held))
        else:
            held = held[place].reshape(1) if one_element else held
            places.append(Place(operand.dtype.name, held.shape))
        if i >= outputs or op in IN_PLACE:
            values.append(held)
    call = Call(op, tuple(places[:outputs]), tuple(places[outputs:]), dict(attrs), tuple(values))
    return kernel_snippet(device, call, "check_values", {}) + "\n"
