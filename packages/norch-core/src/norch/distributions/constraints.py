"""`norch.distributions.constraints`: sets of values that parameters must, and samples do, lie in.

A constraint says of a tensor which values satisfy it: `check` gives a bool for each, of the tensor's shape without its
last `event_dim` dims.

Arguments that mean the same in every constraint:

    value: a tensor, of any shape. is_discrete: whether the set is of separate values. event_dim: how many of the last
    dims make one value. lower_bound, upper_bound: numbers or tensors, which broadcast with the values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..dtype import finfo
from ..linalg import eigvalsh
from ..ops import cat as _cat
from ..ops import full, where, zeros_like
from ..ops import stack as _stack

if TYPE_CHECKING:
    from ..tensor import Tensor


class Constraint:
    """The base of all: a set of values."""

    is_discrete: Any = False
    event_dim: Any = 0

    def check(self, value: Tensor) -> Tensor:
        """Which values satisfy the constraint: bools, of the shape of `value` without its last `event_dim` dims."""
        raise NotImplementedError

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in vars(self).items() if not name.startswith("_"))
        return f"{type(self).__name__.lstrip('_')}({shown})"


class _Dependent(Constraint):
    """A constraint that other values decide, as the bounds of a uniform distribution's samples."""

    def __init__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> None:
        self._is_discrete, self._event_dim = is_discrete, event_dim

    @property
    def is_discrete(self) -> bool:
        if self._is_discrete is NotImplemented:
            raise NotImplementedError("a dependent constraint has no is_discrete of its own")
        return bool(self._is_discrete)

    @property
    def event_dim(self) -> int:
        if self._event_dim is NotImplemented:
            raise NotImplementedError("a dependent constraint has no event_dim of its own")
        return int(self._event_dim)

    def __call__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> _Dependent:
        return _Dependent(
            is_discrete=self._is_discrete if is_discrete is NotImplemented else is_discrete,
            event_dim=self._event_dim if event_dim is NotImplemented else event_dim,
        )

    def check(self, value: Tensor) -> Any:
        raise ValueError("a dependent constraint cannot be checked: it is that of a distribution's parameters")


class dependent_property(property, _Dependent):
    """A property that is a constraint, which other values decide; of a class, dependent. fn: what computes it."""

    def __init__(
        self,
        fn: Callable[[Any], Any] | None = None,
        *,
        is_discrete: Any = NotImplemented,
        event_dim: Any = NotImplemented,
    ) -> None:
        property.__init__(self, fn)
        _Dependent.__init__(self, is_discrete=is_discrete, event_dim=event_dim)

    def __call__(self, fn: Any) -> Any:  # type: ignore[override]
        """As a decorator with arguments."""
        return dependent_property(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


def is_dependent(constraint: Any) -> bool:
    """Whether the constraint is one that other values decide."""
    return isinstance(constraint, _Dependent)


class _Independent(Constraint):
    """A constraint of events: `reinterpreted_batch_ndims` more dims of `base_constraint` make one value."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, reinterpreted_batch_ndims

    @property
    def is_discrete(self) -> bool:
        return bool(self.base_constraint.is_discrete)

    @property
    def event_dim(self) -> int:
        return int(self.base_constraint.event_dim) + self.reinterpreted_batch_ndims

    def check(self, value: Tensor) -> Any:
        found = self.base_constraint.check(value)
        if found.ndim < self.reinterpreted_batch_ndims:
            raise ValueError(f"independent(): expected at least {self.event_dim} dims, got {value.ndim}")
        return found.reshape((*found.shape[: found.ndim - self.reinterpreted_batch_ndims], -1)).all(-1)


class MixtureSameFamilyConstraint(Constraint):
    """Samples of a mixture: those of one component, which has a dim more, that of the components. base_constraint: the
    components' constraint.
    """

    def __init__(self, base_constraint: Constraint) -> None:
        self.base_constraint = base_constraint

    @property
    def is_discrete(self) -> bool:
        return bool(self.base_constraint.is_discrete)

    @property
    def event_dim(self) -> int:
        return int(self.base_constraint.event_dim)

    def check(self, value: Tensor) -> Any:
        """As of every constraint. Raises ValueError for fewer dims than an event has."""
        if value.ndim < self.event_dim:
            raise ValueError(f"MixtureSameFamilyConstraint: expected at least {self.event_dim} dims, got {value.ndim}")
        found = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        return found.all(-1) if found.ndim and found.shape[-1:] else found


class _Boolean(Constraint):
    """0 and 1."""

    is_discrete = True

    def check(self, value: Tensor) -> Any:
        return (value == 0) | (value == 1)


class _OneHot(Constraint):
    """Vectors of one 1 and else 0."""

    is_discrete, event_dim = True, 1

    def check(self, value: Tensor) -> Any:
        return ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1)


class _IntegerInterval(Constraint):
    """The integers from `lower_bound` to `upper_bound`, both included."""

    is_discrete = True

    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        self.lower_bound, self.upper_bound = lower_bound, upper_bound

    def check(self, value: Tensor) -> Any:
        return (value % 1 == 0) & (value >= self.lower_bound) & (value <= self.upper_bound)


class _IntegerGreaterThan(Constraint):
    """The integers from `lower_bound` on."""

    is_discrete = True

    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound

    def check(self, value: Tensor) -> Any:
        return (value % 1 == 0) & (value >= self.lower_bound)


class _Real(Constraint):
    """All numbers but NaN."""

    def check(self, value: Tensor) -> Any:
        return value == value


class _GreaterThan(Constraint):
    """Numbers above `lower_bound`."""

    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound

    def check(self, value: Tensor) -> Any:
        return value > self.lower_bound


class _GreaterThanEq(Constraint):
    """Numbers from `lower_bound` on."""

    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound

    def check(self, value: Tensor) -> Any:
        return value >= self.lower_bound


class _LessThan(Constraint):
    """Numbers below `upper_bound`."""

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Any:
        return value < self.upper_bound


class _Interval(Constraint):
    """Numbers from `lower_bound` to `upper_bound`, both included."""

    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        self.lower_bound, self.upper_bound = lower_bound, upper_bound

    def check(self, value: Tensor) -> Any:
        return (value >= self.lower_bound) & (value <= self.upper_bound)


class _HalfOpenInterval(_Interval):
    """Numbers from `lower_bound` on, below `upper_bound`."""

    def check(self, value: Tensor) -> Any:
        return (value >= self.lower_bound) & (value < self.upper_bound)


class _Simplex(Constraint):
    """Vectors of numbers that are not negative and sum to 1."""

    event_dim = 1

    def check(self, value: Tensor) -> Any:
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < max(1e-6, finfo(value.dtype).eps))


class _Multinomial(Constraint):
    """Vectors of counts that sum to no more than `upper_bound`."""

    is_discrete, event_dim = True, 1

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Any:
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)


class _LowerTriangular(Constraint):
    """Matrices with zeros above the diagonal."""

    event_dim = 2

    def check(self, value: Tensor) -> Any:
        return (value.tril() == value).flatten(-2).all(-1)


class _LowerCholesky(Constraint):
    """Lower triangular matrices with a positive diagonal."""

    event_dim = 2

    def check(self, value: Tensor) -> Any:
        return (value.tril() == value).flatten(-2).all(-1) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(Constraint):
    """Cholesky factors of correlation matrices: lower triangular, of positive diagonal, with rows of length 1."""

    event_dim = 2

    def check(self, value: Tensor) -> Any:
        tolerance = finfo(value.dtype).eps * value.shape[-1] * 10
        length = (value.detach() ** 2).sum(-1).sqrt()
        return ((length - 1).abs() <= tolerance).all(-1) & lower_cholesky.check(value)


class _Square(Constraint):
    """Square matrices."""

    event_dim = 2

    def check(self, value: Tensor) -> Any:
        square_ = value.shape[-2] == value.shape[-1]
        return full(value.shape[:-2], square_, device=value.device)


class _Symmetric(_Square):
    """Symmetric matrices."""

    def check(self, value: Tensor) -> Any:
        found = super().check(value)
        if value.shape[-2] != value.shape[-1]:
            return found
        return ((value - value.mT).abs() <= 1e-6 + 1e-5 * value.mT.abs()).flatten(-2).all(-1)


class _PositiveSemidefinite(_Symmetric):
    """Symmetric matrices without negative eigenvalues."""

    def check(self, value: Tensor) -> Any:
        found = super().check(value)
        return found & (_eigenvalues(value, found) >= 0).all(-1)


class _PositiveDefinite(_Symmetric):
    """Symmetric matrices of positive eigenvalues."""

    def check(self, value: Tensor) -> Any:
        found = super().check(value)
        return found & (_eigenvalues(value, found) > 0).all(-1)


def _eigenvalues(value: Tensor, usable: Tensor) -> Tensor:
    if value.shape[-2] != value.shape[-1]:
        return value[..., 0, :]
    return eigvalsh(where(usable[..., None, None], value.detach(), zeros_like(value)))


class _Cat(Constraint):
    """Values whose pieces along `dim`, of `lengths`, each satisfy one of `cseq`."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None) -> None:
        self.cseq, self.dim = list(cseq), dim
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise ValueError(f"cat(): {len(self.cseq)} constraints, but {len(self.lengths)} lengths")

    @property
    def is_discrete(self) -> bool:
        return any(c.is_discrete for c in self.cseq)

    @property
    def event_dim(self) -> int:
        return max(int(c.event_dim) for c in self.cseq)

    def check(self, value: Tensor) -> Any:
        pieces = value.split(self.lengths, self.dim)
        return _cat([c.check(piece) for c, piece in zip(self.cseq, pieces, strict=True)], self.dim)


class _Stack(Constraint):
    """Values whose slices along `dim` each satisfy one of `cseq`."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        self.cseq, self.dim = list(cseq), dim

    @property
    def is_discrete(self) -> bool:
        return any(c.is_discrete for c in self.cseq)

    @property
    def event_dim(self) -> int:
        dim = max(int(c.event_dim) for c in self.cseq)
        return dim + 1 if self.dim + dim < 0 else dim

    def check(self, value: Tensor) -> Any:
        slices = value.unbind(self.dim)
        return _stack([c.check(v) for c, v in zip(self.cseq, slices, strict=True)], self.dim)


dependent = _Dependent()
independent = _Independent
boolean = _Boolean()
one_hot = _OneHot()
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
integer_interval = _IntegerInterval
real = _Real()
real_vector = independent(real, 1)
positive = _GreaterThan(0.0)
nonnegative = _GreaterThanEq(0.0)
greater_than = _GreaterThan
greater_than_eq = _GreaterThanEq
less_than = _LessThan
multinomial = _Multinomial
unit_interval = _Interval(0.0, 1.0)
interval = _Interval
half_open_interval = _HalfOpenInterval
simplex = _Simplex()
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()
cat = _Cat
stack = _Stack
