"""Adadelta."""

from __future__ import annotations

from typing import Any

import norch

from .multi_tensor import MultiTensorOptimizer, zeros_for
from .optimizer import Params, State


class Adadelta(MultiTensorOptimizer):
    """Adadelta (Zeiler, "ADADELTA: An Adaptive Learning Rate Method", 2012).

        g = g + weight_decay * p                            (-g first if maximize)
        v = rho * v + (1 - rho) * g * g                     (zero at first)
        d = sqrt(u + eps) / sqrt(v + eps) * g
        u = rho * u + (1 - rho) * d * d                     (zero at first)
        p -= lr * d

    `foreach` and `capturable` choose among PyTorch's implementations, and are ignored. Raises ValueError for a negative
    lr, eps or weight_decay or rho outside [0, 1], NotImplementedError for `differentiable`.
    """

    _key = None

    def __init__(
        self,
        params: Params,
        lr: float | norch.Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(
            params,
            dict(
                lr=lr,
                rho=rho,
                eps=eps,
                weight_decay=weight_decay,
                maximize=maximize,
                capturable=capturable,
                foreach=foreach,
                differentiable=differentiable,
            ),
        )

    def _check(self, group: dict[str, Any]) -> None:
        super()._check(group)
        if not 0 <= group["rho"] <= 1:
            raise ValueError(f"Adadelta: invalid rho {group['rho']}: it must be in [0, 1]")

    def _begin(self, param: norch.Tensor, group: dict[str, Any]) -> State:
        return {"square_avg": zeros_for(param), "acc_delta": zeros_for(param)}

    def _step_alike(
        self, group: dict[str, Any], params: list[norch.Tensor], grads: list[norch.Tensor], states: list[State]
    ) -> None:
        norch.adadelta_step_(
            params,
            grads,
            [s["square_avg"] for s in states],
            [s["acc_delta"] for s in states],
            lr=float(group["lr"]),
            rho=float(group["rho"]),
            eps=float(group["eps"]),
            weight_decay=float(group["weight_decay"]),
            maximize=group["maximize"],
        )
