"""Activations, element by element."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ...dispatch.plan import Inferred
from ...dtype import BOOL, INTEGER
from ...errors import DTypeError, ShapeError
from ...spec import Spec, elementwise_layout
from ..elementwise.arithmetic import abs as absolute
from ..elementwise.arithmetic import (
    erf,
    exp,
    expm1,
    ge,
    gt,
    le,
    log1p,
    lt,
    maximum,
    minimum,
    sigmoid,
    tanh,
    where,
)
from ..families import FLOAT, composite, floating, infer_elementwise, one_dtype, op_of
from ..gradients import elementwise_gradient
from ..registry import public
from ..upcast import upcast

if TYPE_CHECKING:
    from ...tensor import Tensor


def infer_floating(name: str) -> Any:
    """The inference rule of an elementwise composite: input's shape, dtype and layout; floating."""

    def infer(input: Spec, *attrs: Any) -> Spec:
        floating(name, input)
        return input.like(input.shape, elementwise_layout(input.shape, (input,)))

    return infer


def _infer_relu(input: Spec) -> Spec:
    if input.dtype.category == BOOL:
        raise DTypeError("relu(): cannot take bool; convert it first")
    return input.like(input.shape, elementwise_layout(input.shape, (input,)))


@elementwise_gradient
def relu_grad(grad: Tensor, y: Tensor) -> Tensor:
    return where(le(y, 0), 0.0, grad)


@public(inplace=True)
@composite(_infer_relu, relu_grad, elementwise=True)
def relu(input: Tensor) -> Tensor:
    """max(input, 0), elementwise; NaN stays. Shape and dtype kept. Raises DTypeError for bool."""
    return maximum(input, 0)


_THIRD, _SIXTH = 1 / 3, 1 / 6

# --- Piecewise --------------------------------------------------------------------------------------------------------


@elementwise_gradient
def leaky_relu_grad(grad: Tensor, input: Tensor, negative_slope: float) -> Tensor:
    return where(gt(input, 0), grad, grad * negative_slope)


def _leaky_relu_vjp(g: Tensor, y: Tensor, negative_slope: float) -> Tensor:
    return leaky_relu_grad(g, y, negative_slope)


@composite(infer_floating("leaky_relu"), _leaky_relu_vjp, name="leaky_relu", elementwise=True)
def _leaky_relu(input: Tensor, negative_slope: float) -> Tensor:
    return where(gt(input, 0), input, input * negative_slope)


@public(method=False, inplace=True)
def leaky_relu(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """`input` where positive, else `negative_slope * input` (Maas et al., 2013). Elementwise. DTypeError unless
    floating.
    """
    if negative_slope < 0:  # the result's sign does not tell the input's
        floating("leaky_relu", input.spec)
        return where(gt(input, 0), input, input * negative_slope)
    return _leaky_relu(input, negative_slope)


leaky_relu.op = op_of(_leaky_relu)  # type: ignore[attr-defined]


@elementwise_gradient
def elu_grad(grad: Tensor, input: Tensor, alpha: float, scale: float, input_scale: float) -> Tensor:
    below = exp(minimum(upcast(input), 0) * input_scale) * (alpha * scale * input_scale)
    return (grad * where(gt(input, 0), scale, below)).to(grad.dtype)


@composite(infer_floating("elu"), elu_grad, name="elu", elementwise=True)
def _elu(input: Tensor, alpha: float, scale: float, input_scale: float) -> Tensor:
    # The minimum keeps the branch that is not taken finite, and with it the branch's gradient.
    x = upcast(input)
    below = expm1(minimum(x, 0) * input_scale) * alpha
    return (where(gt(x, 0), x, below) * scale).to(input.dtype)


@public(method=False, inplace=True)
def elu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """`input` where positive, else alpha * (exp(input) - 1) (Clevert et al., 2015). DTypeError unless floating."""
    return _elu(input, alpha, 1.0, 1.0)


@public(method=False, inplace=True)
def selu(input: Tensor) -> Tensor:
    """The `elu` that keeps mean 0 and variance 1 from layer to layer (Klambauer et al., 2017, whose constants it has).

    Shape and dtype kept; raises DTypeError unless floating.
    """
    return _elu(input, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946, 1.0)


@public(method=False, inplace=True)
def celu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """`input` where it is positive, `alpha * (exp(input / alpha) - 1)` elsewhere (Barron, 2017).

    Shape and dtype kept; raises DTypeError unless floating, ZeroDivisionError for `alpha` 0.
    """
    return _elu(input, alpha, 1.0, 1.0 / alpha)


def _of_numbers(name: str) -> Any:
    """The same of integers too."""

    def infer(input: Spec, *attrs: float) -> Spec:
        one_dtype(name, input)
        return input.like(input.shape, elementwise_layout(input.shape, (input,)))

    return infer


@elementwise_gradient
def hardtanh_grad(grad: Tensor, input: Tensor, min_val: float, max_val: float) -> Tensor:
    # The bounds are compared as they are: 16 bits would round them. The result is no help, since it is rounded.
    x = upcast(input)
    return where(le(x, min_val) | ge(x, max_val), 0.0, grad)


@public(method=False, inplace=True)
@composite(_of_numbers("hardtanh"), hardtanh_grad, native="floating", elementwise=True)
def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """`input` limited to [min_val, max_val], gradient 0 there and beyond; NaN stays, shape and dtype kept. Raises
    DTypeError for bool.

    Of integers the bounds are cut off to integers.
    """
    if input.dtype.category == INTEGER:
        min_val, max_val = int(min_val), int(max_val)
    return minimum(maximum(input, min_val), max_val)


@public(method=False)
def relu6(input: Tensor) -> Tensor:
    """min(max(input, 0), 6), elementwise. Shape and dtype kept; raises DTypeError for bool."""
    return hardtanh(input, 0.0, 6.0)


@elementwise_gradient
def hardsigmoid_grad(grad: Tensor, input: Tensor) -> Tensor:
    return where(lt(absolute(input), 3), grad * _SIXTH, 0.0)


@public(method=False, inplace=True)
@composite(infer_floating("hardsigmoid"), hardsigmoid_grad, elementwise=True)
def hardsigmoid(input: Tensor) -> Tensor:
    """relu6(input + 3) / 6, piecewise linear. Shape and dtype kept; raises DTypeError unless floating."""
    if not input.dtype.is_floating_point:
        floating("hardsigmoid", input.spec)
    return relu6(input + 3) * _SIXTH


@elementwise_gradient
def hardswish_grad(grad: Tensor, input: Tensor) -> Tensor:
    return where(le(input, -3), 0.0, where(ge(input, 3), grad, grad * (input * _THIRD + 0.5)))


@public(method=False, inplace=True)
@composite(infer_floating("hardswish"), hardswish_grad, elementwise=True)
def hardswish(input: Tensor) -> Tensor:
    """input * relu6(input + 3) / 6 (Howard et al., 2019). Shape, dtype kept; raises DTypeError unless floating."""
    return input * (relu6(input + 3) * _SIXTH)


@elementwise_gradient
def threshold_grad(grad: Tensor, input: Tensor, threshold: float, value: float) -> Tensor:
    return where(le(upcast(input), threshold), 0.0, grad)


@composite(_of_numbers("threshold"), threshold_grad, name="threshold", native="floating", elementwise=True)
def _threshold(input: Tensor, threshold: float, value: float) -> Tensor:
    if input.dtype.category == INTEGER:
        return where(le(input, int(threshold)), int(value), input)
    return where(le(upcast(input), threshold), float(value), input)


@public(method=False)
def threshold(input: Tensor, threshold: float, value: float) -> Tensor:
    """`input` where it is above `threshold`, else `value`; NaN stays. Shape and dtype kept; raises DTypeError for bool.

    Of integers the two are cut off to integers.
    """
    return _threshold(input, threshold, value)


@elementwise_gradient
def prelu_grad(grad: Tensor, input: Tensor, weight: Tensor) -> Tensor:
    return where(gt(input, 0), grad, grad * weight)


@elementwise_gradient
def prelu_weight_grad(grad: Tensor, input: Tensor) -> Tensor:
    return where(gt(input, 0), 0.0, grad * input)


@composite(
    lambda input, weight: infer_elementwise("prelu", (input, weight)),
    {"input": prelu_grad, "weight": prelu_weight_grad},
    name="prelu",
    elementwise=True,
)
def _prelu(input: Tensor, weight: Tensor) -> Tensor:
    return where(gt(input, 0), input, input * weight)


@public()
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """`input` where it is positive, `weight * input` elsewhere (He et al., 2015). Shape and dtype kept.

    weight: one slope, or one for each of the channels, which are dim 1. Raises ShapeError for another number,
    DTypeError unless both are floating.
    """
    floating("prelu", input.spec, weight.spec)
    shape, ndim = tuple(input.spec.shape), input.spec.ndim
    channels = shape[1] if ndim > 1 else 1
    if weight.spec.ndim > 1 or weight.spec.numel not in (1, channels):
        raise ShapeError(f"prelu(): weight {tuple(weight.spec.shape)} does not fit {channels} channels of {shape}")
    if weight.spec.numel > 1:
        weight = weight.reshape((-1, *(1,) * (ndim - 2)))
    elif weight.spec.ndim > ndim:
        weight = weight.reshape(())
    return _prelu(input, weight)


# --- Smooth -----------------------------------------------------------------------------------------------------------

_SQRT_HALF = math.sqrt(0.5)
_INV_SQRT_2PI = 1 / math.sqrt(2 * math.pi)
_SQRT_2_OVER_PI = math.sqrt(2 / math.pi)
_CUBIC = 0.044715


def _gelu_tanh(x: Tensor) -> Tensor:
    return tanh((x + x * x * x * _CUBIC) * _SQRT_2_OVER_PI)


@elementwise_gradient
def gelu_grad(grad: Tensor, input: Tensor, approximate: str) -> Tensor:
    x = upcast(input)
    if approximate == "none":
        slope = (erf(x * _SQRT_HALF) + 1) * 0.5 + x * exp(x * x * -0.5) * _INV_SQRT_2PI
    else:
        t = _gelu_tanh(x)
        inner = (x * x * (3 * _CUBIC) + 1) * _SQRT_2_OVER_PI
        slope = (t + 1) * 0.5 + x * (1 - t * t) * inner * 0.5
    return (grad * slope).to(grad.dtype)


@composite(infer_floating("gelu"), gelu_grad, name="gelu", elementwise=True)
def _gelu(input: Tensor, approximate: str) -> Tensor:
    x = upcast(input)
    gate = erf(x * _SQRT_HALF) if approximate == "none" else _gelu_tanh(x)
    return (x * ((gate + 1) * 0.5)).to(input.dtype)


@public(method=False)
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """input * Phi(input), Phi being the standard normal distribution function (Hendrycks and Gimpel, 2016).

    approximate: "none" for Phi by the error function, "tanh" for their approximation. Shape and dtype kept; raises
    DTypeError unless floating, ValueError for another `approximate`.
    """
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu(): approximate must be 'none' or 'tanh', got {approximate!r}")
    return _gelu(input, approximate)


@elementwise_gradient
def silu_grad(grad: Tensor, input: Tensor) -> Tensor:
    x = upcast(input)
    s = sigmoid(x)
    return (grad * (s * (x * (1 - s) + 1))).to(grad.dtype)


@public(method=False, inplace=True)
@composite(infer_floating("silu"), silu_grad, elementwise=True)
def silu(input: Tensor) -> Tensor:
    """input * sigmoid(input), or swish (Elfwing et al., 2017). Dtype kept; raises DTypeError unless floating."""
    x = upcast(input)
    return (x * sigmoid(x)).to(input.dtype)


def _log1p_exp(x: Tensor) -> Tensor:
    """log(1 + exp(x)) without overflow."""
    return maximum(x, 0) + log1p(exp(-absolute(x)))


@elementwise_gradient
def mish_grad(grad: Tensor, input: Tensor) -> Tensor:
    x = upcast(input)
    t = tanh(_log1p_exp(x))
    return (grad * (t + x * sigmoid(x) * (1 - t * t))).to(grad.dtype)


@public(method=False, inplace=True)
@composite(infer_floating("mish"), mish_grad, elementwise=True)
def mish(input: Tensor) -> Tensor:
    """input * tanh(softplus(input)) (Misra, 2019). Shape and dtype kept; raises DTypeError unless floating."""
    x = upcast(input)
    return (x * tanh(_log1p_exp(x))).to(input.dtype)


@elementwise_gradient
def softplus_grad(grad: Tensor, input: Tensor, beta: float, threshold: float) -> Tensor:
    scaled = input * beta
    return where(gt(scaled, threshold), grad, grad * sigmoid(scaled))


@public(method=False)
@composite(infer_floating("softplus"), softplus_grad, elementwise=True)
def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * input)) / beta; `input` where beta * input > `threshold`. Elementwise. DTypeError unless
    floating.
    """
    scaled = input * beta
    return where(gt(scaled, threshold), input, _log1p_exp(scaled) / beta)


@elementwise_gradient
def softsign_grad(grad: Tensor, input: Tensor) -> Tensor:
    size = absolute(input) + 1
    return grad / size / size


def _infer_softsign(input: Spec) -> Inferred:
    one_dtype("softsign", input)  # refuses bool
    return infer_elementwise("softsign", (input,), FLOAT)


@public(method=False)
@composite(_infer_softsign, softsign_grad, elementwise=True)
def softsign(input: Tensor) -> Tensor:
    """input / (1 + |input|). Shape kept; integers give the default dtype. Raises DTypeError for bool."""
    return input / (absolute(input) + 1)


@elementwise_gradient
def logsigmoid_grad(grad: Tensor, input: Tensor) -> Tensor:
    return grad * sigmoid(-input)


@public(method=False)
@composite(infer_floating("logsigmoid"), logsigmoid_grad, elementwise=True)
def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(input)) without overflow. Shape and dtype kept; raises DTypeError unless floating."""
    return minimum(input, 0) - log1p(exp(-absolute(input)))
