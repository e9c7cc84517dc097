"""`torch.optim._functional`: steps of optimisers as functions of lists, which optimisers of one's own call.

The lists and options are PyTorch's. `state_steps` holds a tensor of one element for each parameter, which counts. Given
by name, what chooses among PyTorch's implementations (`foreach`, `fused`, `capturable` and such) is ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import norch

Tensors = list[norch.Tensor]


def _by_step(state_steps: Tensors, *lists: Any) -> Iterator[tuple[int, list[Any]]]:
    """Counts a step of each parameter. Gives the lists' parts of those that have taken equally many, and the number.

    Raises RuntimeError for steps that are no tensors, as PyTorch does since 1.12.
    """
    if not all(isinstance(step, norch.Tensor) for step in state_steps):
        raise RuntimeError("state_steps must hold a tensor of one element for each parameter, which counts its steps")
    places: dict[int, list[int]] = {}
    for i, step in enumerate(state_steps):
        step.add_(1)
        places.setdefault(int(step), []).append(i)
    for number, chosen in places.items():
        yield number, [None if given is None else [given[i] for i in chosen] for given in lists]


def _check(ignored: dict[str, Any]) -> None:
    """Raises NotImplementedError for what would change the step: scales and infinities that a GradScaler found."""
    for name in ("grad_scale", "found_inf"):
        if ignored.get(name) is not None:
            raise NotImplementedError(f"{name} is for PyTorch's fused steps; divide the gradients first")


def adam(
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    max_exp_avg_sqs: Tensors,
    state_steps: Tensors,
    *,
    amsgrad: bool,
    maximize: bool = False,
    differentiable: bool = False,
    decoupled_weight_decay: bool = False,
    beta1: float,
    beta2: float,
    lr: float,
    weight_decay: float,
    eps: float,
    **ignored: Any,
) -> None:
    """`norch.adam_step_`, by the largest second moments where `amsgrad`. Raises as that does."""
    _check(ignored)
    largest = max_exp_avg_sqs if amsgrad else None
    for step, lists in _by_step(state_steps, params, grads, exp_avgs, exp_avg_sqs, largest):
        norch.adam_step_(
            *lists, step=step, lr=lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay,
            decoupled=decoupled_weight_decay, maximize=maximize, differentiable=differentiable,
        )  # fmt: skip


def adamw(*args: Any, **kwargs: Any) -> None:
    """`adam` with decoupled weight decay."""
    adam(*args, **kwargs | {"decoupled_weight_decay": True})


def radam(
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    state_steps: Tensors,
    decoupled_weight_decay: bool = False,
    *,
    maximize: bool = False,
    differentiable: bool = False,
    beta1: float,
    beta2: float,
    lr: float,
    weight_decay: float,
    eps: float,
    **ignored: Any,
) -> None:
    """`norch.radam_step_`. Raises as that does."""
    _check(ignored)
    for step, lists in _by_step(state_steps, params, grads, exp_avgs, exp_avg_sqs):
        norch.radam_step_(
            *lists, step=step, lr=lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay,
            decoupled=decoupled_weight_decay, maximize=maximize, differentiable=differentiable,
        )  # fmt: skip


def adamax(
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_infs: Tensors,
    state_steps: Tensors,
    *,
    maximize: bool = False,
    differentiable: bool = False,
    eps: float,
    beta1: float,
    beta2: float,
    lr: float,
    weight_decay: float,
    **ignored: Any,
) -> None:
    """`norch.adamax_step_`. Raises as that does."""
    _check(ignored)
    for step, lists in _by_step(state_steps, params, grads, exp_avgs, exp_infs):
        norch.adamax_step_(
            *lists, step=step, lr=lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay, maximize=maximize,
            differentiable=differentiable,
        )  # fmt: skip


def adagrad(
    params: Tensors,
    grads: Tensors,
    state_sums: Tensors,
    state_steps: Tensors,
    *,
    differentiable: bool = False,
    lr: float,
    weight_decay: float,
    lr_decay: float,
    eps: float,
    maximize: bool = False,
    **ignored: Any,
) -> None:
    """`norch.adagrad_step_` at a rate of lr / (1 + (step - 1) * lr_decay). Raises as that does."""
    _check(ignored)
    for step, lists in _by_step(state_steps, params, grads, state_sums):
        rate = lr / (1 + (step - 1) * lr_decay)
        norch.adagrad_step_(
            *lists, lr=rate, eps=eps, weight_decay=weight_decay, maximize=maximize, differentiable=differentiable
        )


def adadelta(
    params: Tensors,
    grads: Tensors,
    square_avgs: Tensors,
    acc_deltas: Tensors,
    state_steps: Tensors,
    *,
    differentiable: bool = False,
    lr: float,
    rho: float,
    eps: float,
    weight_decay: float,
    maximize: bool = False,
    **ignored: Any,
) -> None:
    """`norch.adadelta_step_`. Raises as that does."""
    _check(ignored)
    options: dict[str, Any] = {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
    for _, lists in _by_step(state_steps, params, grads, square_avgs, acc_deltas):
        norch.adadelta_step_(*lists, **options, differentiable=differentiable)


def rmsprop(
    params: Tensors,
    grads: Tensors,
    square_avgs: Tensors,
    grad_avgs: Tensors,
    momentum_buffer_list: Tensors,
    state_steps: Tensors,
    *,
    maximize: bool = False,
    differentiable: bool = False,
    lr: float,
    alpha: float,
    eps: float,
    weight_decay: float,
    momentum: float,
    centered: bool,
    **ignored: Any,
) -> None:
    """`norch.rmsprop_step_`, with the averages of gradients if `centered`. Raises as that does."""
    _check(ignored)
    more = grad_avgs if centered else None, momentum_buffer_list if momentum else None
    for _, lists in _by_step(state_steps, params, grads, square_avgs, *more):
        norch.rmsprop_step_(
            *lists, lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum, maximize=maximize,
            differentiable=differentiable,
        )  # fmt: skip


def sgd(
    params: Tensors,
    d_p_list: Tensors,
    momentum_buffer_list: list[norch.Tensor | None],
    *,
    weight_decay: float,
    momentum: float,
    lr: float,
    dampening: float,
    nesterov: bool,
    maximize: bool = False,
    **ignored: Any,
) -> None:
    """`norch.sgd_step_`. A buffer that is None is made of the gradient, and put into its list. Raises as that does."""
    _check(ignored)
    options: dict[str, Any] = {"lr": lr, "weight_decay": weight_decay, "nesterov": nesterov, "maximize": maximize}
    if not momentum:
        norch.sgd_step_(params, d_p_list, None, **options)
        return
    for i, (p, g, buffer) in enumerate(zip(params, d_p_list, momentum_buffer_list, strict=True)):
        damped = 0.0 if buffer is None else dampening
        if buffer is None:
            momentum_buffer_list[i] = buffer = norch.zeros_like(p, requires_grad=False)
        norch.sgd_step_([p], [g], [buffer], momentum=momentum, dampening=damped, **options)
