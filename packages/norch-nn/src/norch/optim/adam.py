"""Adam and AdamW."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import norch

from .optimizer import Optimizer, Params


class Adam(Optimizer):
    """Adam (Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015): steps of about lr in each coordinate.

        g = g + weight_decay * p                            (-g first if maximize)
        m = beta1 * m + (1 - beta1) * g                     (zero at first)
        v = beta2 * v + (1 - beta2) * g * g                 (zero at first)
        p -= lr * (m / (1 - beta1 ** t)) / (sqrt(v / (1 - beta2 ** t)) + eps)

    t = 1, 2, ... counts the parameter's steps; `betas` is (beta1, beta2). Parameters without a gradient are left alone.
    Raises ValueError for negative lr, eps or weight_decay or betas outside [0, 1), NotImplementedError for amsgrad.
    """

    _decoupled = False

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params,
            dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, maximize=maximize),
        )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        try:
            _check(type(self).__name__, self.param_groups[-1])
        except Exception:
            del self.param_groups[-1]
            raise

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None if closure is None else self._evaluate(closure)
        for group in self.param_groups:
            self._step_group(group)
        return loss

    def _step_group(self, group: dict[str, Any]) -> None:
        params, grads = self._with_gradient(group)
        state = self.state
        states = [state.get(param) or self._begin(param) for param in params]
        steps = [int(s["step"]) for s in states]
        lists = (params, grads, [s["exp_avg"] for s in states], [s["exp_avg_sq"] for s in states])
        if len(set(steps)) <= 1:
            self._step_alike(group, steps[0] + 1 if steps else 1, *lists)
        else:  # some had no gradient in an earlier step
            for at in sorted(set(steps)):
                alike = [row for row, step in zip(zip(*lists, strict=True), steps, strict=True) if step == at]
                self._step_alike(group, at + 1, *map(list, zip(*alike, strict=True)))
        for s, step in zip(states, steps, strict=True):
            s["step"] = step + 1

    def _step_alike(self, group: dict[str, Any], step: int, *lists: list[norch.Tensor]) -> None:
        beta1, beta2 = group["betas"]
        norch.adam_step_(
            *lists,
            step=step,
            lr=float(group["lr"]),
            beta1=float(beta1),
            beta2=float(beta2),
            eps=float(group["eps"]),
            weight_decay=float(group["weight_decay"]),
            decoupled=self._decoupled,
            maximize=group["maximize"],
        )

    def _begin(self, param: norch.Tensor) -> dict[str, Any]:
        zeros = norch.zeros_like(param, requires_grad=False)
        state = self.state[param] = {"step": 0, "exp_avg": zeros, "exp_avg_sq": zeros.clone()}
        return state


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019).

    As `Adam`, but weight_decay leaves the gradient alone: p -= lr * weight_decay * p comes before the step.
    """

    _decoupled = True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize)


def _check(title: str, group: dict[str, Any]) -> None:
    named = (("learning rate", group["lr"]), ("eps", group["eps"]), ("weight_decay", group["weight_decay"]))
    for name, value in named:
        if not value >= 0:
            raise ValueError(f"{title}: invalid {name} {value}: it must not be negative")
    if len(group["betas"]) != 2 or not all(0 <= beta < 1 for beta in group["betas"]):
        raise ValueError(f"{title}: invalid betas {group['betas']}: they must be two numbers in [0, 1)")
    if group["amsgrad"]:
        raise NotImplementedError(f"{title}: amsgrad is not there yet; leave it False")
