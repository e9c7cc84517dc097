"""RMSprop."""

from __future__ import annotations

from typing import Any

import norch

from .multi_tensor import MultiTensorOptimizer, listed, zeros_for
from .optimizer import Params, State


class RMSprop(MultiTensorOptimizer):
    """RMSprop (Tieleman and Hinton, "Neural Networks for Machine Learning", lecture 6.5, 2012; centred: Graves, 2013).

        g = g + weight_decay * p                            (-g first if maximize)
        v = alpha * v + (1 - alpha) * g * g                 (zero at first)
        m = alpha * m + (1 - alpha) * g                     (zero at first; only if centered)
        d = g / (sqrt(v - m * m) + eps)                     (sqrt(v) unless centered)
        b = momentum * b + d                                (zero at first; d without momentum)
        p -= lr * b

    `foreach` and `capturable` choose among PyTorch's implementations, and are ignored. Raises ValueError for a negative
    lr, alpha, eps, momentum or weight_decay, NotImplementedError for `differentiable`.
    """

    _key = None

    def __init__(
        self,
        params: Params,
        lr: float | norch.Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(
            params,
            dict(
                lr=lr,
                momentum=momentum,
                alpha=alpha,
                eps=eps,
                centered=centered,
                weight_decay=weight_decay,
                capturable=capturable,
                foreach=foreach,
                maximize=maximize,
                differentiable=differentiable,
            ),
        )

    def _check(self, group: dict[str, Any]) -> None:
        super()._check(group)
        self._check_not_negative(group, "momentum", "alpha")

    def _begin(self, param: norch.Tensor, group: dict[str, Any]) -> State:
        return {"square_avg": zeros_for(param)}

    def _step_alike(
        self, group: dict[str, Any], params: list[norch.Tensor], grads: list[norch.Tensor], states: list[State]
    ) -> None:
        norch.rmsprop_step_(
            params,
            grads,
            [s["square_avg"] for s in states],
            listed(params, states, "grad_avg") if group["centered"] else None,
            listed(params, states, "momentum_buffer") if group["momentum"] > 0 else None,
            lr=float(group["lr"]),
            alpha=float(group["alpha"]),
            eps=float(group["eps"]),
            weight_decay=float(group["weight_decay"]),
            momentum=float(group["momentum"]),
            maximize=group["maximize"],
        )
