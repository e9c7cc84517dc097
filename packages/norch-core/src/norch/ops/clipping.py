"""The norm of all gradients of a model, and all of them scaled, in one call for those of one dtype and device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..autograd.graph import changed_by, is_recording, set_recording
from ..dispatch.arguments import check_functions
from ..dispatch.call import call_in_place
from ..dispatch.op import Op
from ..dispatch.plan import Inferred
from ..dtype import DType, float32, float64
from ..errors import DTypeError
from ..spec import Spec
from ..tensor_base import TakenOver
from .optimizer.driver import Tensors, any_overlap, suits

if TYPE_CHECKING:
    from ..device import Device
    from ..tensor import Tensor


def _wide(dtype: DType) -> DType:
    return float64 if dtype is float64 else float32


def _infer_total_norm(tensors: tuple[Spec, ...]) -> Inferred:
    first = tensors[0]
    flat = tuple([spec.like((spec.numel,)) for spec in tensors])
    return Inferred((first.like((), dtype=_wide(first.dtype)),), flat)


def _norm_of_parts(tensors: Tensors) -> Tensor:
    """Squares joined two at a time: less than half of what stacking them costs, and rounded little."""
    parts = []
    for t in tensors:
        flat = t.reshape(-1).to(_wide(t.spec.dtype))
        parts.append(flat @ flat)
    while len(parts) > 1:
        odd = parts[-1:] if len(parts) % 2 else []
        parts = [a + b for a, b in zip(parts[::2], parts[1::2])] + odd
    return parts[0].sqrt()


_TOTAL_NORM = Op(
    "total_norm", ("tensors",), 1, _infer_total_norm, kind="composite", decompose=_norm_of_parts, variadic=True
)


def _infer_scale(tensors: tuple[Spec, ...]) -> Inferred:
    return Inferred((*[spec.like((spec.numel,)) for spec in tensors[:-1]], tensors[-1]), ())


_SCALE = Op("scale_", ("tensors",), 1, _infer_scale, kind="step", kernel="scale", variadic=True)


def total_norm(tensors: Tensors) -> Tensor:
    """The 2-norm of all elements of all tensors, which may have any shapes: a 0-d tensor on the device of the first.

    Of 16-bit tensors it is float32, and outside of the graph. Raises DTypeError for none, and unless all are floating.
    """
    before = is_recording()
    set_recording(False)
    try:
        norms = []
        for _, members in _groups("total_norm", tensors):
            norms.append(_TOTAL_NORM.call([t if suits(t.spec) else t.contiguous() for t in members]))
        if len(norms) == 1:
            return norms[0]
        dtype = float64 if any(norm.spec.dtype is float64 for norm in norms) else float32
        return _TOTAL_NORM.call([norm.to(norms[0].spec.device, dtype) for norm in norms])
    finally:
        set_recording(before)


def scale_(tensors: Tensors, factor: Tensor) -> None:
    """Multiplies each of the tensors by `factor`, a tensor of one element, in place and outside of the graph.

    Raises DTypeError unless all are floating, and for none.
    """
    groups = _groups("scale_", tensors)
    shared = len({id(t.buffer) for t in tensors}) < len(tensors) and any_overlap(tensors)
    before = is_recording()
    set_recording(False)
    try:
        for (device, dtype), members in groups:
            here = factor.to(device, _wide(dtype)).reshape(())
            together = [] if shared else [t for t in members if suits(t.spec)]
            if together and _scaled_together(together, here):
                members = [] if len(together) == len(members) else [t for t in members if not suits(t.spec)]
            for t in members:  # 16-bit floats times a factor that is not rounded to theirs
                t.mul_(here) if dtype is here.spec.dtype else t.copy_(t.to(here.spec.dtype).mul_(here))
    finally:
        set_recording(before)


def _groups(name: str, tensors: Tensors) -> list[tuple[tuple[Device, DType], Tensors]]:
    """The tensors by device and dtype."""
    kinds = {(t.spec.device, t.spec.dtype): None for t in tensors}
    if not kinds or not all(dtype.is_floating_point for _, dtype in kinds):
        found = ", ".join([str(dtype) for _, dtype in kinds]) or "none"
        raise DTypeError(f"{name}(): expected tensors of floating dtypes, got {found}")
    if len(kinds) == 1:
        return [(kind, tensors) for kind in kinds]
    return [(kind, [t for t in tensors if (t.spec.device, t.spec.dtype) == kind]) for kind in kinds]


def _scaled_together(tensors: list[Tensor], factor: Tensor) -> bool:
    """Scales tensors of one dtype and device, without gaps, in one kernel; False where there is none."""
    try:
        plan = _SCALE.plans[(tuple([t.spec for t in (*tensors, factor)]),)]
    except TakenOver:
        return False
    if plan.kernel is None:
        return False
    call_in_place(plan, [x for t in (*tensors, factor) for x in (t.buffer, t.offset)])
    change = changed_by("scale_")
    for t in tensors:
        t.buffer.modified = change
    return True


check_functions(globals())
