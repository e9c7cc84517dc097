"""`Distribution`, what all have."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .. import switches
from ..autograd.mode import no_grad
from ..ops import exp, sqrt
from ..spec import Size, Spec, broadcast_shapes
from . import constraints
from .utils import lazy_property

if TYPE_CHECKING:
    from ..tensor import Tensor


def _as_size(shape: Any) -> Size:
    """A shape as a Size; the shapes of several tensors, which an event of a flow may be, as they are."""
    given: Any = tuple(shape)
    size: Size = given if any(isinstance(n, tuple) for n in given) else Size(given)
    return size


class Distribution:
    """A distribution of events of shape `event_shape`, one for each element of `batch_shape`.

    Whoever writes another inherits from this, sets `arg_constraints`, the constraint of each parameter by name, and
    `support`, and has `rsample` or `sample`, and `log_prob`. has_rsample: whether a draw is a differentiable function
    of the parameters. has_enumerate_support: whether there are finitely many events, which can be listed.
    """

    has_rsample: bool = False
    has_enumerate_support: bool = False
    arg_constraints: Any = {}
    _validate_args: bool = True

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions that are made without validate_args look at values. Raises ValueError unless a bool."""
        if value not in (True, False):
            raise ValueError(f"set_default_validate_args(): value must be True or False, got {value!r}")
        Distribution._validate_args = value

    def __init__(self, batch_shape: Any = (), event_shape: Any = (), validate_args: bool | None = None) -> None:
        self._batch_shape, self._event_shape = _as_size(batch_shape), _as_size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            for name, constraint in self.arg_constraints.items():
                late = isinstance(getattr(type(self), name, None), lazy_property)
                if not constraints.is_dependent(constraint) and not (late and name not in self.__dict__):
                    self._must_satisfy(constraint, getattr(self, name), f"parameter {name}")
        super().__init__()  # a class may be a module too

    def _reads(self, value: Any) -> bool:
        """Whether values are looked at now: where that waits for a device, or a step is recorded, only if asked for."""
        spec = getattr(value, "spec", None)
        if type(spec) is not Spec or not self._validate_args or spec.device.is_meta:
            return False
        return "_validate_args" in self.__dict__ or (spec.device.type == "cpu" and switches.noting is None)

    def _must_satisfy(self, constraint: Any, value: Any, what: str) -> None:
        if self._reads(value) and not bool(constraint.check(value).all()):
            raise ValueError(
                f"{type(self).__name__}: expected {what} ({type(value).__name__} of shape {tuple(value.shape)}) to "
                f"satisfy the constraint {constraint!r}, but found invalid values:\n{value}"
            )

    def _validate_sample(self, value: Any) -> None:
        """Raises ValueError where `value` cannot be a sample: by its shape, or its values."""
        if not hasattr(value, "spec"):
            raise ValueError(f"{type(self).__name__}: expected a Tensor, got {type(value).__name__}")
        events = value.shape[value.ndim - len(self._event_shape) :]
        if value.ndim < len(self._event_shape) or tuple(events) != tuple(self._event_shape):
            raise ValueError(
                f"{type(self).__name__}: the value's last dims must be the event shape {tuple(self._event_shape)}, got "
                f"shape {tuple(value.shape)}"
            )
        expected = (*self._batch_shape, *self._event_shape)
        for size, wanted in zip(reversed(value.shape), reversed(expected)):
            if size != wanted and 1 not in (size, wanted):
                raise ValueError(
                    f"{type(self).__name__}: a value of shape {tuple(value.shape)} does not broadcast with "
                    f"batch_shape + event_shape {expected}"
                )
        if self._reads(value):
            try:
                support = self.support
            except NotImplementedError:
                return
            self._must_satisfy(support, value, "value")

    def _extended_shape(self, sample_shape: Any = ()) -> Size:
        lead = (sample_shape,) if isinstance(sample_shape, int) else tuple(sample_shape)
        return Size((*lead, *self._batch_shape, *self._event_shape))

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """For `expand` of classes with another constructor than `cls`, which must write their own."""
        if _instance is None and type(self).__init__ is not vars(cls).get("__init__"):
            raise NotImplementedError(f"{type(self).__name__}: a class with its own __init__ needs its own expand()")
        return object.__new__(type(self)) if _instance is None else _instance

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same distribution with `batch_shape`, to which its own broadcasts; parameters are views.

        _instance: the object to fill, of a subclass. Raises NotImplementedError without one in a class of yours with an
        `__init__` of its own, which may keep more than parameters.
        """
        if type(self).__init__.__module__.startswith(__package__):
            new = object.__new__(type(self)) if _instance is None else _instance
        else:
            new = self._get_checked_instance(Distribution, _instance)
        shape = Size(tuple(batch_shape))
        named = [vars(c).get("arg_constraints") for c in type(self).__mro__]
        parameters = {name: c.event_dim for own in named if isinstance(own, dict) for name, c in own.items()}
        for name, value in self.__dict__.items():
            if name in parameters:
                value = value.expand((*shape, *value.shape[value.ndim - parameters[name] :]))
            elif isinstance(getattr(type(self), name, None), lazy_property):
                continue
            new.__dict__[name] = value
        new._batch_shape = shape
        return new

    @property
    def batch_shape(self) -> Size:
        """The shape of the parameters, without what belongs to one event."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one draw."""
        return self._event_shape

    @property
    def support(self) -> Any:
        """The constraint that all draws satisfy."""
        raise NotImplementedError

    @property
    def mean(self) -> Tensor:
        """The expectation, of shape batch_shape + event_shape."""
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        """The event of the greatest density or probability, of shape batch_shape + event_shape."""
        raise NotImplementedError(f"{type(self).__name__} has no mode")

    @property
    def variance(self) -> Tensor:
        """The variance, of shape batch_shape + event_shape."""
        raise NotImplementedError

    @property
    def stddev(self) -> Tensor:
        """The square root of the variance."""
        return sqrt(self.variance)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Draws of shape sample_shape + batch_shape + event_shape, through which gradients flow to the parameters.

        Raises NotImplementedError where `has_rsample` is False.
        """
        raise NotImplementedError(f"{type(self).__name__}.rsample(): its draws have no gradient; use sample()")

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draws of shape sample_shape + batch_shape + event_shape, without gradient."""
        with no_grad():
            return self.rsample(sample_shape)

    def sample_n(self, n: int) -> Tensor:
        """`sample` of shape (n,)."""
        return self.sample((n,))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density, or probability, at `value`: one for each event, of the shape to which the
        value's and the parameters' batch shapes broadcast. Raises ValueError for values that cannot be.
        """
        raise NotImplementedError

    def cdf(self, value: Tensor) -> Tensor:
        """How likely a draw is to be at most `value`, elementwise. Raises ValueError for values that cannot be."""
        raise NotImplementedError(f"{type(self).__name__} has no cdf")

    def icdf(self, value: Tensor) -> Tensor:
        """The inverse of `cdf`, elementwise."""
        raise NotImplementedError(f"{type(self).__name__} has no icdf")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All events, in a first dim: of shape (n,) + batch_shape + event_shape, or, unless `expand`, with 1 for each
        of the batch's dims. Raises NotImplementedError where `has_enumerate_support` is False.
        """
        raise NotImplementedError(f"{type(self).__name__}.enumerate_support(): its events cannot be listed")

    def _listed(self, values: Tensor, expand: bool) -> Tensor:
        """Values (n, *event_shape) as `enumerate_support` gives them."""
        found = values.reshape((len(values), *[1] * len(self._batch_shape), *self._event_shape))
        return found.expand((-1, *self._batch_shape, *self._event_shape)) if expand else found

    def entropy(self) -> Tensor:
        """The entropy, in nats, of shape `batch_shape`."""
        raise NotImplementedError(f"{type(self).__name__} has no entropy")

    def perplexity(self) -> Tensor:
        """exp(entropy), of shape `batch_shape`."""
        return exp(self.entropy())

    def __repr__(self) -> str:
        names = [name for name in self.arg_constraints if name in self.__dict__]
        shown = [
            f"{name}: {value if value.numel() == 1 else tuple(value.shape)}"
            for name, value in ((name, self.__dict__[name]) for name in names)
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


def one_of(name: str, probs: Any, logits: Any) -> None:
    """Raises ValueError unless one of the two is given."""
    if (probs is None) == (logits is None):
        raise ValueError(f"{name}(): give either probs or logits")


def with_batch(shape: Any, *others: Any) -> Size:
    """What batch shapes broadcast to."""
    return Size(broadcast_shapes(shape, *others))


HALF_LOG_2_PI = 0.5 * math.log(2 * math.pi)
EULER = 0.57721566490153286061
