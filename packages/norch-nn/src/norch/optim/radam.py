"""RAdam."""

from __future__ import annotations

from dataclasses import KW_ONLY

import norch

from .multi_tensor import MultiTensorOptimizer


class RAdam(MultiTensorOptimizer):
    """RAdam (Liu et al., "On the Variance of the Adaptive Learning Rate and Beyond", 2020): Adam that starts slowly.

    The averages m and v are those of Adam. While their length r = R - 2 * t * beta2 ** t / (1 - beta2 ** t), with
    R = 2 / (1 - beta2) - 1, is at most 5, p -= lr * m / (1 - beta1 ** t); later

        p -= lr * c * m / (1 - beta1 ** t) * sqrt(1 - beta2 ** t) / (sqrt(v) + eps)
        c = sqrt((r - 4) * (r - 2) * R / ((R - 4) * (R - 2) * r))

    t = 1, 2, ... counts the parameter's steps; `betas` is (beta1, beta2). `decoupled_weight_decay`: as in AdamW.
    `foreach` and `capturable` choose among PyTorch's implementations, and are ignored. Raises ValueError for negative
    lr, eps or weight_decay or betas outside [0, 1).
    """

    _op = staticmethod(norch.radam_step_)
    _states = {"exp_avg": 0, "exp_avg_sq": 0}
    _scalars = ("step", "lr", "betas", "eps", "weight_decay", "decoupled_weight_decay", "maximize")

    lr: float | norch.Tensor = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0
    decoupled_weight_decay: bool = False
    _: KW_ONLY
    foreach: bool | None = None
    maximize: bool = False
    capturable: bool = False
    differentiable: bool = False
