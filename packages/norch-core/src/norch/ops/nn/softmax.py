"""Softmax and its logarithm, along a dim."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...dtype import as_dtype
from ...spec import Spec, wrap_dim
from ..copying import contiguous
from ..elementwise.arithmetic import exp, log
from ..families import accepts_axis, composite, floating
from ..gradients import gradient_along_dim
from ..reduction.reductions import amax
from ..registry import public
from ..upcast import upcast

if TYPE_CHECKING:
    from ...tensor import Tensor


def _infer_along_dim(name: str) -> Any:
    def infer(input: Spec, dim: int) -> Spec:
        floating(name, input)
        wrap_dim(dim, input.ndim, name)
        return input.like()

    return infer


# Both compute on row-major input, so that the result has the layout that inference promised whatever dims have size 1.


@gradient_along_dim
def softmax_grad(grad: Tensor, y: Tensor, dim: int) -> Tensor:
    g, z = upcast(grad), upcast(y)
    return ((g - (g * z).sum(dim, True)) * z).to(grad.dtype)


@gradient_along_dim
def log_softmax_grad(grad: Tensor, y: Tensor, dim: int) -> Tensor:
    g, z = upcast(grad), upcast(y)
    return (g - exp(z) * g.sum(dim, True)).to(grad.dtype)


def _shifted(input: Tensor, dim: int) -> Tensor:
    """`input` less its largest along `dim`, so that no exp overflows."""
    x = upcast(contiguous(input))
    return x - amax(x, dim, True) if x.spec.numel else x.clone()


@composite(_infer_along_dim("softmax"), softmax_grad, name="softmax")
def _softmax(input: Tensor, dim: int) -> Tensor:
    e = exp(_shifted(input, dim))
    return (e / e.sum(dim, True)).to(input.dtype)


@composite(_infer_along_dim("log_softmax"), log_softmax_grad, name="log_softmax")
def _log_softmax(input: Tensor, dim: int) -> Tensor:
    shifted = _shifted(input, dim)
    return (shifted - log(exp(shifted).sum(dim, True))).to(input.dtype)


@public()
@accepts_axis
def softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """exp(input) over its sum along `dim`, shifted by the maximum against overflow. Shape kept.

    dtype: what to convert input to first. Raises DTypeError unless that is floating, IndexError for a dim out of range.
    """
    return _softmax(input if dtype is None else input.to(as_dtype(dtype, "softmax")), dim)


@public(method=False)
@accepts_axis
def softmin(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """softmax(-input), the smallest getting most. Shape and dtype kept; raises as softmax does."""
    return softmax(-input, dim, dtype)


@public()
@accepts_axis
def log_softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """log(softmax(input)) along `dim`, computed as input - logsumexp(input). Shape kept.

    dtype: what to convert input to first. Raises DTypeError unless that is floating, IndexError for a dim out of range.
    """
    return _log_softmax(input if dtype is None else input.to(as_dtype(dtype, "log_softmax")), dim)
