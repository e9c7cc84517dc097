"""Adagrad."""

from __future__ import annotations

from typing import Any

import norch

from .multi_tensor import MultiTensorOptimizer
from .optimizer import Params, State


class Adagrad(MultiTensorOptimizer):
    """Adagrad (Duchi et al., "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization", 2011).

        g = g + weight_decay * p                            (-g first if maximize)
        s = s + g * g                                       (initial_accumulator_value at first)
        p -= lr / (1 + (t - 1) * lr_decay) * g / (sqrt(s) + eps)

    t = 1, 2, ... counts the parameter's steps. `foreach` and `fused` choose among PyTorch's implementations, and are
    ignored. Raises ValueError for a negative lr, lr_decay, weight_decay, initial_accumulator_value or eps,
    NotImplementedError for `differentiable`.
    """

    def __init__(
        self,
        params: Params,
        lr: float | norch.Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            dict(
                lr=lr,
                lr_decay=lr_decay,
                eps=eps,
                weight_decay=weight_decay,
                initial_accumulator_value=initial_accumulator_value,
                foreach=foreach,
                maximize=maximize,
                differentiable=differentiable,
                fused=fused,
            ),
        )

    def _check(self, group: dict[str, Any]) -> None:
        super()._check(group)
        self._check_not_negative(group, "lr_decay", "initial_accumulator_value")

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        for param in self.param_groups[-1]["params"]:
            self._begin_state(param, self.param_groups[-1])  # as in PyTorch, at once

    def _begin(self, param: norch.Tensor, group: dict[str, Any]) -> State:
        value = group["initial_accumulator_value"]
        return {"sum": norch.full_like(param, value, requires_grad=False)}

    def _step_alike(
        self, group: dict[str, Any], params: list[norch.Tensor], grads: list[norch.Tensor], states: list[State]
    ) -> None:
        norch.adagrad_step_(
            params,
            grads,
            [s["sum"] for s in states],
            lr=float(group["lr"]) / (1.0 + states[0]["step"] * group["lr_decay"]),
            eps=float(group["eps"]),
            weight_decay=float(group["weight_decay"]),
            maximize=group["maximize"],
        )
