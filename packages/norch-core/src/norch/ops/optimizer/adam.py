"""Steps of Adam and its relatives: moving averages of the gradient and of its size."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..elementwise.arithmetic import maximum
from ..registry import public
from .driver import Tensors, descending, run_step, step_op

if TYPE_CHECKING:
    from ...tensor import Tensor

_ADAM = step_op("adam_step_", "decoupled amsgrad maximize")
_NADAM = step_op("nadam_step_", "decoupled maximize")
_RADAM = step_op("radam_step_", "decoupled rectified maximize")
_ADAMAX = step_op("adamax_step_", "maximize")


@public(method=False)
def adam_step_(
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    max_exp_avg_sqs: Tensors | None = None,
    *,
    step: int,
    lr: float = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    decoupled: bool = False,
    maximize: bool = False,
    differentiable: bool = False,
) -> None:
    """Step number `step`, counted from 1, of Adam (Kingma and Ba, 2015): for each parameter p, its gradient g, and the
    moving averages m of the gradient and v of its square:

        p = p - lr * weight_decay * p if decoupled, else g = g + weight_decay * p       (-g first if maximize)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        p = p - lr * (m / (1 - beta1 ** step)) / (sqrt(v / (1 - beta2 ** step)) + eps)

    in place and unrecorded unless differentiable; gradients stay as they are. `decoupled` is AdamW (Loshchilov and
    Hutter, 2019). With `max_exp_avg_sqs`, the largest v so far, which stands for v in the last line, it is AMSGrad
    (Reddi et al., 2018). Raises as sgd_step_ does. The lists are as those of sgd_step_; `exp_avgs` holds m,
    `exp_avg_sqs` v.
    """
    first, second = 1.0 - beta1**step, 1.0 - beta2**step
    amsgrad = max_exp_avg_sqs is not None
    lists = (params, exp_avgs, exp_avg_sqs, *(() if max_exp_avg_sqs is None else (max_exp_avg_sqs,)), grads)
    root = math.sqrt(second)

    def one(p: Tensor, m: Tensor, v: Tensor, *rest: Tensor) -> None:
        g = _decayed(p, rest[-1], lr, weight_decay, decoupled, maximize)
        m.mul_(beta1).add_(g * (1.0 - beta1))
        v.mul_(beta2).add_(g * g * (1.0 - beta2))
        if amsgrad:
            v = rest[0].copy_(maximum(rest[0].clone(), v))
        p.sub_(m / (v.sqrt() / root + eps) * (lr / first))

    scalars = (lr, weight_decay, beta1, beta2, eps, first, second)
    run_step(_ADAM, (bool(decoupled), amsgrad, bool(maximize)), lists, scalars, one, differentiable)


@public(method=False)
def nadam_step_(
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    *,
    step: int,
    mu: float,
    mu_next: float,
    mu_product: float,
    lr: float = 2e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    decoupled: bool = False,
    maximize: bool = False,
    differentiable: bool = False,
) -> None:
    """Step number `step`, counted from 1, of NAdam (Dozat, 2016): g, m and v as in adam_step_, then:

        d = (1 - mu) * g / (1 - mu_product) + mu_next * m / (1 - mu_product * mu_next)
        p = p - lr * d / (sqrt(v / (1 - beta2 ** step)) + eps)

    in place and unrecorded unless differentiable: `mu` and `mu_next` are the momenta of this step and the next,
    `mu_product` the product of all up to this. Raises as sgd_step_ does. The lists are as those of sgd_step_;
    `exp_avgs` holds m, `exp_avg_sqs` v. `decoupled`, `beta1`: as in adam_step_.
    """
    second = 1.0 - beta2**step
    of_grad, of_avg = (1.0 - mu) / (1.0 - mu_product), mu_next / (1.0 - mu_product * mu_next)
    root = math.sqrt(second)

    def one(p: Tensor, m: Tensor, v: Tensor, g: Tensor) -> None:
        g = _decayed(p, g, lr, weight_decay, decoupled, maximize)
        m.mul_(beta1).add_(g * (1.0 - beta1))
        v.mul_(beta2).add_(g * g * (1.0 - beta2))
        p.sub_((g * (lr * of_grad) + m * (lr * of_avg)) / (v.sqrt() / root + eps))

    scalars = (lr, weight_decay, beta1, beta2, eps, of_grad, of_avg, second)
    run_step(
        _NADAM, (bool(decoupled), bool(maximize)), (params, exp_avgs, exp_avg_sqs, grads), scalars, one, differentiable
    )


@public(method=False)
def radam_step_(
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
    differentiable: bool = False,
) -> None:
    """Step number `step`, counted from 1, of RAdam (Liu et al., 2020): g, m and v as in adam_step_, then:

        r = R - 2 * step * beta2 ** step / (1 - beta2 ** step),  R = 2 / (1 - beta2) - 1
        c = sqrt((r - 4) * (r - 2) * R / ((R - 4) * (R - 2) * r))
        p = p - lr * c * m / (1 - beta1 ** step) * sqrt(1 - beta2 ** step) / (sqrt(v) + eps) if r > 5
        p = p - lr * m / (1 - beta1 ** step)                                            otherwise

    in place and unrecorded unless differentiable. Raises as sgd_step_ does. The lists are as those of sgd_step_;
    `exp_avgs` holds m, `exp_avg_sqs` v. `decoupled`: as in adam_step_.
    """
    first, second = 1.0 - beta1**step, 1.0 - beta2**step
    longest = 2.0 / (1.0 - beta2) - 1.0
    length = longest - 2.0 * step * beta2**step / second
    rectified = length > 5.0
    factor = 1.0 / first
    if rectified:
        part = (length - 4.0) * (length - 2.0) * longest / ((longest - 4.0) * (longest - 2.0) * length)
        factor *= math.sqrt(part) * math.sqrt(second)

    def one(p: Tensor, m: Tensor, v: Tensor, g: Tensor) -> None:
        g = _decayed(p, g, lr, weight_decay, decoupled, maximize)
        m.mul_(beta1).add_(g * (1.0 - beta1))
        v.mul_(beta2).add_(g * g * (1.0 - beta2))
        p.sub_(m / (v.sqrt() + eps) * (lr * factor) if rectified else m * (lr * factor))

    scalars = (lr, weight_decay, beta1, beta2, eps, factor)
    lists = (params, exp_avgs, exp_avg_sqs, grads)
    run_step(_RADAM, (bool(decoupled), rectified, bool(maximize)), lists, scalars, one, differentiable)


@public(method=False)
def adamax_step_(
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_infs: Tensors,
    *,
    step: int,
    lr: float = 2e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    maximize: bool = False,
    differentiable: bool = False,
) -> None:
    """Step number `step`, counted from 1, of Adamax (Kingma and Ba, 2015): for each parameter p, its gradient g, the
    moving average m of the gradient and its decaying largest size u:

        g = g + weight_decay * p                            (-g first if maximize)
        m = beta1 * m + (1 - beta1) * g
        u = max(beta2 * u, abs(g) + eps)
        p = p - lr / (1 - beta1 ** step) * m / u

    in place and unrecorded unless differentiable. Raises as sgd_step_ does. The lists are as those of sgd_step_;
    `exp_avgs` holds m, `exp_infs` u.
    """
    first = 1.0 - beta1**step

    def one(p: Tensor, m: Tensor, u: Tensor, g: Tensor) -> None:
        g = descending(p, g, weight_decay, maximize)
        m.mul_(beta1).add_(g * (1.0 - beta1))
        u.copy_(maximum(u * beta2, g.abs() + eps))
        p.sub_(m / u * (lr / first))

    scalars = (lr, weight_decay, beta1, beta2, eps, first)
    run_step(_ADAMAX, (bool(maximize),), (params, exp_avgs, exp_infs, grads), scalars, one, differentiable)


def _decayed(p: Tensor, g: Tensor, lr: float, weight_decay: float, decoupled: bool, maximize: bool) -> Tensor:
    """The gradient to go by; if `decoupled`, the decay is made at once, and the gradient has no part of it."""
    if weight_decay and decoupled:
        p.mul_(1.0 - lr * weight_decay)
        weight_decay = 0.0
    return descending(p, g, weight_decay, maximize)
