"""The LKJ distribution of correlation matrices, as their Cholesky factors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..autograd.mode import no_grad
from ..dtype import finfo
from ..ops import arange, cat, diag_embed, lgamma, log, randn_like, sqrt
from . import constraints
from .beta import Beta
from .distribution import Distribution
from .utils import broadcast_all

if TYPE_CHECKING:
    from ..tensor import Tensor


def log_multigamma(a: Tensor, dims: int) -> Tensor:
    """The logarithm of the multivariate gamma function of that many `dims`."""
    steps = arange(dims, dtype=a.dtype, device=a.device) / 2
    return dims * (dims - 1) / 4 * math.log(math.pi) + lgamma(a.unsqueeze(-1) - steps).sum(-1)


class LKJCholesky(Distribution):
    """Cholesky factors of `dim` x `dim` correlation matrices, of density det(matrix) ** (concentration - 1)
    (Lewandowski, Kurowicka and Joe, 2009), by their onion method. Raises ValueError for a `dim` below 2.
    """

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ValueError(f"LKJCholesky(): dim must be at least 2, got {dim}")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args=validate_args)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape, c = self._extended_shape(sample_shape), self.concentration
        with no_grad():
            steps = arange(self.dim - 1, dtype=c.dtype, device=c.device)
            offset = cat([steps.new_zeros((1,)), steps])
            first = (c + 0.5 * (self.dim - 2)).unsqueeze(-1) - 0.5 * offset
            lengths = Beta(0.5 * (offset + 1), first, False).expand((*self._batch_shape, self.dim))
            lead = shape[: len(shape) - 2 - len(self._batch_shape)]
            y = lengths.sample(lead).unsqueeze(-1)
            normal = randn_like(y.expand(shape)).tril(-1)
            length = sqrt((normal * normal).sum(-1, True))
            w = sqrt(y) * normal / length.masked_fill(length == 0, 1.0)
            diagonal = sqrt((1 - (w * w).sum(-1)).clamp(min=finfo(w.dtype).tiny))
            return w + diag_embed(diagonal)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        diagonal = value.diagonal(dim1=-2, dim2=-1)[..., 1:]
        order = arange(2, self.dim + 1, dtype=value.dtype, device=value.device)
        order = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - order
        rest = self.dim - 1
        alpha = self.concentration + 0.5 * rest
        normaliser = 0.5 * rest * math.log(math.pi) + log_multigamma(alpha - 0.5, rest) - lgamma(alpha) * rest
        return (order * log(diagonal)).sum(-1) - normaliser
