"""Adam and AdamW."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any

import norch

from .multi_tensor import MultiTensorOptimizer
from .optimizer import Params


class Adam(MultiTensorOptimizer):
    """Adam (Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015): steps of about lr in each coordinate.

        g = g + weight_decay * p                            (-g first if maximize)
        m = beta1 * m + (1 - beta1) * g                     (zero at first)
        v = beta2 * v + (1 - beta2) * g * g                 (zero at first)
        p -= lr * (m / (1 - beta1 ** t)) / (sqrt(v / (1 - beta2 ** t)) + eps)

    t = 1, 2, ... counts the parameter's steps; `betas` is (beta1, beta2). `amsgrad`: the largest v so far stands for v
    (Reddi et al., 2018). `decoupled_weight_decay`: as in AdamW. Parameters without a gradient are left alone.
    `foreach`, `fused` and `capturable` choose among PyTorch's implementations, and are ignored. Raises ValueError for
    negative lr, eps or weight_decay or betas outside [0, 1).
    """

    _op = staticmethod(norch.adam_step_)
    _states = {"exp_avg": 0, "exp_avg_sq": 0}
    _optional_states = {"max_exp_avg_sq": "amsgrad"}
    _scalars = ("step", "lr", "betas", "eps", "weight_decay", "decoupled_weight_decay", "maximize")

    @staticmethod
    def _varying(arguments: dict[str, Any]) -> tuple[float, ...]:
        step = arguments["step"]
        return 1.0 - arguments["beta1"] ** step, 1.0 - arguments["beta2"] ** step

    lr: float | norch.Tensor = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0
    amsgrad: bool = False
    _: KW_ONLY
    foreach: bool | None = None
    maximize: bool = False
    capturable: bool = False
    differentiable: bool = False
    fused: bool | None = None
    decoupled_weight_decay: bool = False


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019).

    As `Adam`, but weight_decay leaves the gradient alone: p -= lr * weight_decay * p comes before the step.
    """

    def __init__(
        self,
        params: Params,
        lr: float | norch.Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        options = {name: value for name, value in locals().items() if name not in ("self", "params", "__class__")}
        super().__init__(params, decoupled_weight_decay=True, **options)
