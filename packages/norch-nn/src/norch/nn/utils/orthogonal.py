"""Orthogonal matrices as a parametrization: what is trained has as many numbers as such a matrix has freedoms."""

from __future__ import annotations

from typing import Any, TypeVar

import norch

from ..module import Module
from .parametrize import register_parametrization

M = TypeVar("M", bound=Module)

_MAPS = ("matrix_exp", "cayley", "householder")


def _is_orthogonal(matrix: norch.Tensor) -> bool:
    """Whether the columns of a tall matrix are orthonormal, but for rounding."""
    one = norch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    return norch.allclose(matrix.mT @ matrix, one, atol=10 * matrix.shape[-2] * norch.finfo(matrix.dtype).eps)


def _made_orthogonal(matrix: norch.Tensor) -> norch.Tensor:
    """The Q of the decomposition whose R has a positive diagonal."""
    q, r = norch.qr(matrix)
    return q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)


class _Orthogonal(Module):
    """Lezcano-Casado, "Trivializations for gradient-based optimization on manifolds" (2019).

    With a `base`, an orthogonal matrix, the result is `base` @ that of the map; assigning changes the base alone.
    """

    def __init__(self, shape: norch.Size, orthogonal_map: str, use_trivialization: bool) -> None:
        super().__init__()
        self.shape, self.orthogonal_map = shape, orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        is_wide = x.shape[-2] < x.shape[-1]
        tall = x.mT if is_wide else x
        n, k = tall.shape[-2:]
        if self.orthogonal_map == "householder":
            vectors = tall.tril(-1)
            q = norch.orgqr(vectors, 2 / (1 + (vectors * vectors).sum(-2)))
            q = q * tall.detach().diagonal(dim1=-2, dim2=-1).trunc().unsqueeze(-2)
        else:
            lower = norch.pad(tall.tril(), (0, n - k))
            skew = lower - lower.mT
            if self.orthogonal_map == "matrix_exp":
                q = norch.matrix_exp(skew)
            else:
                one = norch.eye(n, dtype=x.dtype, device=x.device)
                q = norch.inverse(one - skew / 2) @ (one + skew / 2)
            q = q[..., :k]
        base = getattr(self, "base", None)
        if base is not None:
            q = base @ q
        return q.mT if is_wide else q

    def right_inverse(self, value: norch.Tensor) -> norch.Tensor:
        if value.shape != self.shape:
            raise ValueError(f"orthogonal(): expected a tensor of shape {self.shape}, got {value.shape}")
        is_wide = value.shape[-2] < value.shape[-1]
        tall = (value.mT if is_wide else value).detach()
        n, k = tall.shape[-2:]
        if not hasattr(self, "base"):
            if self.orthogonal_map != "householder":
                raise NotImplementedError(
                    f"orthogonal(): {self.orthogonal_map} cannot be assigned to without use_trivialization=True"
                )
            factors, tau = norch.geqrf(tall)
            signs = factors.diagonal(dim1=-2, dim2=-1).sign() * norch.where(tau == 0, -1.0, 1.0)  # 1 is turned round
            factors.diagonal(dim1=-2, dim2=-1).copy_(signs)
            return factors.mT if is_wide else factors
        if n != k:
            drawn = norch.randn(*tall.shape[:-1], n - k, dtype=tall.dtype, device=tall.device)
            tall = norch.cat([tall, drawn], -1)
        self.base = tall.clone() if n == k and _is_orthogonal(tall) else _made_orthogonal(tall)
        start = norch.zeros_like(value)
        start.diagonal(dim1=-2, dim2=-1).fill_(-1)  # of which every map makes the first columns of 1
        return start


def orthogonal(
    module: M, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> M:
    """Makes a parameter of `module`, a matrix or a batch of them, one with orthonormal columns, or rows where it is
    wider than high, by a parametrization.

    orthogonal_map: how it is made of what is trained, "matrix_exp" or "cayley" of a skew-symmetric matrix, or
    "householder", reflections, which is the default unless the matrix is square. use_trivialization: whether to keep an
    orthogonal matrix beside it as the buffer `base`, so that training starts at the value that is there or assigned,
    made orthogonal. Returns the module. Raises ValueError for a `name` that is no parameter or buffer of two dims, and
    for another map.
    """
    weight: Any = getattr(module, name, None)
    if not isinstance(weight, norch.Tensor) or weight.ndim < 2:
        raise ValueError(f"orthogonal(): {type(module).__name__} has no parameter or buffer of matrices named {name!r}")
    if orthogonal_map is None:
        orthogonal_map = "matrix_exp" if weight.shape[-2] == weight.shape[-1] else "householder"
    if orthogonal_map not in _MAPS:
        raise ValueError(f"orthogonal(): orthogonal_map must be one of {', '.join(_MAPS)}, got {orthogonal_map!r}")
    made = _Orthogonal(weight.shape, orthogonal_map, use_trivialization)
    register_parametrization(module, name, made, unsafe=True)
    return module
