"""Adamax."""

from __future__ import annotations

from dataclasses import KW_ONLY

import norch

from .multi_tensor import MultiTensorOptimizer


class Adamax(MultiTensorOptimizer):
    """Adamax (Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015): Adam with the infinity norm.

        g = g + weight_decay * p                            (-g first if maximize)
        m = beta1 * m + (1 - beta1) * g                     (zero at first)
        u = max(beta2 * u, abs(g) + eps)                    (zero at first)
        p -= lr / (1 - beta1 ** t) * m / u

    t = 1, 2, ... counts the parameter's steps; `betas` is (beta1, beta2). `foreach` and `capturable` choose among
    PyTorch's implementations, and are ignored. Raises ValueError for negative lr, eps or weight_decay or betas outside
    [0, 1).
    """

    _op = staticmethod(norch.adamax_step_)
    _states = {"exp_avg": 0, "exp_inf": 0}
    _scalars = ("step", "lr", "betas", "eps", "weight_decay", "maximize")

    lr: float | norch.Tensor = 2e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0
    foreach: bool | None = None
    _: KW_ONLY
    maximize: bool = False
    differentiable: bool = False
    capturable: bool = False
