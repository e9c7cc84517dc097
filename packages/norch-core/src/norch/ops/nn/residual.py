"""layer_norm together with what stands around it in a network with residual sums, for backends that do it in one pass.

`norch.capture` makes these calls of others. There is no function of theirs to be called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...dtype import as_dtype
from ...spec import Shape, Spec
from ..families import composite
from .normalization import _layer_norm, layer_norm_grad

if TYPE_CHECKING:
    from ...tensor import Tensor


def _infer_norm(
    input: Spec, residual: Spec | None, shape: Shape, weight: Spec | None, bias: Spec | None, eps: float, dtype: str
) -> tuple[Spec, ...]:
    total = residual or input
    result = total.like(total.shape, dtype=as_dtype(dtype))
    return (result,) if residual is None else (result, total.like())


@composite(_infer_norm)
def residual_norm(
    input: Tensor,
    residual: Tensor | None,
    shape: Shape,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    dtype: str,
) -> Any:
    """The layer_norm of input + residual in a dtype, its name given, and that sum, in the dtype of `residual`."""
    total = input if residual is None else input.to(residual.dtype) + residual
    out = _layer_norm(total, shape, weight, bias, eps).to(as_dtype(dtype))
    return out if residual is None else (out, total)


def _infer_norm_grad(
    grad: Spec, input: Spec, residual: Spec | None, shape: Shape, weight: Spec | None, eps: float, also: str
) -> tuple[Spec, ...]:
    total, of_weight = input.like(), input.like(shape)
    return total, of_weight, of_weight, *([total.like(dtype=as_dtype(also))] if also else ())


@composite(_infer_norm_grad)
def residual_norm_grad(
    grad: Tensor, input: Tensor, residual: Tensor | None, shape: Shape, weight: Tensor | None, eps: float, also: str
) -> Any:
    """The gradients of layer_norm's input, to which `residual` is added, of its weight and of its bias; then, where a
    dtype's name is given, the first in that dtype too. `grad` may have 16 bits where input has float32."""
    found, *others = layer_norm_grad(grad.to(input.dtype), input, shape, weight, eps, True)
    total = found if residual is None else found + residual
    return (total, *others, total.to(as_dtype(also))) if also else (total, *others)
