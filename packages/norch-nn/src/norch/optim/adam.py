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
        p -= lr * (m / (1 - beta1 ** t)) / (sqrt(v / (1 - beta2 ** t)) + eps)       at the parameter's step t = 1, 2, ...

    `betas` is (beta1, beta2). Parameters without a gradient are left alone. Raises ValueError for negative lr, eps or
    weight_decay and for betas outside [0, 1), NotImplementedError for amsgrad.
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
        # Parameters of one age go together: all, unless some had no gradient in an earlier step.
        ages: dict[int, tuple[list[norch.Tensor], ...]] = {}
        lists = None
        age = -1
        for param, grad in zip(*self._with_gradient(group), strict=True):
            state = self.state.get(param) or self._begin(param)
            if state["step"] != age:
                age = int(state["step"])
                lists = ages.setdefault(age, ([], [], [], []))
            state["step"] = age + 1
            for values, value in zip(lists, (param, grad, state["exp_avg"], state["exp_avg_sq"]), strict=True):
                values.append(value)
        beta1, beta2 = group["betas"]
        for age, lists in ages.items():
            norch.adam_step_(
                *lists,
                step=age + 1,
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
