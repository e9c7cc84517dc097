"""Steps scaled by the squares of past gradients alone: Adagrad, Adadelta, RMSprop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..registry import public
from .driver import Tensors, descending, run_step, step_op

if TYPE_CHECKING:
    from ...tensor import Tensor

_ADAGRAD = step_op("adagrad_step_", "maximize")
_ADADELTA = step_op("adadelta_step_", "maximize")
_RMSPROP = step_op("rmsprop_step_", "centered momentum maximize")


@public(method=False)
def adagrad_step_(
    params: Tensors,
    grads: Tensors,
    state_sums: Tensors,
    *,
    lr: float = 1e-2,
    eps: float = 1e-10,
    weight_decay: float = 0.0,
    maximize: bool = False,
    differentiable: bool = False,
) -> None:
    """A step of Adagrad (Duchi et al., 2011): for each parameter p, its gradient g and the sum s of its squares:

        g = g + weight_decay * p                            (-g first if maximize)
        s = s + g * g
        p = p - lr * g / (sqrt(s) + eps)

    in place and unrecorded unless differentiable; gradients stay as they are. Raises ShapeError for lists of different
    lengths and for shapes that differ, DTypeError unless all are floating. The lists are as those of sgd_step_;
    `state_sums` holds s.
    """

    def one(p: Tensor, s: Tensor, g: Tensor) -> None:
        g = descending(p, g, weight_decay, maximize)
        s.add_(g * g)
        p.sub_(g / (s.sqrt() + eps) * lr)

    run_step(_ADAGRAD, (bool(maximize),), (params, state_sums, grads), (lr, weight_decay, eps), one, differentiable)


@public(method=False)
def adadelta_step_(
    params: Tensors,
    grads: Tensors,
    square_avgs: Tensors,
    acc_deltas: Tensors,
    *,
    lr: float = 1.0,
    rho: float = 0.9,
    eps: float = 1e-6,
    weight_decay: float = 0.0,
    maximize: bool = False,
    differentiable: bool = False,
) -> None:
    """A step of Adadelta (Zeiler, 2012): for each parameter p, its gradient g, the moving average v of its square and
    that of the squared changes, u:

        g = g + weight_decay * p                            (-g first if maximize)
        v = rho * v + (1 - rho) * g * g
        d = sqrt(u + eps) / sqrt(v + eps) * g
        u = rho * u + (1 - rho) * d * d
        p = p - lr * d

    in place and unrecorded unless differentiable. Raises as adagrad_step_ does. The lists are as those of sgd_step_;
    `square_avgs` holds v, `acc_deltas` u.
    """

    def one(p: Tensor, v: Tensor, u: Tensor, g: Tensor) -> None:
        g = descending(p, g, weight_decay, maximize)
        v.mul_(rho).add_(g * g * (1.0 - rho))
        d = (u + eps).sqrt() / (v + eps).sqrt() * g
        u.mul_(rho).add_(d * d * (1.0 - rho))
        p.sub_(d * lr)

    run_step(
        _ADADELTA,
        (bool(maximize),),
        (params, square_avgs, acc_deltas, grads),
        (lr, weight_decay, rho, eps),
        one,
        differentiable,
    )


@public(method=False)
def rmsprop_step_(
    params: Tensors,
    grads: Tensors,
    square_avgs: Tensors,
    grad_avgs: Tensors | None = None,
    momentum_buffers: Tensors | None = None,
    *,
    lr: float = 1e-2,
    alpha: float = 0.99,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    momentum: float = 0.0,
    maximize: bool = False,
    differentiable: bool = False,
) -> None:
    """A step of RMSprop (Tieleman and Hinton, 2012; centred: Graves, 2013): for each parameter p, its gradient g, the
    moving averages v of its square and, unless None, m of itself, and, unless None, its momentum buffer b:

        g = g + weight_decay * p                            (-g first if maximize)
        v = alpha * v + (1 - alpha) * g * g
        m = alpha * m + (1 - alpha) * g
        d = g / (sqrt(v - m * m) + eps)                     (sqrt(v) where there are no m)
        b = momentum * b + d
        p = p - lr * b                                      (d where there are no buffers)

    in place and unrecorded unless differentiable. Raises as adagrad_step_ does. The lists are as those of sgd_step_;
    `square_avgs` holds v, `grad_avgs` m, `momentum_buffers` b.
    """
    centered, built = grad_avgs is not None, momentum_buffers is not None
    lists = (params, square_avgs, *(x for x in (grad_avgs, momentum_buffers) if x is not None), grads)

    def one(p: Tensor, v: Tensor, *rest: Tensor) -> None:
        g = descending(p, rest[-1], weight_decay, maximize)
        v.mul_(alpha).add_(g * g * (1.0 - alpha))
        spread = v
        if centered:
            m = rest[0]
            m.mul_(alpha).add_(g * (1.0 - alpha))
            spread = v - m * m
        d = g / (spread.sqrt() + eps)
        if built:
            d = rest[-2].mul_(momentum).add_(d)
        p.sub_(d * lr)

    run_step(
        _RMSPROP,
        (centered, built, bool(maximize)),
        lists,
        (lr, weight_decay, alpha, eps, momentum),
        one,
        differentiable,
    )
