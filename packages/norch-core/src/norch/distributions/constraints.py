"""`norch.distributions.constraints`: sets of values that parameters must, and samples do, lie in.

A constraint says of a tensor which values satisfy it: `check` gives a bool for each, of the tensor's shape without its
last `event_dim` dims.

Arguments that mean the same in every constraint:

    value: a tensor, of any shape. is_discrete: whether the set is of separate values. event_dim: how many of the last
    dims make one value. lower_bound, upper_bound: numbers or tensors, which broadcast with the values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dtype import finfo
from ..linalg import eigvalsh
from ..ops import full, where, zeros_like
from .constraint import (
    Constraint,
    MixtureSameFamilyConstraint,
    _Cat,
    _Dependent,
    _Independent,
    _Stack,
    dependent_property,
    is_dependent,
)

if TYPE_CHECKING:
    from ..tensor import Tensor


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

__all__ = [
    "Constraint",
    "MixtureSameFamilyConstraint",
    "boolean",
    "cat",
    "corr_cholesky",
    "dependent",
    "dependent_property",
    "greater_than",
    "greater_than_eq",
    "half_open_interval",
    "independent",
    "integer_interval",
    "interval",
    "is_dependent",
    "less_than",
    "lower_cholesky",
    "lower_triangular",
    "multinomial",
    "nonnegative",
    "nonnegative_integer",
    "one_hot",
    "positive",
    "positive_definite",
    "positive_integer",
    "positive_semidefinite",
    "real",
    "real_vector",
    "simplex",
    "square",
    "stack",
    "symmetric",
    "unit_interval",
]
