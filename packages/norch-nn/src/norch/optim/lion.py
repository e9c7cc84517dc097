"""Lion."""

from __future__ import annotations

from typing import Any

import norch

from .multi_tensor import MultiTensorOptimizer, zeros_for
from .optimizer import Params, State


class Lion(MultiTensorOptimizer):
    """Lion (Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023): steps of lr, by a sign.

        p -= lr * (sign(beta1 * m + (1 - beta1) * g) + weight_decay * p)        (-g for g if maximize)
        m = beta2 * m + (1 - beta2) * g                                         (zero at first)

    `betas` is (beta1, beta2). A good lr is about a tenth of Adam's, weight_decay ten times. `foreach` and `capturable`
    are ignored, as elsewhere. Raises ValueError for negative lr or weight_decay or betas outside [0, 1),
    NotImplementedError for `differentiable`.
    """

    _key = None

    def __init__(
        self,
        params: Params,
        lr: float | norch.Tensor = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(
            params,
            dict(
                lr=lr,
                betas=betas,
                weight_decay=weight_decay,
                maximize=maximize,
                foreach=foreach,
                capturable=capturable,
                differentiable=differentiable,
            ),
        )

    def _begin(self, param: norch.Tensor, group: dict[str, Any]) -> State:
        return {"exp_avg": zeros_for(param)}

    def _step_alike(
        self, group: dict[str, Any], params: list[norch.Tensor], grads: list[norch.Tensor], states: list[State]
    ) -> None:
        beta1, beta2 = group["betas"]
        norch.lion_step_(
            params,
            grads,
            [s["exp_avg"] for s in states],
            lr=float(group["lr"]),
            beta1=float(beta1),
            beta2=float(beta2),
            weight_decay=float(group["weight_decay"]),
            maximize=group["maximize"],
        )
