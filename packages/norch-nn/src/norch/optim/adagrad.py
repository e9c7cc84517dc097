"""Adagrad."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any

import norch

from .multi_tensor import MultiTensorOptimizer
from .optimizer import State


class Adagrad(MultiTensorOptimizer):
    """Adagrad (Duchi et al., "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization", 2011).

        g = g + weight_decay * p                            (-g first if maximize)
        s = s + g * g                                       (initial_accumulator_value at first)
        p -= lr / (1 + (t - 1) * lr_decay) * g / (sqrt(s) + eps)

    t = 1, 2, ... counts the parameter's steps. Rows that a sparse gradient does not have are left alone, unless there
    is a weight_decay. `foreach` and `fused` choose among PyTorch's implementations, and are ignored. Raises ValueError
    for a negative lr, lr_decay, weight_decay, initial_accumulator_value or eps.
    """

    _op = staticmethod(norch.adagrad_step_)
    _states = {"sum": "initial_accumulator_value"}
    _scalars = ("lr", "eps", "weight_decay", "maximize")

    lr: float | norch.Tensor = 1e-2
    lr_decay: float = 0
    weight_decay: float = 0
    initial_accumulator_value: float = 0
    eps: float = 1e-10
    foreach: bool | None = None
    _: KW_ONLY
    maximize: bool = False
    differentiable: bool = False
    fused: bool | None = None

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        for param in self.param_groups[-1]["params"]:
            self._begin(param, self.param_groups[-1])  # as in PyTorch, at once

    def _arguments(self, group: dict[str, Any], state: State) -> dict[str, Any]:
        arguments = super()._arguments(group, state)
        return arguments | {"lr": arguments["lr"] / (1.0 + state["step"] * group["lr_decay"])}

    def _step_rows(self, group: dict[str, Any], param: norch.Tensor, grad: Any) -> bool:
        if group["weight_decay"]:
            return False
        state = self.state[param]
        arguments, total, once = self._arguments(group, state), state["sum"], grad.coalesce()
        rows, g = once.indices()[0], once.values()
        with norch.no_grad():
            squares = total[rows] + g * g
            total.index_copy_(0, rows, squares)
            rate = arguments["lr"] if group["maximize"] else -arguments["lr"]
            param.index_add_(0, rows, g / (squares.sqrt() + arguments["eps"]), alpha=rate)
        state["step"] += 1
        return True
