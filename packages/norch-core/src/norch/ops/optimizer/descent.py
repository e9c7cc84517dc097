"""Steps along the gradient or its sign: SGD, averaged SGD, Rprop, Lion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..elementwise.arithmetic import sign, where
from ..registry import public
from .driver import Tensors, descending, run_step, step_op, together

if TYPE_CHECKING:
    from ...tensor import Tensor

_SGD = step_op("sgd_step_", "momentum nesterov maximize")
_ASGD = step_op("asgd_step_", "maximize")
_RPROP = step_op("rprop_step_", "maximize")
_LION = step_op("lion_step_", "maximize")


@public(method=False)
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
    differentiable: bool = False,
) -> None:
    """A step of gradient descent: for each parameter p, its gradient g and, unless None, its momentum buffer b:

        g = g + weight_decay * p                            (-g first if maximize)
        b = momentum * b + (1 - dampening) * g
        d = g + momentum * b if nesterov else b             (g where there are no buffers)
        p = p - lr * d

    in place and unrecorded unless differentiable; gradients stay as they are. Raises ShapeError for lists of different
    lengths and for shapes that differ, DTypeError unless all are floating. params, grads, momentum_buffers: lists of
    tensors of one device and floating dtype, in the same order; each tensor of a list has the shape of its parameter.
    """
    built = momentum_buffers is not None
    lists = (params, momentum_buffers, grads) if momentum_buffers is not None else (params, grads)

    def one(p: Tensor, *rest: Tensor) -> None:
        d = descending(p, rest[-1], weight_decay, maximize)
        if built:
            b = rest[0]
            b.mul_(momentum).add_(d * (1.0 - dampening) if dampening else d)
            d = d + b * momentum if nesterov else b
        p.sub_(d * lr)

    run_step(
        _SGD,
        (built, bool(nesterov), bool(maximize)),
        lists,
        (lr, weight_decay, momentum, dampening),
        one,
        differentiable,
    )


def moved_together(tensors: Tensors, others: Tensors, factor: float, from_here: bool) -> bool:
    """Whether all tensors, of one device and floating dtype, were moved by factor * (other - tensor if `from_here` else
    other) in one kernel, in place and unrecorded: a step with a negative rate is that, and so is a negative decay."""
    return together(_SGD, (False, False, False), (tensors, others), (-factor, -1.0 if from_here else 0.0, 0.0, 0.0))


@public(method=False)
def asgd_step_(
    params: Tensors,
    grads: Tensors,
    axs: Tensors,
    *,
    eta: float,
    mu: float = 1.0,
    lambd: float = 1e-4,
    weight_decay: float = 0.0,
    maximize: bool = False,
    differentiable: bool = False,
) -> None:
    """A step of averaged gradient descent (Polyak and Juditsky, 1992): for each parameter p, gradient g and average a:

        g = g + weight_decay * p                            (-g first if maximize)
        p = (1 - lambd * eta) * p - eta * g
        a = a + mu * (p - a)                                (p where mu is 1)

    in place and unrecorded unless differentiable. Raises as sgd_step_ does. The lists are as those of sgd_step_; `axs`
    holds a.
    """

    def one(p: Tensor, a: Tensor, g: Tensor) -> None:
        g = descending(p, g, weight_decay, maximize)
        p.mul_(1.0 - lambd * eta).sub_(g * eta)
        if mu == 1:
            a.copy_(p)
        else:
            a.add_((p - a) * mu)

    run_step(_ASGD, (bool(maximize),), (params, axs, grads), (eta, weight_decay, lambd, mu), one, differentiable)


@public(method=False)
def rprop_step_(
    params: Tensors,
    grads: Tensors,
    prevs: Tensors,
    step_sizes: Tensors,
    *,
    etaminus: float = 0.5,
    etaplus: float = 1.2,
    step_size_min: float = 1e-6,
    step_size_max: float = 50.0,
    maximize: bool = False,
    differentiable: bool = False,
) -> None:
    """A step of resilient backpropagation (Riedmiller and Braun, 1993): for each parameter p, its gradient g (-g if
    maximize), the gradient q of the step before and the size s of its steps:

        s = clamp(s * (etaplus where g * q > 0, etaminus where g * q < 0, else 1), step_size_min, step_size_max)
        q = 0 where g * q < 0, else g
        p = p - sign(q) * s

    in place and unrecorded unless differentiable. Raises as sgd_step_ does. The lists are as those of sgd_step_;
    `prevs` holds q, `step_sizes` s.
    """

    def one(p: Tensor, q: Tensor, s: Tensor, g: Tensor) -> None:
        if maximize:
            g = -g
        turn = sign(g * q).detach()
        # Products with +-1 keep the tensors' dtype, which numbers alone do not have.
        factor = where(turn > 0, turn * etaplus, where(turn < 0, turn * -etaminus, turn + 1))
        s.mul_(factor).clamp_(step_size_min, step_size_max)
        q.copy_(where(turn < 0, 0, g))
        p.sub_(sign(q) * s)

    scalars = (etaminus, etaplus, step_size_min, step_size_max)
    run_step(_RPROP, (bool(maximize),), (params, prevs, step_sizes, grads), scalars, one, differentiable)


@public(method=False)
def lion_step_(
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    *,
    lr: float = 1e-4,
    beta1: float = 0.9,
    beta2: float = 0.99,
    weight_decay: float = 0.0,
    maximize: bool = False,
    differentiable: bool = False,
) -> None:
    """A step of Lion (Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023): for each parameter p, its
    gradient g (-g if maximize) and moving average m:

        p = p - lr * (sign(beta1 * m + (1 - beta1) * g) + weight_decay * p)
        m = beta2 * m + (1 - beta2) * g

    in place and unrecorded unless differentiable. Raises as sgd_step_ does. The lists are as those of sgd_step_;
    `exp_avgs` holds m.
    """

    def one(p: Tensor, m: Tensor, g: Tensor) -> None:
        if maximize:
            g = -g
        if weight_decay:
            p.mul_(1.0 - lr * weight_decay)
        p.sub_(sign(m * beta1 + g * (1.0 - beta1)) * lr)
        m.mul_(beta2).add_(g * (1.0 - beta2))

    run_step(_LION, (bool(maximize),), (params, exp_avgs, grads), (lr, weight_decay, beta1, beta2), one, differentiable)
