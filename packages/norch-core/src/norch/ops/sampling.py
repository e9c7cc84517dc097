"""Draws from distributions other than the uniform and the normal one. See `random` for how they are keyed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..autograd.graph import mark_modified
from ..dtype import float32, float64, int64
from ..errors import ShapeError, WeightsError
from ..spec import Spec, as_int
from .elementwise.arithmetic import floor, log1p, minimum, tan
from .families import composite, floating, infer_elementwise, op_of
from .generator import Generator, current_generator, draw_keyed, keyed
from .random import draw, draws_into
from .reduction.reductions import argmax
from .reduction.scan import cumsum
from .reduction.sorting import searchsorted, topk
from .registry import method, public
from .shape.views import narrow
from .upcast import upcast_dtype

if TYPE_CHECKING:
    from ..tensor import Tensor
    from .creation import Scalar


@public()
def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """Indices (int64) drawn by the weights in a vector, or in each row of a matrix: (n) or (rows, n), `num_samples` of
    them: (num_samples) or (rows, num_samples).

    Without replacement by keys: the largest of weight / exponential (Efraimidis and Spirakis, 2006). Raises DTypeError
    unless floating, ShapeError for other dims or too many samples. On the CPU, WeightsError for weights that are
    negative, not finite, or of which too few are positive. Elsewhere that is not looked for, which would wait; without
    replacement norch-cuda tells of the first two at the next synchronisation, by a RuntimeError.
    """
    floating("multinomial", input.spec)
    count = as_int(num_samples, "multinomial", "num_samples")
    if input.spec.ndim not in (1, 2) or not input.spec.shape[-1] or count < 1:
        raise ShapeError(
            f"multinomial(): expected a vector or matrix of weights and at least 1 sample, got shape "
            f"{tuple(input.spec.shape)} and {count}"
        )
    if not replacement and count > input.spec.shape[-1]:
        raise ShapeError(f"multinomial(): {count} samples of {input.spec.shape[-1]} without replacement")
    weights = input.detach().double()
    last = input.spec.shape[-1] - 1
    is_on_cpu = input.spec.device.type == "cpu" and type(input.spec) is Spec  # of another kind inside vmap
    if replacement:
        edges = cumsum(weights, -1)
        sums = narrow(edges, -1, last, 1)
        if is_on_cpu and not _has_fine_sums(weights, sums):
            _require_weights(weights, 1)
        chosen = draw(weights.spec.like((*weights.spec.shape[:-1], count)), "uniform", generator) * sums
        return minimum(searchsorted(edges, chosen, right=True), last)
    if is_on_cpu:
        _require_weights(weights, count)
    keys = race_keys(*keyed(input.detach(), generator))
    return argmax(keys, -1, True) if count == 1 else topk(keys, count)[1].to(int64)


def _has_fine_sums(weights: Tensor, sums: Tensor) -> bool:
    """Whether by the sums no weight is negative or not finite, and one of each row is positive."""
    if not weights.spec.numel or not 0 <= weights.amin().item() < math.inf:
        return False
    if sums.spec.numel == 1:
        return bool(0 < sums.item() < math.inf)
    return bool(sums.amin().item() > 0 and sums.amax().item() < math.inf)


def _require_weights(weights: Tensor, needed: int) -> None:
    """Raises WeightsError for weights that are negative, not finite, or of which fewer of a row are positive."""
    largest = weights.amax(-1)
    enough = (largest > 0) if needed == 1 else (weights > 0).sum(-1) >= needed
    fine = (weights.amin(-1) >= 0).all() & (largest < math.inf).all() & enough.all()
    if not bool(fine.item()):
        raise WeightsError(
            f"multinomial(): the weights must be finite, not negative, and at least {needed} of a row positive"
        )


def _draw_spec(self: Tensor, op: str) -> Spec:
    """What to draw in for a floating tensor. Raises DTypeError for another."""
    return self.spec.like(dtype=upcast_dtype(floating(op, self.spec)))


_NUMBERS = ("least", "rate")


@composite(
    lambda input, *numbers: infer_elementwise("exponential", (input,))._replace(attrs=dict(zip(_NUMBERS, numbers))),
    name="exponential_of_uniform",
    elementwise=True,
)
def _of_uniform(input: Tensor, least: float, rate: float) -> Tensor:
    """Exponential draws from uniform ones of at least `least`."""
    drawn = -log1p(-input.clamp(min=least))
    return drawn if rate == 1 else drawn / rate


def _infer_exponential(like: Spec, rate: float, seed: type, offset: type) -> Spec:
    return like.like(dtype=upcast_dtype(like.dtype))


@composite(_infer_exponential, name="exponential_draw")
def exponential_draw(like: Tensor, rate: float, seed: Scalar, offset: Scalar) -> Tensor:
    """Exponential draws in the shape of `like`, in float32 at least; 0 is the smallest number that may divide."""
    drawn = draw_keyed(like.spec.like(dtype=upcast_dtype(like.dtype)), "uniform", int(seed), int(offset))
    return _of_uniform(drawn, 1e-38 if drawn.dtype is float32 else 1e-300, rate)


@composite(lambda weights, seed, offset: weights.like(dtype=float64), name="race_keys")
def race_keys(weights: Tensor, seed: Scalar, offset: Scalar) -> Tensor:
    """weights / exponential draws, float64, the largest of which are a sample (Efraimidis and Spirakis, 2006)."""
    wide = weights.double()
    return wide / exponential_draw(wide, 1.0, seed, offset)


_DRAW_EXPONENTIAL = op_of(exponential_draw)


@method()
def exponential_(self: Tensor, lambd: float = 1, *, generator: Generator | None = None) -> Tensor:
    """Fills the tensor, of any shape, with exponential draws of rate `lambd`.

    Raises WeightsError unless `lambd` > 0, DTypeError unless floating.
    """
    if not lambd > 0:
        raise WeightsError(f"exponential_(): lambd must be positive, got {lambd}")
    floating("exponential_", self.spec)
    rate, source = float(lambd), generator or current_generator()
    if draws_into(self, source):
        key = self.spec, self.spec, rate, int, int
        if _DRAW_EXPONENTIAL.into_plans[key].kernel is not None:
            _DRAW_EXPONENTIAL.into(self, self, rate, *source.next())
            mark_modified(self, "exponential_")
            return self
    like, seed, offset = keyed(self.detach(), source)
    return self.copy_(exponential_draw(like, rate, seed, offset))


@method()
def geometric_(self: Tensor, p: float, *, generator: Generator | None = None) -> Tensor:
    """Fills the tensor, of any shape, with geometric draws: trials up to the first success.

    Raises WeightsError unless 0 < p < 1.
    """
    if not 0 < p < 1:
        raise WeightsError(f"geometric_(): p must be between 0 and 1, got {p}")
    spec = self.spec.like(dtype=float64 if self.spec.dtype is float64 else float32)
    drawn = floor(log1p(-draw(spec, "uniform", generator)) / math.log1p(-p)) + 1
    return self.copy_(drawn)


@method()
def cauchy_(self: Tensor, median: float = 0, sigma: float = 1, *, generator: Generator | None = None) -> Tensor:
    """Fills the tensor, of any shape, with Cauchy draws around `median`.

    Raises WeightsError unless sigma > 0, DTypeError unless floating.
    """
    if not sigma > 0:
        raise WeightsError(f"cauchy_(): sigma must be positive, got {sigma}")
    drawn = draw(_draw_spec(self, "cauchy_"), "uniform", generator)
    return self.copy_(tan((drawn - 0.5) * math.pi) * sigma + median)


@method()
def log_normal_(self: Tensor, mean: float = 1, std: float = 2, *, generator: Generator | None = None) -> Tensor:
    """Fills the tensor, of any shape, with draws whose logarithm is normal, of this `mean` and `std`.

    Raises WeightsError unless std > 0, DTypeError unless floating.
    """
    if not std > 0:
        raise WeightsError(f"log_normal_(): std must be positive, got {std}")
    drawn = draw(_draw_spec(self, "log_normal_"), "normal", generator)
    return self.copy_((drawn * std + mean).exp())
