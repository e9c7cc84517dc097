"""`biject_to` and `transform_to`: transforms from all real numbers to a constraint's set.

`biject_to(constraint)` is bijective, with a Jacobian; `transform_to(constraint)` may be neither, but suits optimisers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import constraints
from .transforms import (
    AffineTransform,
    CatTransform,
    ComposeTransform,
    CorrCholeskyTransform,
    ExpTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    SigmoidTransform,
    SoftmaxTransform,
    StackTransform,
    StickBreakingTransform,
    identity_transform,
)


class ConstraintRegistry:
    """A table of constraints' types and what makes a transform of such a constraint. Call it with a constraint."""

    def __init__(self) -> None:
        self._registry: dict[type, Callable[[Any], Any]] = {}

    def register(self, constraint: Any, factory: Callable[[Any], Any] | None = None) -> Any:
        """Adds `factory`, which makes a transform of a constraint, for the type of `constraint`; a decorator without
        one. Raises TypeError for what is no constraint.
        """
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        kind = type(constraint) if isinstance(constraint, constraints.Constraint) else constraint
        if not (isinstance(kind, type) and issubclass(kind, constraints.Constraint)):
            raise TypeError(f"register(): expected a constraint or its type, got {constraint!r}")
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint: Any) -> Any:
        """The transform to that constraint's set. Raises NotImplementedError for constraints that have none."""
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise NotImplementedError(f"norch has no transform from real numbers to {constraint!r}")
        return factory(constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _register(constraint: Any, factory: Callable[[Any], Any]) -> None:
    for table in (biject_to, transform_to):
        table.register(constraint, factory)


def _to_interval(constraint: Any) -> Any:
    low, high = constraint.lower_bound, constraint.upper_bound
    if isinstance(low, int | float) and isinstance(high, int | float) and (low, high) == (0, 1):
        return SigmoidTransform()
    return ComposeTransform([SigmoidTransform(), AffineTransform(low, high - low)])


def _to_greater(constraint: Any) -> Any:
    return ComposeTransform([ExpTransform(), AffineTransform(constraint.lower_bound, 1)])


def _to_less(constraint: Any) -> Any:
    return ComposeTransform([ExpTransform(), AffineTransform(constraint.upper_bound, -1)])


_register(constraints.real, lambda constraint: identity_transform)
for _positive in (constraints.positive, constraints.nonnegative):
    _register(_positive, _to_greater)
_register(constraints.less_than, _to_less)
for _interval in (constraints.interval, constraints.half_open_interval):
    _register(_interval, _to_interval)
biject_to.register(constraints.simplex, lambda constraint: StickBreakingTransform())
transform_to.register(constraints.simplex, lambda constraint: SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda constraint: LowerCholeskyTransform())
for _definite in (constraints.positive_definite, constraints.positive_semidefinite):
    transform_to.register(_definite, lambda constraint: PositiveDefiniteTransform())
_register(constraints.corr_cholesky, lambda constraint: CorrCholeskyTransform())
for _table in (biject_to, transform_to):
    _table.register(
        constraints.independent,
        lambda c, to=_table: IndependentTransform(to(c.base_constraint), c.reinterpreted_batch_ndims),  # type: ignore
    )
    _table.register(
        constraints.cat,
        lambda c, to=_table: CatTransform([to(part) for part in c.cseq], c.dim, c.lengths),  # type: ignore[misc]
    )
    _table.register(
        constraints.stack,
        lambda c, to=_table: StackTransform([to(part) for part in c.cseq], c.dim),  # type: ignore[misc]
    )
