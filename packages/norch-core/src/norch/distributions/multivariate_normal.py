"""The normal distribution of vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import ShapeError
from ..linalg import cholesky, solve_triangular
from ..ops import eye, flip, log, randn_like
from . import constraints
from .distribution import HALF_LOG_2_PI, Distribution, with_batch
from .utils import lazy_property

if TYPE_CHECKING:
    from ..tensor import Tensor


def inverse_of_lower(lower: Tensor) -> Tensor:
    """The inverses of lower triangular matrices."""
    unit = eye(lower.shape[-1], dtype=lower.dtype, device=lower.device)
    return solve_triangular(lower, unit.expand(lower.shape), upper=False)


def times(matrix: Tensor, vector: Tensor) -> Tensor:
    """matrix @ vector of batches that broadcast."""
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def half_log_det(lower: Tensor) -> Tensor:
    """log of the determinant of lower triangular matrices."""
    return log(lower.diagonal(dim1=-2, dim2=-1)).sum(-1)


def lower_of_precision(precision: Tensor) -> Tensor:
    """The Cholesky factors of the inverses of matrices: of them upside down, turned around and inverted."""
    return inverse_of_lower(flip(cholesky(flip(precision, (-2, -1))), (-2, -1)).mT)


_precision_to_scale_tril = lower_of_precision  # PyTorch's name


class MultivariateNormal(Distribution):
    """The normal distribution of vectors of mean `loc`, in its last dim, by one of `covariance_matrix`,
    `precision_matrix`, its inverse, and `scale_tril`, its lower Cholesky factor. Raises ValueError for none or several,
    ShapeError for dims that are missing.
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        loc: Tensor,
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
                "MultivariateNormal(): give one of covariance_matrix, precision_matrix and scale_tril, not "
                f"{len(given)}"
            )
        name, matrix = given[0]
        if loc.ndim < 1 or matrix.ndim < 2:
            raise ShapeError(
                f"MultivariateNormal(): loc needs at least 1 dim and {name} 2, they have shapes {tuple(loc.shape)} and "
                f"{tuple(matrix.shape)}"
            )
        batch = with_batch(matrix.shape[:-2], loc.shape[:-1])
        setattr(self, name, matrix.expand((*batch, *matrix.shape[-2:])))
        self.loc = loc.expand((*batch, loc.shape[-1]))
        super().__init__(batch, loc.shape[-1:], validate_args=validate_args)
        if scale_tril is not None:
            self._unbroadcasted_scale_tril = scale_tril
        elif covariance_matrix is not None:
            self._unbroadcasted_scale_tril = cholesky(covariance_matrix)
        else:
            self._unbroadcasted_scale_tril = lower_of_precision(matrix)

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower Cholesky factor of the covariance matrix, of shape batch_shape + (n, n)."""
        n = self._event_shape[0]
        return self._unbroadcasted_scale_tril.expand((*self._batch_shape, n, n))

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance matrix, of shape batch_shape + (n, n)."""
        lower = self._unbroadcasted_scale_tril
        n = self._event_shape[0]
        return (lower @ lower.mT).expand((*self._batch_shape, n, n))

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance matrix, of shape batch_shape + (n, n)."""
        inverse = inverse_of_lower(self._unbroadcasted_scale_tril)
        n = self._event_shape[0]
        return (inverse.mT @ inverse).expand((*self._batch_shape, n, n))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        drawn = randn_like(self.loc.detach().expand(self._extended_shape(sample_shape)))
        return self.loc + times(self._unbroadcasted_scale_tril, drawn)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        whitened = times(inverse_of_lower(self._unbroadcasted_scale_tril), value - self.loc)
        squares = (whitened * whitened).sum(-1)
        return -0.5 * squares - half_log_det(self._unbroadcasted_scale_tril) - HALF_LOG_2_PI * self._event_shape[0]

    def entropy(self) -> Tensor:
        found = half_log_det(self._unbroadcasted_scale_tril) + self._event_shape[0] * (0.5 + HALF_LOG_2_PI)
        return found.expand(self._batch_shape)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        lower = self._unbroadcasted_scale_tril
        return (lower * lower).sum(-1).expand((*self._batch_shape, *self._event_shape))
