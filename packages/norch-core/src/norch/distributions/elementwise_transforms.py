"""Transforms of each element by itself."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..dtype import finfo
from ..ops import as_tensor, exp, log, log1p, sigmoid, softplus, tanh
from ..ops import sign as sign_of
from ..spec import Size, broadcast_shapes
from . import constraints
from .transform import Transform
from .utils import sum_rightmost

if TYPE_CHECKING:
    from ..tensor import Tensor


def equal(a: Any, b: Any) -> bool:
    """Whether two numbers or tensors, which broadcast, have the same values."""
    same: Any = a == b
    return a is b or bool(same.all() if hasattr(same, "all") else same)


def broadcast_shape(shape: Any, *values: Any) -> Any:
    """The shape to which `shape` and those of tensors broadcast."""
    return Size(broadcast_shapes(tuple(shape), *(tuple(getattr(v, "shape", ())) for v in values)))


def clipped_sigmoid(x: Tensor) -> Tensor:
    """The sigmoid, elementwise, never 0 or 1."""
    info = finfo(x.dtype)
    return sigmoid(x).clamp(info.tiny, 1 - info.eps)


class ExpTransform(Transform):
    """y = exp(x), elementwise. cache_size: as of every transform."""

    domain, codomain = constraints.real, constraints.positive
    bijective, sign = True, 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExpTransform)

    __hash__ = Transform.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return exp(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return log(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class PowerTransform(Transform):
    """y = x ** exponent of positive numbers, elementwise. exponent: a number or tensor. cache_size: as of every
    transform.
    """

    domain, codomain = constraints.positive, constraints.positive
    bijective = True

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.exponent = exponent if hasattr(exponent, "spec") else as_tensor(float(exponent))

    @property
    def sign(self) -> Any:
        return sign_of(self.exponent)

    def with_cache(self, cache_size: int = 1) -> Any:
        return self if self._cache_size == cache_size else PowerTransform(self.exponent, cache_size)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PowerTransform) and equal(self.exponent, other.exponent)

    __hash__ = Transform.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return x**self.exponent

    def _inverse(self, y: Tensor) -> Tensor:
        return y ** (1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return log((self.exponent * y / x).abs())

    def forward_shape(self, shape: Any) -> Any:
        return broadcast_shape(shape, self.exponent)

    inverse_shape = forward_shape


class SigmoidTransform(Transform):
    """y = 1 / (1 + exp(-x)), elementwise. cache_size: as of every transform."""

    domain, codomain = constraints.real, constraints.unit_interval
    bijective, sign = True, 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SigmoidTransform)

    __hash__ = Transform.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return clipped_sigmoid(x)

    def _inverse(self, y: Tensor) -> Tensor:
        info = finfo(y.dtype)
        y = y.clamp(info.tiny, 1 - info.eps)
        return log(y) - log1p(-y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x) - softplus(x)


class SoftplusTransform(Transform):
    """y = log(1 + exp(x)), elementwise. cache_size: as of every transform."""

    domain, codomain = constraints.real, constraints.positive
    bijective, sign = True, 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SoftplusTransform)

    __hash__ = Transform.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return log(-(-y).expm1()) + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x)


class TanhTransform(Transform):
    """y = tanh(x), elementwise. cache_size: 1 is exact where atanh of the result would be infinite."""

    domain, codomain = constraints.real, constraints.interval(-1.0, 1.0)
    bijective, sign = True, 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TanhTransform)

    __hash__ = Transform.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return tanh(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return 2.0 * (math.log(2.0) - x - softplus(-2.0 * x))


class AbsTransform(Transform):
    """y = |x|, elementwise, of which y is taken to be the inverse. cache_size: as of every transform."""

    domain, codomain = constraints.real, constraints.positive

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbsTransform)

    __hash__ = Transform.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class AffineTransform(Transform):
    """y = loc + scale * x, elementwise. loc, scale: numbers or tensors. event_dim: how many of the last dims make one
    event. cache_size: as of every transform.
    """

    bijective = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    @property
    def event_dim(self) -> int:
        return self._event_dim

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        return constraints.independent(constraints.real, self._event_dim) if self._event_dim else constraints.real

    codomain = domain

    @property
    def sign(self) -> Any:
        return sign_of(self.scale) if hasattr(self.scale, "spec") else (self.scale > 0) - (self.scale < 0)

    def with_cache(self, cache_size: int = 1) -> Any:
        if self._cache_size == cache_size:
            return self
        return AffineTransform(self.loc, self.scale, self._event_dim, cache_size)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AffineTransform):
            return False
        return equal(self.loc, other.loc) and equal(self.scale, other.scale)

    __hash__ = Transform.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x  # type: ignore[no-any-return]

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale  # type: ignore[no-any-return]

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        scale = self.scale if hasattr(self.scale, "spec") else x.new_full((), self.scale)
        return sum_rightmost(log(scale.abs()).expand(broadcast_shape(x.shape, scale)), self._event_dim)

    def forward_shape(self, shape: Any) -> Any:
        return broadcast_shape(shape, self.loc, self.scale)

    inverse_shape = forward_shape


class CumulativeDistributionTransform(Transform):
    """y = distribution.cdf(x), elementwise: draws of a univariate `distribution` become uniform on [0, 1].
    cache_size: as of every transform.
    """

    bijective, sign = True, 1
    codomain = constraints.unit_interval

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.distribution = distribution

    @property
    def domain(self) -> Any:
        """The distribution's support."""
        return self.distribution.support

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)  # type: ignore[no-any-return]

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)  # type: ignore[no-any-return]

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.distribution.log_prob(x)  # type: ignore[no-any-return]

    def with_cache(self, cache_size: int = 1) -> Any:
        return (
            self if self._cache_size == cache_size else CumulativeDistributionTransform(self.distribution, cache_size)
        )
