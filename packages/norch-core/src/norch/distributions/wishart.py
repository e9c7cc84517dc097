"""The Wishart distribution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..errors import ShapeError
from ..linalg import cholesky
from ..ops import arange, as_tensor, diag_embed, digamma, exp, randn_like, where
from . import constraints
from .distribution import with_batch
from .draws import log_standard_gamma
from .exp_family import ExponentialFamily
from .lkj_cholesky import log_multigamma
from .multivariate_normal import half_log_det, inverse_of_lower, lower_of_precision
from .utils import lazy_property

if TYPE_CHECKING:
    from ..tensor import Tensor


class Wishart(ExponentialFamily):
    """The Wishart distribution of `df` degrees of freedom: of sums of outer products of normal vectors of mean 0 and
    covariance `covariance_matrix`, or by its inverse, `precision_matrix`, or lower Cholesky factor, `scale_tril`.

    Draws by Bartlett's decomposition (1933). Raises ValueError for none or several of the three and unless df > n - 1,
    ShapeError for a matrix of too few dims.
    """

    arg_constraints = {
        "df": constraints.greater_than(0),
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(
        self,
        df: Any,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        matrices = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        given = [(name, value) for name, value in matrices.items() if value is not None]
        if len(given) != 1:
            raise ValueError(
                f"Wishart(): give one of covariance_matrix, precision_matrix and scale_tril, not {len(given)}"
            )
        name, matrix = given[0]
        if matrix.ndim < 2:
            raise ShapeError(f"Wishart(): {name} needs at least 2 dims, it has shape {tuple(matrix.shape)}")
        df = df if hasattr(df, "spec") else as_tensor(float(df), dtype=matrix.dtype, device=matrix.device)
        df = df if df.is_floating_point() else df.to(matrix.dtype)
        batch = with_batch(matrix.shape[:-2], df.shape)
        self.df: Tensor = df.expand(batch)
        setattr(self, name, matrix.expand((*batch, *matrix.shape[-2:])))
        super().__init__(batch, matrix.shape[-2:], validate_args=validate_args)
        self._must_satisfy(constraints.greater_than(matrix.shape[-1] - 1), self.df, "parameter df")
        if scale_tril is not None:
            self._unbroadcasted_scale_tril = scale_tril
        elif covariance_matrix is not None:
            self._unbroadcasted_scale_tril = cholesky(covariance_matrix)
        else:
            self._unbroadcasted_scale_tril = lower_of_precision(matrix)

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower Cholesky factor of the covariance matrix, of shape batch_shape + (n, n)."""
        return self._unbroadcasted_scale_tril.expand((*self._batch_shape, *self._event_shape))

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance matrix of the vectors, of shape batch_shape + (n, n)."""
        lower = self._unbroadcasted_scale_tril
        return (lower @ lower.mT).expand((*self._batch_shape, *self._event_shape))

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance matrix, of shape batch_shape + (n, n)."""
        inverse = inverse_of_lower(self._unbroadcasted_scale_tril)
        return (inverse.mT @ inverse).expand((*self._batch_shape, *self._event_shape))

    def _half_dfs(self) -> Tensor:
        """(df - i) / 2 for each row i."""
        rows = arange(self._event_shape[-1], dtype=self.df.dtype, device=self.df.device)
        return (self.df.unsqueeze(-1) - rows) / 2

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._bartlett_sampling(sample_shape)

    def _bartlett_sampling(self, sample_shape: Any) -> Tensor:
        shape = self._extended_shape(sample_shape)
        halves = self._half_dfs().expand(shape[:-1])
        roots = exp(0.5 * (log_standard_gamma(halves) + math.log(2))).to(self.df.dtype)
        normal = randn_like(roots.detach().unsqueeze(-1).expand(shape)).tril(-1)
        factor = self._unbroadcasted_scale_tril @ (normal + diag_embed(roots))
        return factor @ factor.mT

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        n = self._event_shape[-1]
        log_det = 2 * half_log_det(cholesky(value))
        inverse = inverse_of_lower(self._unbroadcasted_scale_tril)
        trace = (inverse @ value * inverse).sum((-2, -1))
        return (self.df - n - 1) / 2 * log_det - trace / 2 - self._normaliser()

    def _normaliser(self) -> Tensor:
        n = self._event_shape[-1]
        half = 0.5 * n * math.log(2) + half_log_det(self._unbroadcasted_scale_tril)
        return self.df * half + log_multigamma(self.df / 2, n)

    def _expected_log_det(self) -> Tensor:
        """The expectation of the logarithm of the determinant, of shape `batch_shape`."""
        n = self._event_shape[-1]
        half = half_log_det(self._unbroadcasted_scale_tril)
        return digamma(self._half_dfs()).sum(-1) + n * math.log(2) + 2 * half

    def entropy(self) -> Tensor:
        n = self._event_shape[-1]
        return self._normaliser() - (self.df - n - 1) / 2 * self._expected_log_det() + self.df * n / 2

    @property
    def mean(self) -> Tensor:
        return self.df[..., None, None] * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        """NaN where df <= n + 1, of shape batch_shape + (n, n)."""
        factor = self.df - self._event_shape[-1] - 1
        return where(factor <= 0, math.nan, factor)[..., None, None] * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        return self.df[..., None, None] * (v * v + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))
