"""Transforms of vectors and matrices, and of the pieces and dims of others' events."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..dtype import finfo
from ..linalg import cholesky
from ..ops import cat as concatenate
from ..ops import cumprod, cumsum, diag_embed, exp, eye, log, logsigmoid, ones_like, softmax, softplus, sqrt, tanh
from ..ops import stack as stacked
from ..spec import Size
from . import constraints
from .elementwise_transforms import clipped_sigmoid
from .transform import Transform
from .utils import sum_rightmost, tril_matrix_to_vec, vec_to_tril_matrix

if TYPE_CHECKING:
    from ..tensor import Tensor


def _one_before(x: Tensor) -> Tensor:
    return concatenate([ones_like(x[..., :1]), x], -1)


def _countdown(x: Tensor) -> Tensor:
    """n, n - 1, ..., 1 in the last dim."""
    return x.shape[-1] + 1 - cumsum(ones_like(x.detach()), -1)


class SoftmaxTransform(Transform):
    """y = softmax(x) over the last dim, of which log(y) is taken to be the inverse. cache_size: as of every
    transform.
    """

    domain, codomain = constraints.real_vector, constraints.simplex

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SoftmaxTransform)

    __hash__ = Transform.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return softmax(x, -1)

    def _inverse(self, y: Tensor) -> Tensor:
        return log(y)

    def forward_shape(self, shape: Any) -> Any:
        """As of every transform. Raises ValueError for no dims."""
        return _at_least(1, shape, self)

    inverse_shape = forward_shape


def _at_least(dims: int, shape: Any, transform: Transform) -> Any:
    if len(shape) < dims:
        raise ValueError(f"{type(transform).__name__}: needs at least {dims} dims, got shape {tuple(shape)}")
    return shape


class StickBreakingTransform(Transform):
    """Vectors of n numbers to n + 1 that sum to 1, by breaking pieces off a stick, each a sigmoid of what is left.
    cache_size: as of every transform.
    """

    domain, codomain = constraints.real_vector, constraints.simplex
    bijective = True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StickBreakingTransform)

    __hash__ = Transform.__hash__

    def _call(self, x: Tensor) -> Tensor:
        z = clipped_sigmoid(x - log(_countdown(x)))
        return concatenate([z, ones_like(z[..., :1])], -1) * _one_before(cumprod(1 - z, -1))

    def _inverse(self, y: Tensor) -> Tensor:
        kept = y[..., :-1]
        left = (1 - cumsum(kept, -1)).clamp(min=finfo(y.dtype).tiny)
        return log(kept) - log(left) + log(_countdown(kept))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        x = x - log(_countdown(x))
        return (logsigmoid(x) - x + log(y[..., :-1])).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        """As of every transform. Raises ValueError for no dims."""
        return Size((*_at_least(1, shape, self)[:-1], shape[-1] + 1))

    def inverse_shape(self, shape: Any) -> Any:
        """As of every transform. Raises ValueError for no dims."""
        return Size((*_at_least(1, shape, self)[:-1], shape[-1] - 1))


class CorrCholeskyTransform(Transform):
    """Vectors of n (n - 1) / 2 numbers to Cholesky factors of n x n correlation matrices, by tanh of each and sticks
    (Lewandowski, Kurowicka and Joe, 2009). cache_size: as of every transform.
    """

    domain, codomain = constraints.real_vector, constraints.corr_cholesky
    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        eps = finfo(x.dtype).eps
        r = vec_to_tril_matrix(tanh(x).clamp(-1 + eps, 1 - eps), -1)
        left = cumprod(sqrt(1 - r * r), -1)
        return (r + eye(r.shape[-1], dtype=r.dtype, device=r.device)) * _one_before(left[..., :-1])

    def _inverse(self, y: Tensor) -> Tensor:
        left = _one_before((1 - cumsum(y * y, -1))[..., :-1])
        t = tril_matrix_to_vec(y, -1) / sqrt(tril_matrix_to_vec(left, -1))
        return t.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        left = 1 - cumsum(y * y, -1)
        sticks = 0.5 * log(tril_matrix_to_vec(left, -2)).sum(-1)
        return sticks - 2 * (x + softplus(-2 * x) - math.log(2.0)).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        """As of every transform. Raises ValueError unless the last dim is n (n - 1) / 2."""
        count = _at_least(1, shape, self)[-1]
        size = round((0.25 + 2 * count) ** 0.5 + 0.5)
        if size * (size - 1) // 2 != count:
            raise ValueError(f"CorrCholeskyTransform: {count} are not the n (n - 1) / 2 below a diagonal")
        return Size((*shape[:-1], size, size))

    def inverse_shape(self, shape: Any) -> Any:
        """As of every transform. Raises ValueError unless the last dims are square."""
        if len(shape) < 2 or shape[-2] != shape[-1]:
            raise ValueError(f"CorrCholeskyTransform: expected square matrices, got shape {tuple(shape)}")
        return Size((*shape[:-2], shape[-1] * (shape[-1] - 1) // 2))


class LowerCholeskyTransform(Transform):
    """Square matrices to lower triangular ones with the exponential of their diagonal. cache_size: as of every
    transform.
    """

    domain, codomain = constraints.independent(constraints.real, 2), constraints.lower_cholesky

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LowerCholeskyTransform)

    __hash__ = Transform.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + diag_embed(exp(x.diagonal(dim1=-2, dim2=-1)))

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + diag_embed(log(y.diagonal(dim1=-2, dim2=-1)))


class PositiveDefiniteTransform(Transform):
    """Square matrices to positive definite ones, L @ L.mT of what LowerCholeskyTransform makes of them. cache_size: as
    of every transform.
    """

    domain, codomain = constraints.independent(constraints.real, 2), constraints.positive_definite

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PositiveDefiniteTransform)

    __hash__ = Transform.__hash__

    def _call(self, x: Tensor) -> Tensor:
        lower = LowerCholeskyTransform()(x)
        return lower @ lower.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(cholesky(y))


class IndependentTransform(Transform):
    """`base_transform`, of which `reinterpreted_batch_ndims` more dims make one event. cache_size: as of every
    transform.
    """

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.base_transform: Any = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    def with_cache(self, cache_size: int = 1) -> Any:
        if self._cache_size == cache_size:
            return self
        return IndependentTransform(self.base_transform, self.reinterpreted_batch_ndims, cache_size)

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        return constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        return constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    @property
    def bijective(self) -> bool:
        """Whether the inverse of what a value becomes is always that value."""
        return bool(self.base_transform.bijective)

    @property
    def sign(self) -> Any:
        return self.base_transform.sign

    def _call(self, x: Tensor) -> Tensor:
        self._must_have(self.domain, x)
        return self.base_transform(x)  # type: ignore[no-any-return]

    def _inverse(self, y: Tensor) -> Tensor:
        self._must_have(self.codomain, y)
        return self.base_transform.inv(y)  # type: ignore[no-any-return]

    def _must_have(self, constraint: Any, value: Tensor) -> None:
        _at_least(constraint.event_dim, value.shape, self)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Any) -> Any:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self.base_transform.inverse_shape(shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


class ReshapeTransform(Transform):
    """Events of `in_shape` to `out_shape`, of as many elements; ValueError for others. cache_size: as of every
    transform.
    """

    bijective = True

    def __init__(self, in_shape: Any, out_shape: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.in_shape, self.out_shape = Size(tuple(in_shape)), Size(tuple(out_shape))
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            raise ValueError(
                f"ReshapeTransform: {tuple(self.in_shape)} and {tuple(self.out_shape)} have other numbers of elements"
            )

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.independent(constraints.real, len(self.in_shape))

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.independent(constraints.real, len(self.out_shape))

    def with_cache(self, cache_size: int = 1) -> Any:
        if self._cache_size == cache_size:
            return self
        return ReshapeTransform(self.in_shape, self.out_shape, cache_size)

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape((*x.shape[: x.ndim - len(self.in_shape)], *self.out_shape))

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape((*y.shape[: y.ndim - len(self.out_shape)], *self.in_shape))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x.new_zeros(x.shape[: x.ndim - len(self.in_shape)])

    def forward_shape(self, shape: Any) -> Any:
        return self._exchanged(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self._exchanged(shape, self.out_shape, self.in_shape)

    def _exchanged(self, shape: Any, old: Size, new: Size) -> Size:
        cut = len(_at_least(len(old), shape, self)) - len(old)
        if tuple(shape[cut:]) != tuple(old):
            raise ValueError(f"ReshapeTransform: expected a shape that ends with {tuple(old)}, got {tuple(shape)}")
        return Size((*shape[:cut], *new))


class _Pieces(Transform):
    """What CatTransform and StackTransform share: values taken apart along `dim`, each piece with a transform."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.transforms: list[Any] = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim

    @property
    def bijective(self) -> bool:
        """Whether the inverse of what a value becomes is always that value."""
        return all(t.bijective for t in self.transforms)

    def _apart(self, value: Tensor) -> Sequence[Tensor]:
        raise NotImplementedError

    def _together(self, values: list[Tensor]) -> Tensor:
        raise NotImplementedError

    def _each(self, *values: Tensor) -> Any:
        pieces = [self._apart(v) for v in values]
        if any(len(p) != len(self.transforms) for p in pieces):
            raise ValueError(f"{type(self).__name__}: {len(self.transforms)} transforms of {len(pieces[0])} pieces")
        return zip(self.transforms, *pieces, strict=True)

    def _call(self, x: Tensor) -> Tensor:
        return self._together([t(piece) for t, piece in self._each(x)])

    def _inverse(self, y: Tensor) -> Tensor:
        return self._together([t.inv(piece) for t, piece in self._each(y)])


class CatTransform(_Pieces):
    """Transforms `tseq` of the pieces of a value along `dim`, of these `lengths` (1 each, unless given). cache_size: as
    of every transform.
    """

    def __init__(
        self,
        tseq: Sequence[Transform],
        dim: int = 0,
        lengths: Sequence[int] | None = None,
        cache_size: int = 0,
    ) -> None:
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)

    @property
    def event_dim(self) -> int:
        return max(int(t.event_dim) for t in self.transforms)

    @property
    def length(self) -> int:
        """The size of values along `dim`."""
        return sum(self.lengths)

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)

    def with_cache(self, cache_size: int = 1) -> Any:
        if self._cache_size == cache_size:
            return self
        return CatTransform(self.transforms, self.dim, self.lengths, cache_size)

    def _apart(self, value: Tensor) -> Sequence[Tensor]:
        return value.split(self.lengths, self.dim)

    def _together(self, values: list[Tensor]) -> Tensor:
        return concatenate(values, self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        terms = []
        for t, before, after in self._each(x, y):
            terms.append(sum_rightmost(t.log_abs_det_jacobian(before, after), self.event_dim - t.domain.event_dim))
        dim = self.dim - x.ndim if self.dim >= 0 else self.dim
        if dim + self.event_dim < 0:
            return concatenate(terms, dim + self.event_dim)
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total


class StackTransform(_Pieces):
    """Transforms `tseq` of the slices of a value along `dim`. cache_size: as of every transform."""

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.stack([t.codomain for t in self.transforms], self.dim)

    def with_cache(self, cache_size: int = 1) -> Any:
        return self if self._cache_size == cache_size else StackTransform(self.transforms, self.dim, cache_size)

    def _apart(self, value: Tensor) -> Sequence[Tensor]:
        return value.unbind(self.dim)

    def _together(self, values: list[Tensor]) -> Tensor:
        return stacked(values, self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        terms = [t.log_abs_det_jacobian(before, after) for t, before, after in self._each(x, y)]
        return stacked(terms, self.dim)
