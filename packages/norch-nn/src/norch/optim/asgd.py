"""Averaged stochastic gradient descent."""

from __future__ import annotations

from operator import itemgetter
from typing import Any, ClassVar

import norch

from .multi_tensor import MultiTensorOptimizer, zeros_for
from .optimizer import Params, State


class ASGD(MultiTensorOptimizer):
    """Averaged SGD (Polyak and Juditsky, "Acceleration of stochastic approximation by averaging", 1992).

        g = g + weight_decay * p                            (-g first if maximize)
        p = (1 - lambd * eta) * p - eta * g
        ax = ax + mu * (p - ax)                             (the average, `state[p]["ax"]`)
        eta = lr / (1 + lambd * lr * t) ** alpha            (lr at first)
        mu = 1 / max(1, t - t0)

    t = 1, 2, ... counts the parameter's steps. `foreach` and `capturable` choose among PyTorch's implementations, and
    are ignored. Raises ValueError for a negative lr or weight_decay, NotImplementedError for `differentiable`.
    """

    _numbers: ClassVar[dict[str, Any]] = {"step": int, "eta": float, "mu": float}
    _key = itemgetter("step", "eta", "mu")

    def __init__(
        self,
        params: Params,
        lr: float | norch.Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        super().__init__(
            params,
            dict(
                lr=lr,
                lambd=lambd,
                alpha=alpha,
                t0=t0,
                weight_decay=weight_decay,
                foreach=foreach,
                maximize=maximize,
                differentiable=differentiable,
                capturable=capturable,
            ),
        )

    def _begin(self, param: norch.Tensor, group: dict[str, Any]) -> State:
        return {"eta": float(group["lr"]), "mu": 1.0, "ax": zeros_for(param)}

    def _step_alike(
        self, group: dict[str, Any], params: list[norch.Tensor], grads: list[norch.Tensor], states: list[State]
    ) -> None:
        lr, lambd, step = float(group["lr"]), float(group["lambd"]), states[0]["step"] + 1
        norch.asgd_step_(
            params,
            grads,
            [s["ax"] for s in states],
            eta=states[0]["eta"],
            mu=states[0]["mu"],
            lambd=lambd,
            weight_decay=float(group["weight_decay"]),
            maximize=group["maximize"],
        )
        eta, mu = lr / (1.0 + lambd * lr * step) ** group["alpha"], 1.0 / max(1.0, step - group["t0"])
        for s in states:
            s["eta"], s["mu"] = eta, mu
