"""Ops of `norch.library`, whose Python reads values: such an op is one call of a program, which runs that Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..autograd.mode import no_grad
from ..backend.contract import Operand
from ..dispatch.traced import plain
from ..errors import CaptureError
from ..func.trees import flatten, unflatten
from ..spec import span
from ..tensor_base import TensorBase, make_tensor
from .recording import Compiled, recorder_here
from .returned import is_value
from .signatures import Same

if TYPE_CHECKING:
    from ..library import CustomOp
    from .recorder import Recorder


def run_op(op: CustomOp, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the op computes. While a step is recorded, its tensor ops are noted, or, where values were read, itself."""
    recorder = recorder_here()
    if recorder is None or recorder.inside is not None or recorder.hidden or not op.is_functional:
        return op.run(*args, **kwargs)
    if op.is_opaque:
        return _run_as_one(recorder, op, args, kwargs)
    recorder.within.append(op)
    try:
        return op.run(*args, **kwargs)
    finally:
        recorder.within.pop()


def _run_as_one(recorder: Recorder, op: CustomOp, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    leaves, structure = flatten((args, kwargs))
    leaves = [plain(x, f"{op.qualname} gets it") for x in leaves]
    args, kwargs = unflatten(structure, leaves)
    given = [x for x in leaves if isinstance(x, TensorBase)]
    states = [generator._state() for generator, *_ in recorder.generators]
    recorder.hidden += 1
    try:
        out = op.run(*args, **kwargs)
    finally:
        recorder.hidden -= 1
    if states != [generator._state() for generator, *_ in recorder.generators]:
        recorder.refuse(f"{op.qualname} draws random numbers")
    results, shape = flatten(out)
    made = [x for x in results if isinstance(x, TensorBase)]
    if not given or not made or len(made) < sum(x is not None for x in results):
        recorder.refuse(f"{op.qualname} returns what is no tensor")
        return out
    tensors: list[Any] = []
    for tensor in made:
        spec = tensor.spec
        buffer = spec.device.backend.allocate(_size(spec), spec.device.index)
        recorder.hidden += 1
        try:
            _copy(spec, tensor, buffer, 0)
        finally:
            recorder.hidden -= 1
        tensors.append(make_tensor(spec, buffer))
    specs = [t.spec for t in (*made, *given)]
    operands = tuple([Operand(s.dtype, tuple(s.shape), s.strides) for s in specs])
    others = [None if isinstance(x, TensorBase) else repr(x) if is_value(x) else Same(x) for x in leaves]
    backend = made[0].spec.device.backend
    kernel = _kernel(op, leaves, structure, specs, len(made))
    compiled = Compiled(op.qualname, operands, {"given": others}, kernel, getattr(backend, "real", backend), False)
    recorder.called(compiled, tuple([x for t in (*tensors, *given) for x in (t.buffer, t.offset)]))
    return unflatten(shape, [None if x is None else tensors.pop(0) for x in results])


def _kernel(op: CustomOp, leaves: list[Any], structure: Any, specs: Sequence[Any], count: int) -> Callable[..., None]:
    """Runs the op on tensors in the memory that it is given, the results' first, and copies what it returns there."""
    at = [i for i, x in enumerate(leaves) if isinstance(x, TensorBase)]
    values = [None if isinstance(x, TensorBase) else x for x in leaves]

    def kernel(*memory: Any) -> None:
        own = list(values)
        for k, i in enumerate(at, count):
            own[i] = make_tensor(specs[k], memory[2 * k], memory[2 * k + 1])
        args, kwargs = unflatten(structure, own)
        with no_grad():
            made = [x for x in flatten(op.run(*args, **kwargs))[0] if isinstance(x, TensorBase)]
        if [_layout(x.spec) for x in made] != [_layout(spec) for spec in specs[:count]]:
            raise CaptureError(f"capture(): {op.qualname} returns other shapes than when the step was recorded")
        for k, tensor in enumerate(made):
            _copy(specs[k], tensor, memory[2 * k], memory[2 * k + 1])

    return kernel


def _layout(spec: Any) -> Any:
    return tuple(spec.shape), spec.strides, spec.dtype, spec.device


def _size(spec: Any) -> int:
    return int(span(spec.shape, spec.strides) * spec.dtype.itemsize)


def _copy(spec: Any, tensor: Any, buffer: Any, offset: int) -> None:
    size = spec.dtype.itemsize
    spec.device.backend.copy(buffer, offset * size, tensor.buffer, tensor.offset * size, _size(spec))
