"""What norch's own optimisers share: checked options, and steps of all parameters at once."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any, ClassVar

import norch

from .optimizer import Optimizer, State

# Options of optimisers: where they are given to one that does not know them, something is not as its author thinks.
_OPTIONS = frozenset(
    """
    lr betas eps weight_decay amsgrad maximize momentum dampening nesterov alpha centered rho lr_decay etas step_sizes
    initial_accumulator_value momentum_decay decoupled_weight_decay lambd t0 max_iter max_eval tolerance_grad
    tolerance_change history_size line_search_fn
    """.split()
)


class MultiTensorOptimizer(Optimizer):
    """Base of optimisers whose step is one call for all parameters of a group.

    A subclass defines `_begin`, the state of a parameter, and `_step_alike`, the step of parameters whose states have
    the same numbers. Keys of a group that are no option of any optimiser are kept for the user.
    """

    _numbers = {"step": int}
    _key: ClassVar[Any] = itemgetter("step")
    """What parameters that step together have in common; None: anything goes."""

    def _check(self, group: dict[str, Any]) -> None:
        title = type(self).__name__
        unknown = [k for k in group if k in _OPTIONS and k not in self.defaults]
        if unknown:
            raise ValueError(f"{title} has no option {unknown[0]!r}; it has {', '.join(self.defaults)}")
        lr = group.get("lr")
        if isinstance(lr, norch.Tensor) and lr.numel() != 1:
            raise ValueError(f"{title}: lr as a tensor must have one element, got shape {tuple(lr.shape)}")
        if group.get("differentiable"):
            raise NotImplementedError(f"{title}: steps are not recorded in the graph; leave differentiable False")
        if group.get("foreach") and group.get("fused"):
            raise RuntimeError(f"{title}: `fused` and `foreach` cannot be True together")
        self._check_not_negative(group, "lr", "eps", "weight_decay")
        if "betas" in group and (len(group["betas"]) != 2 or not all(0 <= beta < 1 for beta in group["betas"])):
            raise ValueError(f"{title}: invalid betas {group['betas']}: they must be two numbers in [0, 1)")

    def _check_not_negative(self, group: dict[str, Any], *names: str) -> None:
        for name in names:
            if name in group and not group[name] >= 0:
                what = "learning rate" if name == "lr" else name
                raise ValueError(f"{type(self).__name__}: invalid {what} {group[name]}: it must not be negative")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Changes the parameters by their gradients. `closure` computes the loss anew, and its result is returned."""
        loss = None if closure is None else self._evaluate(closure)
        for group in self.param_groups:
            self._step_group(group)
        return loss

    def _step_group(self, group: dict[str, Any]) -> None:
        """A step of the group's parameters that have a gradient: at once, where they have made equally many."""
        params, grads = self._with_gradient(group)
        if not params:
            return
        state = self.state
        states = [state.get(param) or self._begin_state(param, group) for param in params]
        keys = [0] if self._key is None else list(map(self._key, states))
        if keys.count(keys[0]) == len(keys):
            self._step_alike(group, params, grads, states)
        else:  # some had no gradient in an earlier step
            rows: dict[Any, list[Any]] = {}
            for key, *row in zip(keys, params, grads, states, strict=True):
                rows.setdefault(key, []).append(row)
            for part in rows.values():
                self._step_alike(group, *map(list, zip(*part, strict=True)))  # type: ignore[arg-type]
        for s in states:
            s["step"] += 1

    def _begin_state(self, param: norch.Tensor, group: dict[str, Any]) -> State:
        state = self.state[param]
        state["step"] = 0
        state.update(self._begin(param, group))
        return state

    def _begin(self, param: norch.Tensor, group: dict[str, Any]) -> State:
        """The state of a parameter before its first step."""
        return {}

    def _step_alike(
        self, group: dict[str, Any], params: list[norch.Tensor], grads: list[norch.Tensor], states: list[State]
    ) -> None:
        """A step of parameters whose states differ in no number; their "step" is counted after it."""
        raise NotImplementedError(f"{type(self).__name__} does not define _step_alike()")

    def _with_gradient(self, group: dict[str, Any]) -> tuple[list[norch.Tensor], list[norch.Tensor]]:
        """The parameters of a group that have a gradient, and those gradients."""
        params: list[norch.Tensor] = []
        grads: list[norch.Tensor] = []
        for param in group["params"]:
            grad = param._grad  # without the property, which takes as long as all else here
            if grad is not None:
                params.append(param)
                grads.append(grad)
        return params, grads


def listed(params: list[norch.Tensor], states: list[State], name: str) -> list[norch.Tensor]:
    """The states of that name; zeros for parameters that have none, such as where an option was switched on later."""
    return [
        s[name] if s.get(name) is not None else s.setdefault(name, norch.zeros_like(p, requires_grad=False))
        for p, s in zip(params, states, strict=True)
    ]


def zeros_for(param: norch.Tensor) -> norch.Tensor:
    """A state for `param`, zero at first."""
    return norch.zeros_like(param, requires_grad=False)
