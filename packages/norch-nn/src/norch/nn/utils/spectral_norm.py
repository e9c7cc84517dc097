"""Weights divided by their largest singular value (Miyato et al., 2018)."""

from __future__ import annotations

from typing import TypeVar

import norch

from ..convolution import ConvTranspose1d, ConvTranspose2d
from ..hooks import RemovableHandle, find_pre_hook
from ..module import Module
from ..parameter import Parameter

M = TypeVar("M", bound=Module)


class _SpectralNorm:
    """The hook that divides the weight before each call, after steps of the power method in training."""

    def __init__(self, name: str, steps: int, dim: int, eps: float) -> None:
        self.name = name
        self.steps = steps
        self.dim = dim
        self.eps = eps
        self.handle: RemovableHandle | None = None

    def matrix(self, weight: norch.Tensor) -> norch.Tensor:
        return weight.movedim(self.dim, 0).reshape(weight.shape[self.dim], -1)

    def weight(self, module: Module, training: bool) -> norch.Tensor:
        weight: norch.Tensor = getattr(module, self.name + "_orig")
        left: norch.Tensor = getattr(module, self.name + "_u")
        right: norch.Tensor = getattr(module, self.name + "_v")
        matrix = self.matrix(weight)
        if training:
            with norch.no_grad():
                for _ in range(self.steps):
                    right.copy_(norch.normalize(matrix.mT @ left, dim=0, eps=self.eps))
                    left.copy_(norch.normalize(matrix @ right, dim=0, eps=self.eps))
                left, right = left.clone(), right.clone()  # the next call changes the buffers
        return weight / norch.dot(left, matrix @ right)

    def __call__(self, module: Module, args: object) -> None:
        setattr(module, self.name, self.weight(module, module.training))


def spectral_norm(
    module: M, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> M:
    """Divides a parameter of `module` by its largest singular value (Miyato et al., 2018), all dims but `dim` as one.

    The value is found by `n_power_iterations` of the power method each call in training. The parameter becomes
    `name`_orig; `name`_u and `name`_v are buffers. dim: 0, or 1 for transposed convolutions. Returns the module. Raises
    ValueError for a parameter that is normalised already, and unless there are iterations.
    """
    if find_pre_hook(module, _SpectralNorm, name) is not None:
        raise ValueError(f"spectral_norm(): parameter {name!r} of {type(module).__name__} is normalised already")
    if n_power_iterations <= 0:
        raise ValueError(f"spectral_norm(): n_power_iterations must be positive, got {n_power_iterations}")
    weight = module.get_parameter(name)
    if dim is None:
        dim = 1 if isinstance(module, ConvTranspose1d | ConvTranspose2d) else 0
    hook = _SpectralNorm(name, n_power_iterations, dim, eps)
    with norch.no_grad():
        sizes = hook.matrix(weight.detach()).shape
        left, right = (norch.normalize(weight.new_empty((n,)).normal_(), dim=0, eps=eps) for n in sizes)
    delattr(module, name)
    module.register_parameter(name + "_orig", weight)
    setattr(module, name, weight.detach())
    module.register_buffer(name + "_u", left)
    module.register_buffer(name + "_v", right)
    hook.handle = module.register_forward_pre_hook(hook)
    return module


def remove_spectral_norm(module: M, name: str = "weight") -> M:
    """Undoes spectral_norm of the parameter `name` of `module`: the divided weight becomes the parameter. Raises
    ValueError where there was none.
    """
    hook = find_pre_hook(module, _SpectralNorm, name)
    if hook is None or hook.handle is None:
        raise ValueError(f"remove_spectral_norm(): parameter {name!r} of {type(module).__name__} is not normalised")
    hook.handle.remove()
    with norch.no_grad():
        weight = hook.weight(module, False).detach()
    for each in (name, name + "_orig", name + "_u", name + "_v"):
        delattr(module, each)
    module.register_parameter(name, Parameter(weight))
    return module
