"""NAdam."""

from __future__ import annotations

from dataclasses import KW_ONLY
from operator import itemgetter
from typing import Any

import norch

from .multi_tensor import MultiTensorOptimizer
from .optimizer import State


class NAdam(MultiTensorOptimizer):
    """NAdam (Dozat, "Incorporating Nesterov Momentum into Adam", 2016).

    The averages m and v are those of Adam, the momentum of step t = 1, 2, ... is
    mu_t = beta1 * (1 - 0.96 ** (t * momentum_decay) / 2), and with P the product of all up to mu_t

        p -= lr * ((1 - mu_t) * g / (1 - P) + mu_t+1 * m / (1 - P * mu_t+1)) / (sqrt(v / (1 - beta2 ** t)) + eps)

    `betas` is (beta1, beta2). `decoupled_weight_decay`: as in AdamW. `foreach` and `capturable` choose among PyTorch's
    implementations, and are ignored. Raises ValueError for negative lr, eps, weight_decay or momentum_decay or betas
    outside [0, 1).
    """

    _op = staticmethod(norch.nadam_step_)
    _states = {"exp_avg": 0, "exp_avg_sq": 0}
    _numbers = {"step": 0, "mu_product": 1.0}
    _scalars = ("step", "lr", "betas", "eps", "weight_decay", "decoupled_weight_decay", "maximize")
    _key = itemgetter("step", "mu_product")

    lr: float | norch.Tensor = 2e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0
    momentum_decay: float = 4e-3
    decoupled_weight_decay: bool = False
    _: KW_ONLY
    foreach: bool | None = None
    maximize: bool = False
    capturable: bool = False
    differentiable: bool = False

    def _arguments(self, group: dict[str, Any], state: State) -> dict[str, Any]:
        arguments = super()._arguments(group, state)
        beta1, step, decay = arguments["beta1"], arguments["step"], group["momentum_decay"]
        mu, mu_next = (beta1 * (1.0 - 0.5 * 0.96 ** (t * decay)) for t in (step, step + 1))
        return arguments | {"mu": mu, "mu_next": mu_next, "mu_product": state["mu_product"] * mu}

    def _next_numbers(self, group: dict[str, Any], arguments: dict[str, Any], step: int) -> State:
        return {"step": step, "mu_product": arguments["mu_product"]}
