"""Averaged stochastic gradient descent."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import norch

from .multi_tensor import MultiTensorOptimizer
from .optimizer import State


class ASGD(MultiTensorOptimizer):
    """Averaged SGD (Polyak and Juditsky, "Acceleration of stochastic approximation by averaging", 1992).

        g = g + weight_decay * p                            (-g first if maximize)
        p = (1 - lambd * eta) * p - eta * g
        ax = ax + mu * (p - ax)                             (the average, `state[p]["ax"]`)
        eta = lr / (1 + lambd * lr * t) ** alpha            (lr at first)
        mu = 1 / max(1, t - t0)

    t = 1, 2, ... counts the parameter's steps. `foreach` and `capturable` choose among PyTorch's implementations, and
    are ignored. Raises ValueError for a negative lr or weight_decay.
    """

    _op = staticmethod(norch.asgd_step_)
    _states = {"ax": 0}
    _numbers = {"step": 0, "eta": "lr", "mu": 1.0}
    _scalars = ("lambd", "weight_decay", "maximize")
    _recorded_options = ("weight_decay",)
    _key = itemgetter("step", "eta", "mu")

    lr: float | norch.Tensor = 1e-2
    lambd: float = 1e-4
    alpha: float = 0.75
    t0: float = 1e6
    weight_decay: float = 0
    foreach: bool | None = None
    maximize: bool = False
    differentiable: bool = False
    capturable: bool = False

    def _arguments(self, group: dict[str, Any], state: State) -> dict[str, Any]:
        return super()._arguments(group, state) | {"eta": state["eta"], "mu": state["mu"]}

    def _next_numbers(self, group: dict[str, Any], arguments: dict[str, Any], step: int) -> State:
        lr = float(group["lr"])
        eta = lr / (1.0 + arguments["lambd"] * lr * step) ** group["alpha"]
        return {"step": step, "eta": eta, "mu": 1.0 / max(1.0, step - group["t0"])}
