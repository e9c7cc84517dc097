"""`norch.distributions`: the distributions that policies and variational models are made of. Loaded when first used.

Normal, Uniform, Bernoulli and Categorical, with PyTorch's names. Parameters broadcast; `sample` has no gradient,
`rsample` passes one on to the parameters. Values are not validated, which would wait for the device. What is
computed of `value` has the shape that it and the parameters broadcast to.

Arguments that mean the same in every distribution:

    validate_args: ignored.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .errors import ShapeError
from .ops import (
    as_tensor,
    binary_cross_entropy_with_logits,
    broadcast_tensors,
    gather,
    log,
    log_softmax,
    logit,
    multinomial,
    rand_like,
    randn_like,
    sigmoid,
    where,
)
from .ops import bernoulli as draw_bernoulli
from .spec import Size
from .special import ndtr, ndtri
from .submodules import late_submodules

__path__: list[str] = []  # PyTorch has a package here: see norch.compat.paths
__getattr__ = late_submodules(__name__)

if TYPE_CHECKING:
    from .tensor import Tensor


def _parameters(*values: Any) -> tuple[Tensor, ...]:
    """Tensors, and numbers as tensors of their dtype and device, broadcast."""
    like = next((v for v in values if hasattr(v, "spec")), None)
    return broadcast_tensors(*[v if hasattr(v, "spec") else _number(v, like) for v in values])


def _number(value: float, like: Tensor | None) -> Tensor:
    return as_tensor(float(value)) if like is None else like.new_full((), float(value))


class Distribution:
    """What all have: `batch_shape`, `event_shape` (always empty here), `sample`, `rsample`, `log_prob`, `entropy`.

    has_rsample: whether a draw is a differentiable function of the parameters.
    """

    has_rsample = False
    event_shape = Size(())

    def __init__(self, batch_shape: Any, validate_args: bool | None = None) -> None:
        self.batch_shape = Size(tuple(batch_shape))

    def _shape(self, sample_shape: Any) -> tuple[int, ...]:
        lead = (sample_shape,) if isinstance(sample_shape, int) else tuple(sample_shape)
        return (*lead, *self.batch_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Draws of shape sample_shape + batch_shape, through which gradients flow to the parameters.

        Raises NotImplementedError where `has_rsample` is False.
        """
        raise NotImplementedError(f"{type(self).__name__}.rsample(): its draws have no gradient; use sample()")

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draws of shape sample_shape + batch_shape, without gradient."""
        return self.rsample(sample_shape).detach()

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density, or probability, at `value`, for each element of what it and the parameters
        broadcast to.
        """
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """The entropy, in nats, of shape `batch_shape`."""
        raise NotImplementedError

    @property
    def mean(self) -> Tensor:
        """The expectation."""
        raise NotImplementedError

    @property
    def variance(self) -> Tensor:
        """The variance."""
        raise NotImplementedError

    @property
    def stddev(self) -> Tensor:
        """The square root of the variance."""
        return self.variance.sqrt()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(batch_shape: {tuple(self.batch_shape)})"


class Normal(Distribution):
    """The normal distribution of mean `loc` and standard deviation `scale`."""

    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = _parameters(loc, scale)
        super().__init__(self.loc.shape, validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._shape(sample_shape)
        return self.loc + randn_like(self.loc.detach().expand(shape)) * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        distance = (value - self.loc) / self.scale
        return -0.5 * distance * distance - log(self.scale) - 0.5 * math.log(2 * math.pi)

    def entropy(self) -> Tensor:
        return log(self.scale) + (0.5 + 0.5 * math.log(2 * math.pi))

    def cdf(self, value: Tensor) -> Tensor:
        """How likely a draw is to be below `value`."""
        return ndtr((value - self.loc) / self.scale)

    def icdf(self, value: Tensor) -> Tensor:
        """The inverse of `cdf`."""
        return self.loc + self.scale * ndtri(value)

    @property
    def mean(self) -> Tensor:
        return self.loc

    mode = mean

    @property
    def variance(self) -> Tensor:
        return self.scale * self.scale

    @property
    def stddev(self) -> Tensor:
        return self.scale


class Uniform(Distribution):
    """The uniform distribution on [low, high)."""

    has_rsample = True

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self.low, self.high = _parameters(low, high)
        super().__init__(self.low.shape, validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._shape(sample_shape)
        return self.low + rand_like(self.low.detach().expand(shape)) * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        inside = (value >= self.low) & (value < self.high)
        return where(inside, -log(self.high - self.low), -math.inf)

    def entropy(self) -> Tensor:
        return log(self.high - self.low)

    @property
    def mean(self) -> Tensor:
        return (self.low + self.high) / 2

    @property
    def variance(self) -> Tensor:
        width = self.high - self.low
        return width * width / 12


def _one_of(name: str, probs: Any, logits: Any) -> None:
    if (probs is None) == (logits is None):
        raise ValueError(f"{name}(): give either probs or logits")


class Bernoulli(Distribution):
    """1 with probability `probs`, or sigmoid(`logits`), else 0. Raises ValueError unless one of the two is given."""

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        _one_of("Bernoulli", probs, logits)
        if logits is None:
            (self.probs,) = _parameters(probs)
            self.logits = logit(self.probs, 1e-7 if self.probs.dtype.itemsize < 8 else 1e-15)
        else:
            (self.logits,) = _parameters(logits)
            self.probs = sigmoid(self.logits)
        super().__init__(self.logits.shape, validate_args)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return draw_bernoulli(self.probs.detach().expand(self._shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        logits, value = broadcast_tensors(self.logits, value.to(self.logits.dtype))
        found: Tensor = binary_cross_entropy_with_logits(logits, value, reduction="none")
        return -found

    def entropy(self) -> Tensor:
        return -self.log_prob(self.probs)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)


class Categorical(Distribution):
    """An index from 0 to n - 1, by the weights in the last dim of `probs`, or the softmax of `logits`.

    Raises ShapeError for a 0-d tensor.
    """

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        _one_of("Categorical", probs, logits)
        given: Tensor = logits if probs is None else probs
        if not given.ndim:
            raise ShapeError("Categorical(): needs at least 1 dim, that of the categories")
        if probs is None:
            self.logits = log_softmax(logits, -1)
            self.probs = self.logits.exp()
        else:
            self.probs = probs / probs.sum(-1, True)
            smallest = 1e-7 if probs.dtype.itemsize < 8 else 1e-15
            self.logits = log(self.probs.clamp(smallest, 1 - smallest))
        super().__init__(given.shape[:-1], validate_args)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._shape(sample_shape)
        rows = self.probs.detach().reshape(-1, self.probs.shape[-1])
        count = math.prod(shape) // max(rows.shape[0], 1)
        drawn = multinomial(rows, max(count, 1), replacement=True).mT
        return drawn[:count].reshape(shape)

    def log_prob(self, value: Tensor) -> Tensor:
        index, logits = value.long().unsqueeze(-1), self.logits
        index, logits = broadcast_tensors(index, logits)
        return gather(logits, -1, index[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        return -(self.probs * self.logits).sum(-1)

    @property
    def mode(self) -> Tensor:
        """The likeliest index."""
        return self.probs.argmax(-1)


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The Kullback-Leibler divergence of `p` from `q`, distributions of one kind, in their batch's shape. Raises
    NotImplementedError for other pairs.
    """
    if isinstance(p, Normal) and isinstance(q, Normal):
        ratio, distance = p.scale / q.scale, (p.loc - q.loc) / q.scale
        return 0.5 * (ratio * ratio + distance * distance - 1) - log(ratio)
    if isinstance(p, Categorical) and isinstance(q, Categorical):
        return (p.probs * (p.logits - q.logits)).sum(-1)
    if isinstance(p, Bernoulli) and isinstance(q, Bernoulli):
        return p.log_prob(p.probs) - q.log_prob(p.probs)
    raise NotImplementedError(f"kl_divergence(): norch has none of {type(p).__name__} and {type(q).__name__}")


__all__ = ["Bernoulli", "Categorical", "Distribution", "Normal", "Uniform", "kl_divergence"]
