"""Adamax."""

from __future__ import annotations

from typing import Any

import norch

from .multi_tensor import MultiTensorOptimizer, zeros_for
from .optimizer import Params, State


class Adamax(MultiTensorOptimizer):
    """Adamax (Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015): Adam with the infinity norm.

        g = g + weight_decay * p                            (-g first if maximize)
        m = beta1 * m + (1 - beta1) * g                     (zero at first)
        u = max(beta2 * u, abs(g) + eps)                    (zero at first)
        p -= lr / (1 - beta1 ** t) * m / u

    t = 1, 2, ... counts the parameter's steps; `betas` is (beta1, beta2). `foreach` and `capturable` choose among
    PyTorch's implementations, and are ignored. Raises ValueError for negative lr, eps or weight_decay or betas outside
    [0, 1), NotImplementedError for `differentiable`.
    """

    def __init__(
        self,
        params: Params,
        lr: float | norch.Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        super().__init__(
            params,
            dict(
                lr=lr,
                betas=betas,
                eps=eps,
                weight_decay=weight_decay,
                foreach=foreach,
                maximize=maximize,
                differentiable=differentiable,
                capturable=capturable,
            ),
        )

    def _begin(self, param: norch.Tensor, group: dict[str, Any]) -> State:
        return {"exp_avg": zeros_for(param), "exp_inf": zeros_for(param)}

    def _step_alike(
        self, group: dict[str, Any], params: list[norch.Tensor], grads: list[norch.Tensor], states: list[State]
    ) -> None:
        beta1, beta2 = group["betas"]
        norch.adamax_step_(
            params,
            grads,
            [s["exp_avg"] for s in states],
            [s["exp_inf"] for s in states],
            step=states[0]["step"] + 1,
            lr=float(group["lr"]),
            beta1=float(beta1),
            beta2=float(beta2),
            eps=float(group["eps"]),
            weight_decay=float(group["weight_decay"]),
            maximize=group["maximize"],
        )
