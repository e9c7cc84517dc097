"""From lists of tensors to one kernel call, or to tensor ops for each parameter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from threading import get_ident
from typing import TYPE_CHECKING, Any

from ...autograd.graph import changed_by, is_recording, set_recording
from ...dispatch.call import call_in_place
from ...dispatch.failure import allocate_for
from ...dispatch.op import Op
from ...dispatch.plan import Inferred
from ...dtype import float64
from ...errors import CaptureError, DTypeError, ShapeError
from ...observing import STEP, observable
from ...spec import Spec, span
from ...tensor_base import TakenOver, make_tensor
from ..copying import write

if TYPE_CHECKING:
    from ...tensor import Tensor

Tensors = Sequence["Tensor"]

watchers: dict[int, Callable[..., None]] = {}
"""By thread, what gets the steps that it makes in place of `make_step`: see norch.capturing.python."""


@observable(STEP)
def run_step(
    op: Op,
    attrs: tuple[bool, ...],
    lists: tuple[Tensors, ...],
    scalars: tuple[float, ...],
    one: Callable[..., None],
    differentiable: bool = False,
) -> None:
    """Makes the step `op` for `lists`: parameters, states, gradients. `one` makes one parameter's of tensor ops, which
    the graph records if `differentiable`. Raises CaptureError for such a step while steps are captured.
    """
    watcher = watchers.get(get_ident()) if watchers else None
    if differentiable:
        if watcher is not None:
            raise CaptureError(f"{op.name}(): a step that is differentiable runs as it is; it cannot be captured")
        _by_ops(lists, one, True)
    elif watcher is not None:
        watcher(op, attrs, lists, scalars, one)
    else:
        make_step(op, attrs, lists, scalars, one)


def make_step(
    op: Op, attrs: tuple[bool, ...], lists: tuple[Tensors, ...], scalars: tuple[float, ...], one: Callable[..., None]
) -> None:
    """`run_step`, for a watcher."""
    try:
        if not together(op, attrs, lists, scalars):
            _apart(op, attrs, lists, scalars, one)
    except TakenOver:  # samples of vmap, which have no memory of their own
        _by_ops(lists, one)


def step_op(name: str, attrs: str) -> Op:
    """The entry of a step: its name, which is that of its function, and the names of its attributes.

    All tensors, parameters' first and gradients last, are one operand; the step writes all but the gradients.
    """
    names = tuple(attrs.split())

    def infer(tensors: tuple[Spec, ...], attrs: tuple[bool, ...], count: int, scalars: int) -> Inferred | None:
        for i, spec in enumerate(tensors):
            param = tensors[i % count]
            if not spec.dtype.is_floating_point:
                raise DTypeError(f"{name}(): expected a floating dtype, got {spec.dtype}")
            if spec.shape != param.shape:
                raise ShapeError(
                    f"{name}(): a parameter of shape {tuple(param.shape)} has a gradient or state of shape "
                    f"{tuple(spec.shape)}"
                )
        if not all(_suits(spec, tensors[i % count], tensors[0]) for i, spec in enumerate(tensors)):
            return None
        flat = tuple([s.like((s.numel,)) for s in tensors])
        return Inferred(flat, ((float64, ()),) * scalars, dict(zip(names, attrs, strict=True), count=count))

    return Op(name, ("tensors", "attrs", "count", "scalars"), 1, infer, kind="step", kernel=name[:-1], variadic=True)


def descending(p: Tensor, g: Tensor, weight_decay: float, maximize: bool) -> Tensor:
    """The gradient of what is minimised: of the opposite if `maximize`, and with the decay's part."""
    if maximize:
        g = -g
    return g + p * weight_decay if weight_decay else g


# --- All at once ----------------------------------------------------------------------------------------------------


def _suits(spec: Spec, param: Spec, first: Spec) -> bool:
    """Whether the elements lie without gaps and in the parameter's order."""
    if spec.dtype is not first.dtype or spec.device is not first.device:
        return False
    return suits(spec) if spec is param else spec.is_contiguous and param.is_contiguous


def suits(spec: Spec) -> bool:
    """Whether the elements lie without gaps."""
    return spec.is_contiguous or (not spec.overlaps and span(spec.shape, spec.strides) == spec.numel)


def together(op: Op, attrs: tuple[bool, ...], lists: tuple[Tensors, ...], scalars: tuple[float, ...]) -> bool:
    """Makes the step in one kernel, of which no watcher is told; False where that cannot be."""
    params, *others = lists
    count = len(params)
    specs: list[Spec] = []
    args: list[Any] = []
    # Two loops: parameters are of a class of their own, and attributes are found faster where all have one class.
    for t in params:
        specs.append(t.spec)
        args.append(t.buffer)
        args.append(t.offset)
    for tensors in others:
        if len(tensors) != count:
            raise ShapeError(f"{op.name}(): {count} parameters, but {len(tensors)} gradients or states")
        for t in tensors:
            specs.append(t.spec)
            args.append(t.buffer)
            args.append(t.offset)
    if not count:
        return True
    try:
        plan = op.plans[tuple(specs), attrs, count, len(scalars)]
    except TakenOver:
        return False
    buffers = args[::2]
    if plan.kernel is None or (len(set(buffers)) != len(buffers) and any_overlap([t for ts in lists for t in ts])):
        return False
    args += scalars
    call_in_place(plan, args)
    change = changed_by(op.name)
    for buffer in buffers[:-count]:
        buffer.modified = change
    return True


def any_overlap(tensors: Tensors) -> bool:
    """Whether any two share memory."""
    spans = []
    for t in tensors:
        size = span(t.spec.shape, t.spec.strides)
        if size:
            spans.append((id(t.buffer), t.offset * t.spec.dtype.itemsize, (t.offset + size) * t.spec.dtype.itemsize))
    spans.sort()
    return any(a[0] == b[0] and b[1] < a[2] for a, b in pairwise(spans))


# --- One by one -----------------------------------------------------------------------------------------------------


def _apart(
    op: Op,
    attrs: tuple[bool, ...],
    lists: tuple[Tensors, ...],
    scalars: tuple[float, ...],
    one: Callable[..., None],
) -> None:
    """Makes the step for parameters that are not alike, or share memory: at once only where it can be."""
    before = is_recording()
    set_recording(False)
    try:
        groups: dict[Any, list[tuple[Tensor, ...]]] = {}
        shared = any_overlap([t for ts in lists for t in ts])
        for i, row in enumerate(zip(*lists, strict=True)):
            spec = row[0].spec
            alike = i if shared else suits(spec)
            groups.setdefault((spec.dtype, spec.device, alike), []).append((*row[:-1], _like(row[-1], spec)))
        for rows in groups.values():
            if not together(op, attrs, tuple(zip(*rows, strict=True)), scalars):
                for row in rows:
                    one(*row)
                    change = changed_by(op.name)
                    for t in row[:-1]:
                        t.buffer.modified = change
    finally:
        set_recording(before)


def _by_ops(lists: tuple[Tensors, ...], one: Callable[..., None], recorded: bool = False) -> None:
    before = is_recording()
    set_recording(recorded)
    try:
        for row in zip(*lists, strict=True):
            one(*row)
    finally:
        set_recording(before)


def _like(grad: Tensor, spec: Spec) -> Tensor:
    """`grad` in a parameter's dtype, device and layout."""
    if _suits(grad.spec, spec, spec) or spec.overlaps:
        return grad
    out = make_tensor(spec, allocate_for(spec))
    write(out, grad if grad.spec.device is spec.device else grad.detach().to(spec.device))
    return out
