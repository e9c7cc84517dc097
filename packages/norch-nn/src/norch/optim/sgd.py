"""Stochastic gradient descent."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any

import norch

from .multi_tensor import MultiTensorOptimizer, renewed, state_tensors


class SGD(MultiTensorOptimizer):
    """p -= lr * d, where d is the gradient g or, with momentum, what past gradients have built up.

        g = g + weight_decay * p                            (-g first if maximize)
        b = momentum * b + (1 - dampening) * g              (b = g at the first step)
        d = g + momentum * b if nesterov else b

    Parameters without a gradient are left alone, and so are rows that a sparse gradient does not have, unless there is
    a momentum or weight_decay. `foreach` and `fused` choose among PyTorch's implementations, and are ignored. Raises
    ValueError for negative lr, momentum or weight_decay, and for nesterov without momentum or with dampening. After
    Robbins and Monro (1951); the momentum after Sutskever et al. (2013).
    """

    _op = staticmethod(norch.sgd_step_)
    _scalars = ("lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize")

    lr: float | norch.Tensor = 1e-3
    momentum: float = 0
    dampening: float = 0
    weight_decay: float = 0
    nesterov: bool = False
    _: KW_ONLY
    maximize: bool = False
    foreach: bool | None = None
    differentiable: bool = False
    fused: bool | None = None

    def _check(self, group: dict[str, Any]) -> None:
        super()._check(group)
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise ValueError("SGD: nesterov needs a momentum and no dampening")

    def _state_names(self, group: dict[str, Any]) -> list[str | None]:
        return ["momentum_buffer" if group["momentum"] else None]

    def _step_group(self, group: dict[str, Any]) -> None:
        params, grads = self._with_gradient(group)
        kinds: set[Any] = set(map(type, params))
        if any(kind.add_ is not _add for kind in kinds):
            if group["differentiable"]:
                raise NotImplementedError("SGD: the steps of classes with an add_ of their own are not differentiable")
            params, grads = self._by_their_classes(params, grads, group)
            if not params:
                return
        arguments = self._arguments(group, {})
        if not group["momentum"]:
            norch.sgd_step_(params, grads, None, **arguments)
            return
        undamped = arguments | {"dampening": 0.0}
        states = [self.state[param] for param in params]
        is_first = [state.get("momentum_buffer") is None for state in states] if group["dampening"] else []
        buffers: Any = state_tensors(params, states, "momentum_buffer")
        if group["differentiable"]:
            buffers = renewed(states, "momentum_buffer")
        if any(is_first):
            for first, chosen in ((True, undamped), (False, arguments)):  # at first b = g
                rows = [row for row, f in zip(zip(params, grads, buffers), is_first, strict=True) if f is first]
                if rows:
                    norch.sgd_step_(*map(list, zip(*rows, strict=True)), **chosen)
        else:
            norch.sgd_step_(params, grads, buffers, **arguments)

    def _step_rows(self, group: dict[str, Any], param: norch.Tensor, grad: Any) -> bool:
        if group["momentum"] or group["weight_decay"] or type(param).add_ is not _add:
            return False
        with norch.no_grad():
            rate = float(group["lr"])
            param.index_add_(0, grad._indices()[0], grad._values(), alpha=rate if group["maximize"] else -rate)
        return True

    def _by_their_classes(
        self, params: list[norch.Tensor], grads: list[norch.Tensor], group: dict[str, Any]
    ) -> tuple[list[norch.Tensor], list[norch.Tensor]]:
        """The steps of parameters whose classes have an `add_` of their own; gives the others and their gradients."""
        others: list[tuple[norch.Tensor, norch.Tensor]] = []
        with norch.no_grad():
            for param, grad in zip(params, grads, strict=True):
                if type(param).add_ is _add:
                    others.append((param, grad))
                else:
                    self._step_by_add(param, grad, group)
        return [param for param, _ in others], [grad for _, grad in others]

    def _step_by_add(self, param: norch.Tensor, grad: norch.Tensor, group: dict[str, Any]) -> None:
        """The step of a parameter whose class says itself what it is to add: of a rotation, say."""
        step = -grad if group["maximize"] else grad
        if group["weight_decay"]:
            step = step.add(param, alpha=group["weight_decay"])
        if group["momentum"]:
            state = self.state[param]
            if state.get("momentum_buffer") is None:
                state["momentum_buffer"] = step.clone().detach()
            else:
                state["momentum_buffer"].mul_(group["momentum"]).add_(step, alpha=1 - group["dampening"])
            buffer = state["momentum_buffer"]
            step = step.add(buffer, alpha=group["momentum"]) if group["nesterov"] else buffer
        param.add_(step, alpha=-group["lr"])


_add = norch.Tensor.add_
