"""Adam and AdamW."""

from __future__ import annotations

from typing import Any

import norch

from .multi_tensor import MultiTensorOptimizer, listed, zeros_for
from .optimizer import Params, State


class Adam(MultiTensorOptimizer):
    """Adam (Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015): steps of about lr in each coordinate.

        g = g + weight_decay * p                            (-g first if maximize)
        m = beta1 * m + (1 - beta1) * g                     (zero at first)
        v = beta2 * v + (1 - beta2) * g * g                 (zero at first)
        p -= lr * (m / (1 - beta1 ** t)) / (sqrt(v / (1 - beta2 ** t)) + eps)

    t = 1, 2, ... counts the parameter's steps; `betas` is (beta1, beta2). `amsgrad`: the largest v so far stands for v
    (Reddi et al., 2018). `decoupled_weight_decay`: as in AdamW. Parameters without a gradient are left alone.
    `foreach`, `fused` and `capturable` choose among PyTorch's implementations, and are ignored. Raises ValueError for
    negative lr, eps or weight_decay or betas outside [0, 1), NotImplementedError for `differentiable`.
    """

    def __init__(
        self,
        params: Params,
        lr: float | norch.Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        super().__init__(
            params,
            dict(
                lr=lr,
                betas=betas,
                eps=eps,
                weight_decay=weight_decay,
                amsgrad=amsgrad,
                maximize=maximize,
                foreach=foreach,
                capturable=capturable,
                differentiable=differentiable,
                fused=fused,
                decoupled_weight_decay=decoupled_weight_decay,
            ),
        )

    def _begin(self, param: norch.Tensor, group: dict[str, Any]) -> State:
        return {"exp_avg": zeros_for(param), "exp_avg_sq": zeros_for(param)}

    def _step_alike(
        self, group: dict[str, Any], params: list[norch.Tensor], grads: list[norch.Tensor], states: list[State]
    ) -> None:
        beta1, beta2 = group["betas"]
        norch.adam_step_(
            params,
            grads,
            [s["exp_avg"] for s in states],
            [s["exp_avg_sq"] for s in states],
            listed(params, states, "max_exp_avg_sq") if group["amsgrad"] else None,
            step=states[0]["step"] + 1,
            lr=float(group["lr"]),
            beta1=float(beta1),
            beta2=float(beta2),
            eps=float(group["eps"]),
            weight_decay=float(group["weight_decay"]),
            decoupled=group["decoupled_weight_decay"],
            maximize=group["maximize"],
        )


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
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )
