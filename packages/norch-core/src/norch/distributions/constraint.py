"""`Constraint`, what all are, those that other values decide, and those that are made of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..ops import cat as _cat
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
        """As of every constraint. Raises NotImplementedError where nobody said."""
        if self._is_discrete is NotImplemented:
            raise NotImplementedError("a dependent constraint has no is_discrete of its own")
        return bool(self._is_discrete)

    @property
    def event_dim(self) -> int:
        """As of every constraint. Raises NotImplementedError where nobody said."""
        if self._event_dim is NotImplemented:
            raise NotImplementedError("a dependent constraint has no event_dim of its own")
        return int(self._event_dim)

    def __call__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> _Dependent:
        return _Dependent(
            is_discrete=self._is_discrete if is_discrete is NotImplemented else is_discrete,
            event_dim=self._event_dim if event_dim is NotImplemented else event_dim,
        )

    def check(self, value: Tensor) -> Any:
        """Raises ValueError: only the constraint of a distribution's parameters can be checked."""
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
        """As of every constraint."""
        return bool(self.base_constraint.is_discrete)

    @property
    def event_dim(self) -> int:
        """As of every constraint."""
        return int(self.base_constraint.event_dim) + self.reinterpreted_batch_ndims

    def check(self, value: Tensor) -> Any:
        """As of every constraint. Raises ValueError for fewer dims than an event has."""
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
        """As of every constraint."""
        return bool(self.base_constraint.is_discrete)

    @property
    def event_dim(self) -> int:
        """As of every constraint."""
        return int(self.base_constraint.event_dim)

    def check(self, value: Tensor) -> Any:
        """As of every constraint. Raises ValueError for fewer dims than an event has."""
        if value.ndim < self.event_dim:
            raise ValueError(f"MixtureSameFamilyConstraint: expected at least {self.event_dim} dims, got {value.ndim}")
        found = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        return found.all(-1) if found.ndim and found.shape[-1:] else found


class _Cat(Constraint):
    """Values whose pieces along `dim`, of `lengths`, each satisfy one of `cseq`. Raises ValueError unless there are as
    many lengths.
    """

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None) -> None:
        self.cseq, self.dim = list(cseq), dim
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise ValueError(f"cat(): {len(self.cseq)} constraints, but {len(self.lengths)} lengths")

    @property
    def is_discrete(self) -> bool:
        """As of every constraint."""
        return any(c.is_discrete for c in self.cseq)

    @property
    def event_dim(self) -> int:
        """As of every constraint."""
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
        """As of every constraint."""
        return any(c.is_discrete for c in self.cseq)

    @property
    def event_dim(self) -> int:
        """As of every constraint."""
        dim = max(int(c.event_dim) for c in self.cseq)
        return dim + 1 if self.dim + dim < 0 else dim

    def check(self, value: Tensor) -> Any:
        slices = value.unbind(self.dim)
        return _stack([c.check(v) for c, v in zip(self.cseq, slices, strict=True)], self.dim)
