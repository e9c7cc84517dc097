"""The normal distribution of vectors whose covariance is of low rank but for its diagonal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import ShapeError
from ..linalg import cholesky
from ..ops import diag_embed, eye, log, randn_like, sqrt
from . import constraints
from .distribution import HALF_LOG_2_PI, Distribution, with_batch
from .multivariate_normal import half_log_det, inverse_of_lower, times
from .utils import lazy_property

if TYPE_CHECKING:
    from ..tensor import Tensor


class LowRankMultivariateNormal(Distribution):
    """The normal distribution of vectors of mean `loc`, (n), and covariance cov_factor @ cov_factor.mT +
    diag(cov_diag), of a `cov_factor` (n, rank) and a positive `cov_diag` (n). Raises ShapeError for other dims.

    Matrices of n x n are not made: by Woodbury's formula (1950).
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None) -> None:
        n = loc.shape[-1] if loc.ndim else 0
        if not loc.ndim or cov_factor.ndim < 2 or cov_factor.shape[-2] != n or cov_diag.shape[-1:] != (n,):
            raise ShapeError(
                "LowRankMultivariateNormal(): loc, cov_factor and cov_diag must be (..., n), (..., n, rank) and (..., "
                f"n), they have shapes {tuple(loc.shape)}, {tuple(cov_factor.shape)} and {tuple(cov_diag.shape)}"
            )
        batch = with_batch(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        self.loc, self.cov_diag = loc.expand((*batch, n)), cov_diag.expand((*batch, n))
        self.cov_factor = cov_factor.expand((*batch, *cov_factor.shape[-2:]))
        super().__init__(batch, (n,), validate_args=validate_args)
        self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag = cov_factor, cov_diag
        scaled = self._scaled()
        unit = eye(cov_factor.shape[-1], dtype=loc.dtype, device=loc.device)
        self._capacitance_tril = cholesky(unit + scaled @ cov_factor)

    def _scaled(self) -> Tensor:
        """cov_factor.mT / cov_diag."""
        return self._unbroadcasted_cov_factor.mT / self._unbroadcasted_cov_diag.unsqueeze(-2)

    def _whole(self, matrix: Tensor) -> Tensor:
        n = self._event_shape[0]
        return matrix.expand((*self._batch_shape, n, n))

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower Cholesky factor of the covariance matrix, of shape batch_shape + (n, n)."""
        root = sqrt(self._unbroadcasted_cov_diag).unsqueeze(-1)
        factor = self._unbroadcasted_cov_factor / root
        unit = eye(self._event_shape[0], dtype=root.dtype, device=root.device)
        return self._whole(root * cholesky(factor @ factor.mT + unit))

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance matrix, of shape batch_shape + (n, n)."""
        factor = self._unbroadcasted_cov_factor
        return self._whole(factor @ factor.mT + diag_embed(self._unbroadcasted_cov_diag))

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance matrix, of shape batch_shape + (n, n)."""
        part = inverse_of_lower(self._capacitance_tril) @ self._scaled()
        return self._whole(diag_embed(1 / self._unbroadcasted_cov_diag) - part.mT @ part)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        rank = self.cov_factor.shape[-1]
        narrow = randn_like(self.loc.detach()[..., :1].expand((*shape[:-1], rank)))
        wide = randn_like(self.loc.detach().expand(shape))
        return self.loc + times(self._unbroadcasted_cov_factor, narrow) + sqrt(self._unbroadcasted_cov_diag) * wide

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        distance = value - self.loc
        inside = times(inverse_of_lower(self._capacitance_tril), times(self._scaled(), distance))
        squares = (distance * distance / self._unbroadcasted_cov_diag).sum(-1) - (inside * inside).sum(-1)
        return -0.5 * squares - self._half_log_det() - HALF_LOG_2_PI * self._event_shape[0]

    def _half_log_det(self) -> Tensor:
        return half_log_det(self._capacitance_tril) + 0.5 * log(self._unbroadcasted_cov_diag).sum(-1)

    def entropy(self) -> Tensor:
        found = self._half_log_det() + self._event_shape[0] * (0.5 + HALF_LOG_2_PI)
        return found.expand(self._batch_shape)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return (self.cov_factor * self.cov_factor).sum(-1) + self.cov_diag
