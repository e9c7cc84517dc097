"""Adafactor."""

from __future__ import annotations

from dataclasses import KW_ONLY
from math import sqrt
from typing import Any, ClassVar

import norch

from .multi_tensor import MultiTensorOptimizer, State


class Adafactor(MultiTensorOptimizer):
    """Adafactor (Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost", 2018): the second
    moment of a matrix is kept as a column and a row.

        r = r + (mean(g * g, -1) - r) * t ** beta2_decay            (zero at first; c likewise, of dim -2)
        v = r c / max(mean(r), eps1)                                (of a vector the moving average itself)
        u = g / max(sqrt(v), eps1)
        p = (1 - lr * weight_decay) * p
        p -= max(eps2, rms(p)) * min(lr, 1 / sqrt(t)) / max(1, rms(u) / d) * u

    in the last two dims; rms(p) is that before the step, t = 1, 2, ... counts the steps; -g for g if maximize. `eps` is
    (eps1, eps2), None standing for the least step of the dtype. `foreach` is ignored. Raises ValueError for negative
    lr, weight_decay or eps, positive beta2_decay, or d below 1.
    """

    elementwise = False
    _ranges: ClassVar[Any] = MultiTensorOptimizer._ranges | {
        "eps": (
            lambda eps: isinstance(eps, tuple | list) and (eps[0] or 0) >= 0 and eps[1] >= 0,
            "it must be two numbers, not negative",
        ),
        "beta2_decay": (lambda decay: decay <= 0, "it must not be positive"),
        "d": (lambda d: d >= 1, "it must be at least 1"),
    }

    lr: float | norch.Tensor = 1e-2
    beta2_decay: float = -0.8
    eps: tuple[float | None, float] = (None, 1e-3)
    d: float = 1.0
    weight_decay: float = 0.0
    _: KW_ONLY
    foreach: bool | None = None
    maximize: bool = False

    def _begin(self, param: norch.Tensor, group: dict[str, Any]) -> State:
        state = super()._begin(param, group)
        if param.ndim > 1:
            state["row_var"] = param.detach().new_zeros((*param.shape[:-1], 1))
            state["col_var"] = param.detach().new_zeros((*param.shape[:-2], 1, param.shape[-1]))
        else:
            state["variance"] = norch.zeros_like(param, requires_grad=False)
        return state

    def _step_group(self, group: dict[str, Any]) -> None:
        with norch.no_grad():
            for param, grad in zip(*self._with_gradient(group), strict=True):
                state = self.state.get(param) or self._begin(param, group)
                state["step"] += 1
                _step(param, -grad if group["maximize"] else grad, state, group)

    def _step_replay(self, given: set[int], ask: Any) -> None:
        """None: replays of norch.capture make the step as it is."""


def _step(param: norch.Tensor, grad: norch.Tensor, state: State, group: dict[str, Any]) -> None:
    least, greatest = group["eps"]
    least = norch.finfo(param.dtype).eps if least is None else least
    share, lr = float(state["step"]) ** group["beta2_decay"], float(group["lr"])
    scale = _rms(param).clamp(min=greatest) * min(lr, 1 / sqrt(state["step"]))
    param.mul_(1 - lr * group["weight_decay"])
    if param.ndim > 1:
        rows = state["row_var"].lerp_((grad * grad).mean(-1, keepdim=True), share)
        columns = state["col_var"].lerp_((grad * grad).mean(-2, keepdim=True), share)
        variance = rows @ columns / rows.mean(-2, keepdim=True).clamp(min=least)
    else:
        variance = state["variance"].lerp_(grad * grad, share)
    update = grad * variance.clamp(min=least * least).rsqrt()
    param.sub_(update * (scale / (_rms(update) / group["d"]).clamp(min=1.0)))


def _rms(x: norch.Tensor) -> norch.Tensor:
    return x.norm() / sqrt(x.numel())
