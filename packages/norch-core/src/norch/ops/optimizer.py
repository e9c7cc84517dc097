"""Steps of optimisers: all parameters of a group changed in place by one call, outside the graph.

A backend that has kernels named "sgd_step" and "adam_step" makes each step in one pass. What `compile` is asked for:

    sgd_step    params, momentum buffers (if attrs["momentum"]), gradients; scalars lr, weight_decay, momentum and
                dampening; attrs count, momentum, nesterov, maximize
    adam_step   params, first moments, second moments, gradients; scalars lr, weight_decay, beta1, beta2, eps,
                1 - beta1 ** step and 1 - beta2 ** step; attrs count, decoupled, maximize

`count` is the number of parameters. All tensors are of one floating dtype, one dim and contiguous, and no two share
memory; those of a parameter are equally long; all but the gradients are read and written. Scalars are float64. Where
there is no such kernel, or memory is laid out in another way, the step is made of tensor ops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ..autograd.graph import is_recording, set_recording, tick
from ..backend.contract import Operand
from ..dispatch import allocate_on, call_in_place, make_tensor
from ..dtype import float64
from ..errors import DTypeError, ShapeError
from ..op import Op, Plan, Plans
from ..planning import compile_kernel
from ..spec import Spec, span
from .copying import write

if TYPE_CHECKING:
    from ..tensor import Tensor

Tensors = Sequence["Tensor"]


def sgd_step_(
    params: Tensors,
    grads: Tensors,
    momentum_buffers: Tensors | None = None,
    *,
    lr: float,
    momentum: float = 0.0,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
    maximize: bool = False,
) -> None:
    """A step of gradient descent: for each parameter p, its gradient g and, unless None, its momentum buffer b:

        g = g + weight_decay * p                            (-g first if maximize)
        b = momentum * b + (1 - dampening) * g
        d = g + momentum * b if nesterov else b             (g where there are no buffers)
        p = p - lr * d

    in place and unrecorded; gradients stay as they are. Raises ShapeError for lists of different lengths and for shapes
    that differ, DTypeError unless all are floating.
    """
    built = momentum_buffers is not None
    lists = (params, momentum_buffers, grads) if momentum_buffers is not None else (params, grads)
    scalars = (lr, weight_decay, momentum, dampening)
    if _together(_SGD, (built, bool(nesterov), bool(maximize)), lists, scalars):
        return

    def step(p: Tensor, *rest: Tensor) -> None:
        d = -rest[-1] if maximize else rest[-1]
        if weight_decay:
            d = d + p * weight_decay
        if built:
            b = rest[0]
            b.mul_(momentum).add_(d * (1.0 - dampening) if dampening else d)
            d = d + b * momentum if nesterov else b
        p.sub_(d * lr)

    _apart(_SGD, (built, bool(nesterov), bool(maximize)), lists, scalars, step)


def adam_step_(
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    *,
    step: int,
    lr: float = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    decoupled: bool = False,
    maximize: bool = False,
) -> None:
    """Step number `step`, counted from 1, of Adam (Kingma and Ba, 2015): for each parameter p, its gradient g, and the
    moving averages m of the gradient and v of its square:

        p = p - lr * weight_decay * p if decoupled, else g = g + weight_decay * p       (-g first if maximize)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        p = p - lr * (m / (1 - beta1 ** step)) / (sqrt(v / (1 - beta2 ** step)) + eps)

    in place and unrecorded; gradients stay as they are. `decoupled` is AdamW (Loshchilov and Hutter, 2019). Raises as
    sgd_step_ does.
    """
    first, second = 1.0 - beta1**step, 1.0 - beta2**step
    lists = (params, exp_avgs, exp_avg_sqs, grads)
    scalars = (lr, weight_decay, beta1, beta2, eps, first, second)
    if _together(_ADAM, (bool(decoupled), bool(maximize)), lists, scalars):
        return
    root = math.sqrt(second)

    def one(p: Tensor, *rest: Tensor) -> None:
        m, v, g = rest
        if maximize:
            g = -g
        if weight_decay and decoupled:
            p.mul_(1.0 - lr * weight_decay)
        elif weight_decay:
            g = g + p * weight_decay
        m.mul_(beta1).add_(g * (1.0 - beta1))
        v.mul_(beta2).add_(g * g * (1.0 - beta2))
        p.sub_(m / (v.sqrt() / root + eps) * (lr / first))

    _apart(_ADAM, (bool(decoupled), bool(maximize)), lists, scalars, one)


# --- All at once ----------------------------------------------------------------------------------------------------


class _Steps(Plans):
    """Plans by attributes, number of parameters, and the specs of all tensors."""

    __slots__ = ()

    def __missing__(self, key: Any) -> Plan:
        if key not in self.old:
            self.old[key] = _make_plan(self.op, *key)
        return super().__missing__(key)


def _op(name: str, params: str) -> Op:
    op = Op(name, tuple(params.split()), (), lambda *_: None, kind="step")
    op.plans = _Steps(op)
    return op


_SGD = _op("sgd_step_", "momentum nesterov maximize")
_ADAM = _op("adam_step_", "decoupled maximize")


def _make_plan(op: Op, attrs: tuple[bool, ...], count: int, *specs: Spec) -> Plan:
    """The plan for `specs`, all parameters' first; its kernel is None where the tensors do not suit one."""
    plan: Plan = object.__new__(Plan)
    plan.op, plan.inputs, plan.outputs, plan.out = op, specs, specs[:count], specs[0]
    plan.kernel = None  # type: ignore[assignment]
    for i, spec in enumerate(specs):
        if not spec.dtype.is_floating_point:
            raise DTypeError(f"{op.name}(): expected a floating dtype, got {spec.dtype}")
        if spec.shape != specs[i % count].shape:
            raise ShapeError(
                f"{op.name}(): a parameter of shape {tuple(specs[i % count].shape)} has a gradient or state of shape "
                f"{tuple(spec.shape)}"
            )
    if all(_suits(spec, specs[i % count], specs[0]) for i, spec in enumerate(specs)):
        operands = [Operand(s.dtype, (s.numel,), (1,)) for s in specs]
        operands += [Operand(float64, (), (), True)] * (4 if op is _SGD else 7)
        kernel = compile_kernel(
            op.name[:-1], plan.out.device, tuple(operands), dict(zip(op.params, attrs, strict=True), count=count), False
        )
        plan.kernel = kernel  # type: ignore[assignment]
    return plan


def _suits(spec: Spec, param: Spec, first: Spec) -> bool:
    """Whether the elements lie without gaps and in the parameter's order."""
    if spec.dtype is not first.dtype or spec.device is not first.device:
        return False
    if spec.is_contiguous and param.is_contiguous:
        return True
    return spec is param and not spec.overlaps and span(spec.shape, spec.strides) == spec.numel


def _together(op: Op, attrs: tuple[bool, ...], lists: tuple[Tensors, ...], scalars: tuple[float, ...]) -> bool:
    """Makes the step in one kernel; False where that cannot be."""
    params, *others = lists
    count = len(params)
    key: list[Any] = [attrs, count]
    args: list[Any] = []
    # Two loops: parameters are of a class of their own, and attributes are found faster where all have one class.
    for t in params:
        key.append(t.spec)
        args.append(t.buffer)
        args.append(t.offset)
    for tensors in others:
        if len(tensors) != count:
            raise ShapeError(f"{op.name}(): {count} parameters, but {len(tensors)} gradients or states")
        for t in tensors:
            key.append(t.spec)
            args.append(t.buffer)
            args.append(t.offset)
    if not count:
        return True
    plan = op.plans[tuple(key)]
    buffers = args[::2]
    if plan.kernel is None or (len(set(buffers)) != len(buffers) and _any_overlap([t for ts in lists for t in ts])):
        return False
    args += scalars
    call_in_place(plan, args)
    change = tick(), op.name
    for buffer in buffers[:-count]:
        buffer.modified = change
    return True


def _any_overlap(tensors: list[Tensor]) -> bool:
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
    step: Callable[..., None],
) -> None:
    """Makes the step for parameters that are not alike, or share memory: at once only where it can be."""
    before = is_recording()
    set_recording(False)
    try:
        groups: dict[Any, list[tuple[Tensor, ...]]] = {}
        shared = _any_overlap([t for ts in lists for t in ts])
        for i, row in enumerate(zip(*lists, strict=True)):
            spec = row[0].spec
            alike = i if shared else _suits(spec, spec, spec)
            groups.setdefault((spec.dtype, spec.device, alike), []).append((*row[:-1], _like(row[-1], spec)))
        for rows in groups.values():
            if not _together(op, attrs, tuple(zip(*rows, strict=True)), scalars):
                for row in rows:
                    step(*row)
                    change = tick(), op.name
                    for t in row[:-1]:
                        t.buffer.modified = change
    finally:
        set_recording(before)


def _like(grad: Tensor, spec: Spec) -> Tensor:
    """`grad` in a parameter's dtype, device and layout."""
    if _suits(grad.spec, spec, spec) or spec.overlaps:
        return grad
    out = make_tensor(spec, allocate_on(spec.device, spec.nbytes))
    write(out, grad if grad.spec.device is spec.device else grad.detach().to(spec.device))
    return out
