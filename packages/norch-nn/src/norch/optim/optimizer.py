"""What all optimisers share: groups of parameters with their options, and a state for each parameter."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import norch

Params = Iterable[norch.Tensor] | Iterable[dict[str, Any]]


class Optimizer:
    """Base of all optimisers. A subclass passes its options as `defaults` and defines `step`.

    `params`: an iterable of tensors, or of dicts `{"params": tensors, option: value}`, each a group with options of its
    own. `param_groups` may be changed between steps, such as `optimizer.param_groups[0]["lr"] = 0.01`.

    Raises DTypeError for a Tensor in place of an iterable and for what is no Tensor; ValueError for no parameters, for
    results of ops and for a parameter that is given twice.
    """

    param_groups: list[dict[str, Any]]
    state: dict[norch.Tensor, dict[str, Any]]

    def __init__(self, params: Params, defaults: dict[str, Any]) -> None:
        if isinstance(params, norch.Tensor):
            raise norch.DTypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, but got a "
                f"{type(params).__name__}"
            )
        self.defaults = defaults
        self.state = {}
        self.param_groups = []
        groups: list[Any] = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds `{"params": a tensor or an iterable of them, option: value}`; other options are the defaults."""
        if not isinstance(param_group, dict) or "params" not in param_group:
            raise norch.DTypeError(f"param group must be a dict with a key 'params', got {param_group!r:.80}")
        params = param_group["params"]
        if isinstance(params, set):
            raise norch.DTypeError("optimizer parameters need an order, which a set does not have; use a list")
        params = [params] if isinstance(params, norch.Tensor) else list(params)
        unknown = [k for k in param_group if k not in self.defaults and k not in ("params", "name")]
        if unknown:
            raise ValueError(f"{type(self).__name__} has no option {unknown[0]!r}; it has {', '.join(self.defaults)}")
        seen = {id(p) for group in self.param_groups for p in group["params"]}
        for param in params:
            if not isinstance(param, norch.Tensor):
                raise norch.DTypeError(
                    f"optimizer can only optimize Tensors, but one of the params is {type(param).__name__}"
                )
            if not param.is_leaf:
                raise ValueError(f"can't optimize a non-leaf Tensor: it is a result of {param.grad_fn}")
            if id(param) in seen:
                raise ValueError("a parameter is given to the optimizer twice")
            seen.add(id(param))
        self.param_groups.append({**self.defaults, **param_group, "params": params})

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients of all parameters, or sets them to 0 where `set_to_none=False`."""
        for group in self.param_groups:
            for param in group["params"]:
                if set_to_none or param._grad is None:
                    param._grad = None
                else:
                    param._grad = norch.zeros_like(param._grad)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Changes the parameters by their gradients. `closure` computes the loss anew, and its result is returned."""
        raise NotImplementedError(f"{type(self).__name__} does not define step()")

    def _evaluate(self, closure: Callable[[], Any] | None) -> Any:
        """What `closure` returns, called with recording on."""
        if closure is None:
            return None
        with norch.enable_grad():
            return closure()

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

    def state_dict(self) -> dict[str, Any]:
        """`{"state": {index: state}, "param_groups": [options with indices]}`: parameters are counted across groups.

        Its tensors are the optimiser's own; copy them to keep them as they are.
        """
        index = {id(p): i for i, p in enumerate(self._params())}
        groups = [{**group, "params": [index[id(p)] for p in group["params"]]} for group in self.param_groups]
        return {"state": {index[id(p)]: dict(s) for p, s in self.state.items()}, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over state and options from a `state_dict`; tensors are copied to the parameters' dtypes and devices.

        Raises ValueError, changing nothing, where the groups are not as many or not as long as this optimiser's.
        """
        groups = state_dict["param_groups"]
        if len(groups) != len(self.param_groups):
            raise ValueError(
                f"loaded state dict has {len(groups)} parameter groups, the optimizer {len(self.param_groups)}"
            )
        for i, (theirs, ours) in enumerate(zip(groups, self.param_groups, strict=True)):
            if len(theirs["params"]) != len(ours["params"]):
                raise ValueError(
                    f"loaded state dict has {len(theirs['params'])} parameters in group {i}, the optimizer "
                    f"{len(ours['params'])}"
                )
        keys = [key for group in groups for key in group["params"]]
        self.state = {
            param: {name: _adopt(value, param) for name, value in state_dict["state"][key].items()}
            for key, param in zip(keys, self._params(), strict=True)
            if key in state_dict["state"]
        }
        self.param_groups = [
            {**theirs, "params": ours["params"]} for theirs, ours in zip(groups, self.param_groups, strict=True)
        ]

    def _params(self) -> list[norch.Tensor]:
        return [param for group in self.param_groups for param in group["params"]]

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join([*lines, ")"])


def _adopt(value: Any, param: norch.Tensor) -> Any:
    if not isinstance(value, norch.Tensor):
        return value
    value = value.detach()
    return value.to(param.device, param.dtype if value.is_floating_point() else None, copy=True)
