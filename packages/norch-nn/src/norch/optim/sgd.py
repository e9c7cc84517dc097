"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import norch

from .optimizer import Optimizer, Params


class SGD(Optimizer):
    """p -= lr * d, where d is the gradient g or, with momentum, what past gradients have built up.

        g = g + weight_decay * p                            (-g first if maximize)
        b = momentum * b + (1 - dampening) * g              (b = g at the first step)
        d = g + momentum * b if nesterov else b

    Parameters without a gradient are left alone. Raises ValueError for negative lr, momentum or weight_decay, and for
    nesterov without momentum or with dampening.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        for name, value in (("learning rate", lr), ("momentum", momentum), ("weight_decay", weight_decay)):
            if not value >= 0:
                raise ValueError(f"SGD: invalid {name} {value}: it must not be negative")
        super().__init__(
            params,
            dict(
                lr=lr,
                momentum=momentum,
                dampening=dampening,
                weight_decay=weight_decay,
                nesterov=nesterov,
                maximize=maximize,
            ),
        )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            del self.param_groups[-1]
            raise ValueError("SGD: nesterov needs a momentum and no dampening")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = self._evaluate(closure)
        with norch.no_grad():
            for group in self.param_groups:
                self._step_group(group)
        return loss

    def _step_group(self, group: dict[str, Any]) -> None:
        # Always a float: a number's type is part of the key of a plan, its value is not.
        lr, momentum, weight_decay = float(group["lr"]), float(group["momentum"]), float(group["weight_decay"])
        fresh = 1.0 - group["dampening"]
        nesterov, maximize = group["nesterov"], group["maximize"]
        for param in group["params"]:
            d = param.grad
            if d is None:
                continue
            if maximize:
                d = -d
            if weight_decay:
                d = d + param * weight_decay
            if momentum:
                state = self.state.setdefault(param, {})
                built = state.get("momentum_buffer")
                if built is None:
                    built = state["momentum_buffer"] = d.clone()
                else:
                    built.mul_(momentum).add_(d if fresh == 1.0 else d * fresh)
                d = d + built * momentum if nesterov else built
            param.sub_(d * lr)
