"""Muon."""

from __future__ import annotations

from math import sqrt
from typing import Any

import norch

from .multi_tensor import MultiTensorOptimizer


class Muon(MultiTensorOptimizer):
    """Muon (Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024): momentum made orthogonal.

        m = momentum * m + (1 - momentum) * g                               (zero at first)
        u = momentum * m + (1 - momentum) * g if nesterov, else m
        p = (1 - lr * weight_decay) * p - lr * ratio * newton_schulz(u)

    for matrices alone. newton_schulz brings the singular values near 1, in bfloat16: x / max(norm(x), eps), then
    `ns_steps` times a x + b (x x^T) x + c (x x^T)^2 x, `ns_coefficients` being a, b and c. ratio: sqrt(max(1, rows /
    columns)) for `adjust_lr_fn` None or "original", 0.2 sqrt(max(rows, columns)) for "match_rms_adamw" (Liu et al.,
    2025). Raises ValueError for parameters that are no matrices, negative options, 100 steps or more, or another
    adjust_lr_fn.
    """

    elementwise = False
    _states = {"momentum_buffer": 0}
    _numbers = {}

    lr: float | norch.Tensor = 1e-3
    weight_decay: float = 0.1
    momentum: float = 0.95
    nesterov: bool = True
    ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315)
    eps: float = 1e-7
    ns_steps: int = 5
    adjust_lr_fn: str | None = None

    def _check(self, group: dict[str, Any]) -> None:
        super()._check(group)
        if group["adjust_lr_fn"] not in (None, "original", "match_rms_adamw"):
            raise ValueError(
                f"Muon: adjust_lr_fn must be 'original' or 'match_rms_adamw', got {group['adjust_lr_fn']!r}"
            )
        if len(group["ns_coefficients"]) != 3:
            raise ValueError(f"Muon: ns_coefficients must be three numbers, got {group['ns_coefficients']!r}")
        if not group["ns_steps"] < 100:
            raise ValueError(f"Muon: ns_steps must be below 100, got {group['ns_steps']}")
        for param in group["params"]:
            if param.ndim != 2:
                raise ValueError(f"Muon: parameters must be matrices, got one of shape {tuple(param.shape)}")

    def _step_group(self, group: dict[str, Any]) -> None:
        momentum, lr, fit_to_adam = group["momentum"], float(group["lr"]), group["adjust_lr_fn"] == "match_rms_adamw"
        with norch.no_grad():
            for param, grad in zip(*self._with_gradient(group), strict=True):
                state = self.state.get(param) or self._begin(param, group)
                buffer = state["momentum_buffer"].lerp_(grad, 1 - momentum)
                update = _newton_schulz(grad.lerp(buffer, momentum) if group["nesterov"] else buffer, group)
                rows, columns = param.shape
                ratio = 0.2 * sqrt(max(rows, columns)) if fit_to_adam else sqrt(max(1, rows / columns))
                param.mul_(1 - lr * group["weight_decay"]).sub_(update.to(param.dtype), alpha=lr * ratio)

    def _step_replay(self, given: set[int], ask: Any) -> None:
        """None: replays of norch.capture make the step as it is."""


def _newton_schulz(update: norch.Tensor, group: dict[str, Any]) -> norch.Tensor:
    a, b, c = group["ns_coefficients"]
    rows, columns = update.shape
    x = update.bfloat16()
    x = x.T if rows > columns else x
    x = x / x.norm().clamp(min=group["eps"])
    for _ in range(group["ns_steps"]):
        gram = x @ x.T
        x = norch.addmm(x, norch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if rows > columns else x
