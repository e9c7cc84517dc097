"""Distributions of several independent values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import ShapeError
from . import constraints
from .distribution import Distribution
from .utils import sum_rightmost

if TYPE_CHECKING:
    from ..tensor import Tensor


class Independent(Distribution):
    """`base_distribution`, of which the last `reinterpreted_batch_ndims` dims of the batch make one event. Raises
    ShapeError where it has fewer.
    """

    arg_constraints: Any = {}

    def __init__(
        self,
        base_distribution: Distribution,
        reinterpreted_batch_ndims: int,
        validate_args: bool | None = None,
    ) -> None:
        if not 0 <= reinterpreted_batch_ndims <= len(base_distribution.batch_shape):
            raise ShapeError(
                f"Independent(): the batch shape {tuple(base_distribution.batch_shape)} has no "
                f"{reinterpreted_batch_ndims} dims"
            )
        shape = (*base_distribution.batch_shape, *base_distribution.event_shape)
        cut = len(base_distribution.batch_shape) - reinterpreted_batch_ndims
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, reinterpreted_batch_ndims
        super().__init__(shape[:cut], shape[cut:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new.base_dist = self.base_dist.expand((*batch_shape, *self._event_shape[: self.reinterpreted_batch_ndims]))
        return new

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """That of the base distribution."""
        return self.base_dist.has_rsample

    @property
    def has_enumerate_support(self) -> bool:  # type: ignore[override]
        """That of the base distribution, where no dims are reinterpreted."""
        return not self.reinterpreted_batch_ndims and self.base_dist.has_enumerate_support

    @constraints.dependent_property
    def support(self) -> Any:
        found = self.base_dist.support
        if self.reinterpreted_batch_ndims:
            found = constraints.independent(found, self.reinterpreted_batch_ndims)
        return found

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """As of every distribution. Raises NotImplementedError where dims are reinterpreted."""
        if self.reinterpreted_batch_ndims:
            raise NotImplementedError("Independent.enumerate_support(): the events are too many to list")
        return self.base_dist.enumerate_support(expand)

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def mode(self) -> Tensor:
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def __repr__(self) -> str:
        return f"Independent({self.base_dist!r}, {self.reinterpreted_batch_ndims})"
