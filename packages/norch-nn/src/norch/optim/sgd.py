"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any

import norch

from .multi_tensor import MultiTensorOptimizer
from .optimizer import Params


class SGD(MultiTensorOptimizer):
    """p -= lr * d, where d is the gradient g or, with momentum, what past gradients have built up.

        g = g + weight_decay * p                            (-g first if maximize)
        b = momentum * b + (1 - dampening) * g              (b = g at the first step)
        d = g + momentum * b if nesterov else b

    Parameters without a gradient are left alone. `foreach` and `fused` choose among PyTorch's implementations, and are
    ignored. Raises ValueError for negative lr, momentum or weight_decay, and for nesterov without momentum or with
    dampening, NotImplementedError for `differentiable`.
    """

    def __init__(
        self,
        params: Params,
        lr: float | norch.Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            dict(
                lr=lr,
                momentum=momentum,
                dampening=dampening,
                weight_decay=weight_decay,
                nesterov=nesterov,
                maximize=maximize,
                foreach=foreach,
                differentiable=differentiable,
                fused=fused,
            ),
        )

    def _check(self, group: dict[str, Any]) -> None:
        super()._check(group)
        self._check_not_negative(group, "momentum")
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise ValueError("SGD: nesterov needs a momentum and no dampening")

    def _step_group(self, group: dict[str, Any]) -> None:
        params, grads = self._with_gradient(group)
        momentum = float(group["momentum"])
        if not momentum:
            _step(group, params, grads, None, 0.0, 0.0)
            return
        dampening = float(group["dampening"])
        new: list[norch.Tensor] = []
        buffers = [self._buffer(param, new) for param in params]
        if new and dampening:
            first, rest = _split(new, params, grads, buffers)
            _step(group, first[0], first[1], first[2], momentum, 0.0)  # b = g
            _step(group, rest[0], rest[1], rest[2], momentum, dampening)
        else:
            _step(group, params, grads, buffers, momentum, dampening)

    def _buffer(self, param: norch.Tensor, new: list[norch.Tensor]) -> norch.Tensor:
        """What past gradients have built up: of a parameter that has nothing yet zeros, and it is added to `new`."""
        state = self.state.get(param)
        built = None if state is None else state.get("momentum_buffer")
        if built is None:
            built = self.state.setdefault(param, {})["momentum_buffer"] = norch.zeros_like(param, requires_grad=False)
            new.append(param)
        return built


def _step(
    group: dict[str, Any],
    params: list[norch.Tensor],
    grads: list[norch.Tensor],
    buffers: list[norch.Tensor] | None,
    momentum: float,
    dampening: float,
) -> None:
    norch.sgd_step_(
        params,
        grads,
        buffers,
        lr=float(group["lr"]),
        momentum=momentum,
        dampening=dampening,
        weight_decay=float(group["weight_decay"]),
        nesterov=group["nesterov"],
        maximize=group["maximize"],
    )


def _split(new: list[norch.Tensor], *lists: list[norch.Tensor]) -> list[list[list[norch.Tensor]]]:
    """`lists`, of which the first holds parameters, parted into those of `new` parameters and the others."""
    chosen = {id(param) for param in new}
    rows = list(zip(*lists, strict=True))
    parts = [r for r in rows if id(r[0]) in chosen], [r for r in rows if id(r[0]) not in chosen]
    return [[list(column) for column in zip(*part, strict=True)] or [[] for _ in lists] for part in parts]
