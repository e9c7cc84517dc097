"""batch_norm together with the relu behind it, for backends that do both in one pass.

`norch.capture` makes these calls of others. There is no function of theirs to be called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dispatch.plan import Inferred
from ...spec import Spec
from ..families import composite
from .activation import relu, relu_grad
from .batch_normalization import _batch_norm, _infer_batch_norm, _of_channels, batch_norm_grad

if TYPE_CHECKING:
    from ...tensor import Tensor


@composite(_infer_batch_norm)
def batch_norm_relu(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """relu of `batch_norm` with the statistics of the batch, and those, of what is normalised."""
    out, mean, variance = _batch_norm(input, weight, bias, eps)
    return relu(out), mean, variance


def _infer_grad(grad: Spec, result: Spec, input: Spec, weight: Spec | None, eps: float) -> Inferred:
    return _of_channels((grad, result, input), (weight,), eps)


@composite(_infer_grad)
def batch_norm_relu_grad(
    grad: Tensor, result: Tensor, input: Tensor, weight: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of batch_norm's input, weight and bias from that of relu's result."""
    return batch_norm_grad(relu_grad(grad, result), input, weight, eps)
