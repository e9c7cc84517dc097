"""Normalised weights as parametrizations: what is trained is `module.parametrizations.weight.original` and the like."""

from __future__ import annotations

from typing import Any, TypeVar

import norch

from ..convolution import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from ..module import Module
from .orthogonal import orthogonal as orthogonal
from .parametrize import register_parametrization
from .weight_norm import _length

M = TypeVar("M", bound=Module)


class _WeightNorm(Module):
    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, weight_g: norch.Tensor, weight_v: norch.Tensor) -> norch.Tensor:
        return weight_v * (weight_g / _length(weight_v, self.dim))

    def right_inverse(self, weight: norch.Tensor) -> tuple[norch.Tensor, norch.Tensor]:
        return _length(weight, self.dim), weight


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Makes a parameter of `module` the product of its norm, for each index of `dim` or for None of everything, and its
    direction (Salimans and Kingma, 2016), which are trained as `parametrizations.weight.original0` and `original1`.

    A state_dict with `name`_g and `name`_v, as `nn.utils.weight_norm` names them, can be loaded. Returns the module.
    Raises ValueError for a `name` that is no parameter or buffer.
    """
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def rename(state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        before = [f"{prefix}{name}_g", f"{prefix}{name}_v"]
        if all(key in state_dict for key in before):
            for i, key in enumerate(before):
                state_dict[f"{prefix}parametrizations.{name}.original{i}"] = state_dict.pop(key)

    module._register_load_state_dict_pre_hook(rename)
    return module


class _SpectralNorm(Module):
    _u: norch.Tensor
    _v: norch.Tensor

    def __init__(self, weight: norch.Tensor, n_power_iterations: int, dim: int, eps: float) -> None:
        super().__init__()
        self.dim = dim if dim >= 0 else dim + weight.ndim
        self.n_power_iterations, self.eps = n_power_iterations, eps
        if weight.ndim > 1:
            with norch.no_grad():
                matrix = self._matrix(weight)
                for title, size in zip(("_u", "_v"), matrix.shape, strict=True):
                    drawn = weight.new_empty((size,)).normal_()
                    self.register_buffer(title, norch.normalize(drawn, dim=0, eps=eps))
                self._iterate(matrix, 15)

    def _matrix(self, weight: norch.Tensor) -> norch.Tensor:
        return weight.movedim(self.dim, 0).reshape(weight.shape[self.dim], -1)

    def _iterate(self, matrix: norch.Tensor, steps: int) -> None:
        for _ in range(steps):
            self._u.copy_(norch.normalize(matrix @ self._v, dim=0, eps=self.eps))
            self._v.copy_(norch.normalize(matrix.mT @ self._u, dim=0, eps=self.eps))

    def forward(self, weight: norch.Tensor) -> norch.Tensor:
        if weight.ndim == 1:
            return norch.normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            with norch.no_grad():
                self._iterate(matrix, self.n_power_iterations)
        left, right = self._u.clone(), self._v.clone()  # the next call changes the buffers
        return weight / norch.dot(left, matrix @ right)

    def right_inverse(self, value: norch.Tensor) -> norch.Tensor:
        return value


def spectral_norm(
    module: M, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> M:
    """Divides a parameter of `module` by its largest singular value (Miyato et al., 2018), all dims but `dim` as one;
    what is trained is `parametrizations.weight.original`.

    The value is found by `n_power_iterations` of the power method each time that the parameter is read in training, its
    vectors divided by at least `eps`. dim: 0, or 1 for transposed convolutions. Returns the module. Raises ValueError
    for a `name` that is no parameter or buffer, and unless there are iterations.
    """
    if n_power_iterations <= 0:
        raise ValueError(f"spectral_norm(): n_power_iterations must be positive, got {n_power_iterations}")
    weight = getattr(module, name, None)
    if not isinstance(weight, norch.Tensor):
        raise ValueError(f"spectral_norm(): {type(module).__name__} has no parameter or buffer named {name!r}")
    if dim is None:
        dim = 1 if isinstance(module, ConvTranspose1d | ConvTranspose2d | ConvTranspose3d) else 0
    register_parametrization(module, name, _SpectralNorm(weight.detach(), n_power_iterations, dim, eps))
    return module


norch.check_functions(globals(), "norch.nn.utils.parametrizations")
