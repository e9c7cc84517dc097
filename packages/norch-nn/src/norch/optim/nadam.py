"""NAdam."""

from __future__ import annotations

from operator import itemgetter
from typing import Any, ClassVar

import norch

from .multi_tensor import MultiTensorOptimizer, zeros_for
from .optimizer import Params, State


class NAdam(MultiTensorOptimizer):
    """NAdam (Dozat, "Incorporating Nesterov Momentum into Adam", 2016).

    The averages m and v are those of Adam, the momentum of step t = 1, 2, ... is
    mu_t = beta1 * (1 - 0.96 ** (t * momentum_decay) / 2), and with P the product of all up to mu_t

        p -= lr * ((1 - mu_t) * g / (1 - P) + mu_t+1 * m / (1 - P * mu_t+1)) / (sqrt(v / (1 - beta2 ** t)) + eps)

    `betas` is (beta1, beta2). `decoupled_weight_decay`: as in AdamW. `foreach` and `capturable` choose among PyTorch's
    implementations, and are ignored. Raises ValueError for negative lr, eps, weight_decay or momentum_decay or betas
    outside [0, 1), NotImplementedError for `differentiable`.
    """

    _numbers: ClassVar[dict[str, Any]] = {"step": int, "mu_product": float}
    _key = itemgetter("step", "mu_product")

    def __init__(
        self,
        params: Params,
        lr: float | norch.Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(
            params,
            dict(
                lr=lr,
                betas=betas,
                eps=eps,
                weight_decay=weight_decay,
                momentum_decay=momentum_decay,
                decoupled_weight_decay=decoupled_weight_decay,
                maximize=maximize,
                foreach=foreach,
                capturable=capturable,
                differentiable=differentiable,
            ),
        )

    def _check(self, group: dict[str, Any]) -> None:
        super()._check(group)
        self._check_not_negative(group, "momentum_decay")

    def _begin(self, param: norch.Tensor, group: dict[str, Any]) -> State:
        return {"mu_product": 1.0, "exp_avg": zeros_for(param), "exp_avg_sq": zeros_for(param)}

    def _step_alike(
        self, group: dict[str, Any], params: list[norch.Tensor], grads: list[norch.Tensor], states: list[State]
    ) -> None:
        beta1, beta2 = group["betas"]
        step = states[0]["step"] + 1
        mu, mu_next = (float(beta1) * (1.0 - 0.5 * 0.96 ** (t * group["momentum_decay"])) for t in (step, step + 1))
        product = states[0]["mu_product"] * mu
        norch.nadam_step_(
            params,
            grads,
            [s["exp_avg"] for s in states],
            [s["exp_avg_sq"] for s in states],
            step=step,
            mu=mu,
            mu_next=mu_next,
            mu_product=product,
            lr=float(group["lr"]),
            beta1=float(beta1),
            beta2=float(beta2),
            eps=float(group["eps"]),
            weight_decay=float(group["weight_decay"]),
            decoupled=group["decoupled_weight_decay"],
            maximize=group["maximize"],
        )
        for s in states:
            s["mu_product"] = product
