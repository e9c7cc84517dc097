"""Resilient backpropagation."""

from __future__ import annotations

from typing import Any

import norch

from .multi_tensor import MultiTensorOptimizer, zeros_for
from .optimizer import Params, State


class Rprop(MultiTensorOptimizer):
    """Rprop (Riedmiller and Braun, "A direct adaptive method for faster backpropagation learning", 1993).

        s = clamp(s * f, *step_sizes)                       (lr at first)
        q = 0 where g * q < 0, else g                       (zero at first)
        p -= sign(q) * s

    Each element has a step size s of its own: with `etas` (etaminus, etaplus), f is etaplus where g * q > 0, etaminus
    where g * q < 0, else 1 (-g for g if maximize). `foreach` and `capturable` choose among PyTorch's implementations,
    and are ignored. Raises ValueError for negative lr and unless 0 < etaminus < 1 < etaplus, NotImplementedError for
    `differentiable`.
    """

    _key = None

    def __init__(
        self,
        params: Params,
        lr: float | norch.Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(
            params,
            dict(
                lr=lr,
                etas=etas,
                step_sizes=step_sizes,
                foreach=foreach,
                maximize=maximize,
                differentiable=differentiable,
                capturable=capturable,
            ),
        )

    def _check(self, group: dict[str, Any]) -> None:
        super()._check(group)
        if not 0 < group["etas"][0] < 1 < group["etas"][1]:
            raise ValueError(f"Rprop: invalid etas {group['etas']}: they must be in (0, 1) and above 1")

    def _begin(self, param: norch.Tensor, group: dict[str, Any]) -> State:
        sizes = norch.full_like(param, float(group["lr"]), requires_grad=False)
        return {"prev": zeros_for(param), "step_size": sizes}

    def _step_alike(
        self, group: dict[str, Any], params: list[norch.Tensor], grads: list[norch.Tensor], states: list[State]
    ) -> None:
        (etaminus, etaplus), (smallest, largest) = group["etas"], group["step_sizes"]
        norch.rprop_step_(
            params,
            grads,
            [s["prev"] for s in states],
            [s["step_size"] for s in states],
            etaminus=float(etaminus),
            etaplus=float(etaplus),
            step_size_min=float(smallest),
            step_size_max=float(largest),
            maximize=group["maximize"],
        )
