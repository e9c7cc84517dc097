"""Activations and softmax."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dtype import as_dtype
from ..op import Inferred
from ..spec import Spec, elementwise_layout, wrap_dim
from .elementwise import exp, le, log, maximum, where
from .families import accepts_axis, composite, floating
from .reduction import amax

if TYPE_CHECKING:
    from ..tensor import Tensor


def same(input: Spec, *attrs: Any) -> Inferred | Spec:
    """The inference rule of elementwise composites: input's shape, dtype and layout; floating."""

    floating("activation", input)
    return input.like(input.shape, elementwise_layout(input.shape, (input,)))


def _same_number(input: Spec) -> Spec:
    return input.like()


@composite(_same_number, lambda g, y: where(le(y, 0), 0.0, g))
def relu(input: Tensor) -> Tensor:
    """max(input, 0), elementwise; NaN stays."""
    return maximum(input, 0)


def _infer_softmax(name: str) -> Any:
    def infer(input: Spec, dim: int) -> Spec:
        floating(name, input)
        wrap_dim(dim, input.ndim, name)
        return input.like()

    return infer


@composite(_infer_softmax("softmax"), lambda g, y, dim: (g - (g * y).sum(dim, True)) * y, name="softmax")
def _softmax(input: Tensor, dim: int) -> Tensor:
    e = exp(input - amax(input, dim, True))
    return e / e.sum(dim, True)


@composite(
    _infer_softmax("log_softmax"), lambda g, y, dim: g - exp(y) * g.sum(dim, True), name="log_softmax"
)  # fmt: skip
def _log_softmax(input: Tensor, dim: int) -> Tensor:
    shifted = input - amax(input, dim, True)
    return shifted - log(exp(shifted).sum(dim, True))


@accepts_axis
def softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """exp(input) over its sum along `dim`, without overflow. Floating; shape kept."""
    return _softmax(input if dtype is None else input.to(as_dtype(dtype, "softmax")), dim)


@accepts_axis
def log_softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """log(softmax(input)) along `dim`, computed without either's overflow. Floating; shape kept."""
    return _log_softmax(input if dtype is None else input.to(as_dtype(dtype, "log_softmax")), dim)
