"""Weights in two parts, their length and their direction (Salimans and Kingma, 2016)."""

from __future__ import annotations

from typing import TypeVar

import norch

from ..hooks import RemovableHandle, find_pre_hook
from ..module import Module
from ..parameter import Parameter

M = TypeVar("M", bound=Module)


def _length(weight: norch.Tensor, dim: int | None) -> norch.Tensor:
    """The norm over all dims but `dim`, which are kept with size 1; of everything, 0-d, for None."""
    if dim is None:
        return norch.norm(weight)
    others = [d for d in range(weight.ndim) if d != dim % weight.ndim]
    return norch.norm(weight, 2, others, True) if others else weight.abs()


class _WeightNorm:
    """The hook that makes the weight of its two parts before each call."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name = name
        self.dim = dim
        self.handle: RemovableHandle | None = None

    def weight(self, module: Module) -> norch.Tensor:
        direction: norch.Tensor = getattr(module, self.name + "_v")
        length: norch.Tensor = getattr(module, self.name + "_g")
        return direction * (length / _length(direction, self.dim))

    def __call__(self, module: Module, args: object) -> None:
        setattr(module, self.name, self.weight(module))


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Makes a parameter of `module` the product of two (Salimans and Kingma, 2016), `name`_g and `name`_v, which are
    trained instead of it.

    `name`_g has the norm for each index of `dim`, or for None of everything. Returns the module. Raises ValueError for
    a parameter that is normalised already.
    """
    if find_pre_hook(module, _WeightNorm, name) is not None:
        raise ValueError(f"weight_norm(): parameter {name!r} of {type(module).__name__} is normalised already")
    weight = module.get_parameter(name)
    hook = _WeightNorm(name, dim)
    delattr(module, name)
    module.register_parameter(name + "_g", Parameter(_length(weight.detach(), dim)))
    module.register_parameter(name + "_v", Parameter(weight.detach()))
    hook(module, ())
    hook.handle = module.register_forward_pre_hook(hook)
    return module


def remove_weight_norm(module: M, name: str = "weight") -> M:
    """Undoes weight_norm of the parameter `name` of `module`: one parameter again. Raises ValueError where there was
    none.
    """
    hook = find_pre_hook(module, _WeightNorm, name)
    if hook is None or hook.handle is None:
        raise ValueError(f"remove_weight_norm(): parameter {name!r} of {type(module).__name__} is not normalised")
    hook.handle.remove()
    weight = hook.weight(module).detach()
    for each in (name, name + "_g", name + "_v"):
        delattr(module, each)
    module.register_parameter(name, Parameter(weight))
    return module
