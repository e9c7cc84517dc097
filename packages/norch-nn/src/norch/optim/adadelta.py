"""Adadelta."""

from __future__ import annotations

from dataclasses import KW_ONLY

import norch

from .multi_tensor import MultiTensorOptimizer


class Adadelta(MultiTensorOptimizer):
    """Adadelta (Zeiler, "ADADELTA: An Adaptive Learning Rate Method", 2012).

        g = g + weight_decay * p                            (-g first if maximize)
        v = rho * v + (1 - rho) * g * g                     (zero at first)
        d = sqrt(u + eps) / sqrt(v + eps) * g
        u = rho * u + (1 - rho) * d * d                     (zero at first)
        p -= lr * d

    `foreach` and `capturable` choose among PyTorch's implementations, and are ignored. Raises ValueError for a negative
    lr, eps or weight_decay or rho outside [0, 1].
    """

    _op = staticmethod(norch.adadelta_step_)
    _states = {"square_avg": 0, "acc_delta": 0}
    _scalars = ("lr", "rho", "eps", "weight_decay", "maximize")
    _key = None

    lr: float | norch.Tensor = 1.0
    rho: float = 0.9
    eps: float = 1e-6
    weight_decay: float = 0
    foreach: bool | None = None
    _: KW_ONLY
    capturable: bool = False
    maximize: bool = False
    differentiable: bool = False
