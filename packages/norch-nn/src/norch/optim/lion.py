"""Lion."""

from __future__ import annotations

from dataclasses import KW_ONLY

import norch

from .multi_tensor import MultiTensorOptimizer


class Lion(MultiTensorOptimizer):
    """Lion (Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023): steps of lr, by a sign.

        p -= lr * (sign(beta1 * m + (1 - beta1) * g) + weight_decay * p)        (-g for g if maximize)
        m = beta2 * m + (1 - beta2) * g                                         (zero at first)

    `betas` is (beta1, beta2). A good lr is about a tenth of Adam's, weight_decay ten times. `foreach` and `capturable`
    are ignored, as elsewhere. Raises ValueError for negative lr or weight_decay or betas outside [0, 1).
    """

    _op = staticmethod(norch.lion_step_)
    _states = {"exp_avg": 0}
    _scalars = ("lr", "betas", "weight_decay", "maximize")
    _key = None

    lr: float | norch.Tensor = 1e-4
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0
    _: KW_ONLY
    maximize: bool = False
    foreach: bool | None = None
    capturable: bool = False
    differentiable: bool = False
