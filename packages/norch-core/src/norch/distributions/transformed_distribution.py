"""Distributions of what transforms make of another's draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..autograd.mode import no_grad
from ..errors import ShapeError
from . import constraints
from .distribution import Distribution
from .independent import Independent
from .transform import ComposeTransform, Transform
from .utils import sum_rightmost

if TYPE_CHECKING:
    from ..tensor import Tensor


class TransformedDistribution(Distribution):
    """The distribution of y = transforms[-1](...transforms[0](x)) for draws x of `base_distribution`.

    transforms: one or several. Raises ValueError for what is no transform, ShapeError where the base has fewer dims
    than the first transform's domain.
    """

    arg_constraints: Any = {}

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Transform | Sequence[Transform],
        validate_args: bool | None = None,
    ) -> None:
        self.transforms: list[Any] = [transforms] if isinstance(transforms, Transform) else list(transforms)
        if not all(isinstance(t, Transform) for t in self.transforms):
            raise ValueError(f"{type(self).__name__}(): transforms must be Transforms, got {transforms!r}")
        base = base_distribution
        shape, event = (*base.batch_shape, *base.event_shape), len(base.event_shape)
        chain = ComposeTransform(self.transforms)
        before, after = chain.domain.event_dim, chain.codomain.event_dim
        if len(shape) < before:
            raise ShapeError(
                f"{type(self).__name__}(): the base distribution needs at least {before} dims, it has shape {shape}"
            )
        result = chain.forward_shape(shape)
        wanted = tuple(chain.inverse_shape(result))
        if wanted != shape:
            base = base.expand(wanted[: len(wanted) - event])
        self.base_dist: Any = Independent(base, before - event) if before > event else base
        cut = len(result) - max(after, event + after - before)
        super().__init__(result[:cut], result[cut:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = object.__new__(type(self)) if _instance is None else _instance
        new.__dict__.update(self.__dict__)
        shape = ComposeTransform(self.transforms).inverse_shape((*batch_shape, *self._event_shape))
        new.base_dist = self.base_dist.expand(shape[: len(shape) - len(self.base_dist.event_shape)])
        new._batch_shape = type(self._batch_shape)(tuple(batch_shape))
        return new

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """That of the base distribution."""
        return bool(self.base_dist.has_rsample)

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        if not self.transforms:
            return self.base_dist.support
        found = self.transforms[-1].codomain
        more = len(self._event_shape) - found.event_dim
        return constraints.independent(found, more) if more > 0 else found

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return self._forward(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._forward(self.base_dist.rsample(sample_shape))

    def _forward(self, x: Tensor) -> Tensor:
        for transform in self.transforms:
            x = transform(x)
        return x

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        event_dim, total, y = len(self._event_shape), None, value
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            event_dim += transform.domain.event_dim - transform.codomain.event_dim
            term = sum_rightmost(transform.log_abs_det_jacobian(x, y), event_dim - transform.domain.event_dim)
            total, y = term if total is None else total + term, x
        found = sum_rightmost(self.base_dist.log_prob(y), event_dim - len(self.base_dist.event_shape))
        return found if total is None else found - total

    def _turned(self, probability: Tensor) -> Tensor:
        """1 - probability where the transforms fall."""
        sign = ComposeTransform(self.transforms).sign
        if isinstance(sign, int) and sign == 1:
            return probability
        return sign * (probability - 0.5) + 0.5  # type: ignore[no-any-return]

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        return self._turned(self.base_dist.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        return self._forward(self.base_dist.icdf(self._turned(value)))

    def __repr__(self) -> str:
        if type(self) is TransformedDistribution:
            return f"TransformedDistribution({self.base_dist!r}, {self.transforms!r})"
        shown = ", ".join(f"{name}: {tuple(getattr(self, name).shape)}" for name in self.arg_constraints)
        return f"{type(self).__name__}({shown})"
