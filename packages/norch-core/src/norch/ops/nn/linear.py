"""linear: the matrix product of a layer, with its bias and activation, and its gradients."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from ...autograd.graph import is_recording
from ...errors import ShapeError, drawn
from ...spec import Spec
from ..elementwise.arithmetic import sigmoid, sigmoid_grad, tanh, tanh_grad
from ..families import composite, one_dtype
from ..registry import public
from .activation import gelu, relu, relu_grad, silu

if TYPE_CHECKING:
    from ...tensor import Tensor


def _infer_linear(input: Spec, weight: Spec, bias: Spec | None) -> Spec:
    one_dtype("linear", input, weight, bias)
    if weight.ndim != 2 or not input.ndim or input.shape[-1] != weight.shape[1]:
        raise ShapeError(
            f"linear(): input {tuple(input.shape)} does not fit weight {tuple(weight.shape)}: expected (..., in) "
            "and (out, in)" + drawn(("input", input.shape, (-1,)), ("weight", weight.shape, (-1,)), why="(out, in)")
        )
    if bias is not None and tuple(bias.shape) != (weight.shape[0],):
        raise ShapeError(
            f"linear(): bias {tuple(bias.shape)} does not fit weight {tuple(weight.shape)}: expected (out)"
            + drawn(("weight", weight.shape, (0,)), ("bias", bias.shape, (0,)))
        )
    return input.like((*input.shape[:-1], weight.shape[0]))


def _rows(x: Tensor) -> Tensor:
    """All dims but the last flattened into one."""
    shape = x.spec.shape
    return x if len(shape) == 2 else x.reshape(prod(shape[:-1]), shape[-1])


@composite(lambda grad, weight: grad.like((*grad.shape[:-1], weight.shape[1])))
def linear_input_grad(grad: Tensor, weight: Tensor) -> Tensor:
    """The gradient of linear's input from that of its result: (..., out), (out, in) -> (..., in)."""
    return (_rows(grad) @ weight).reshape((*grad.spec.shape[:-1], weight.spec.shape[1]))


@composite(lambda grad, input: grad.like((grad.shape[-1], input.shape[-1])))
def linear_weight_grad(grad: Tensor, input: Tensor) -> Tensor:
    """The gradient of linear's weight from that of its result: (..., out), (..., in) -> (out, in)."""
    return _rows(grad).mT @ _rows(input)


@composite(
    _infer_linear,
    {
        "input": linear_input_grad,
        "weight": linear_weight_grad,
        "bias": lambda g: g,
    },
    name="linear",
    native="floating",
)
def _linear(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    product = _rows(input) @ weight.mT
    if bias is not None:
        product = product + bias
    return product.reshape((*input.spec.shape[:-1], weight.spec.shape[0]))


_ACTIVATIONS: dict[str, Any] = {"relu": relu, "gelu": gelu, "silu": silu, "tanh": tanh, "sigmoid": sigmoid}
_GRADIENTS: dict[str, Any] = {"relu": relu_grad, "tanh": tanh_grad, "sigmoid": sigmoid_grad}
"""Of the activations whose gradient is found from their result."""


def _activation_rule(
    g: Tensor, y: Tensor, input: Tensor, weight: Tensor, activation: str, needs: tuple[bool, ...]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    g = _GRADIENTS[activation](g, y)
    return (
        linear_input_grad(g, weight) if needs[0] else None,
        linear_weight_grad(g, input) if needs[1] else None,
        g if needs[2] else None,
    )


@composite(
    lambda input, weight, bias, activation: _infer_linear(input, weight, bias),
    _activation_rule,
    joint=True,
    native="floating",
)
def linear_activation(input: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    """An activation of `linear`, in one pass. It has a gradient for those in _GRADIENTS only. Raises as linear does."""
    out: Tensor = _ACTIVATIONS[activation](_linear(input, weight, bias))
    return out


@public(method=False)
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None, *, activation: str | None = None) -> Tensor:
    """input @ weight.T + bias: (..., in), (out, in), (out) -> (..., out). A bias of one element, or of shape (1, out),
    is expanded.

    activation: "relu", "gelu", "silu", "tanh" or "sigmoid" to apply it to the result in the same pass. Raises
    ShapeError for shapes that do not fit, DTypeError unless all have one dtype, ValueError for another activation.
    """
    if activation is None:
        try:
            return _linear(input, weight, bias)
        except ShapeError:
            fitted = _expanded(bias, weight)
            if fitted is None:
                raise
            return _linear(input, weight, fitted)
    if activation not in _ACTIVATIONS:
        raise ValueError(f"linear(): activation must be one of {', '.join(_ACTIVATIONS)}, got {activation!r}")
    if activation in _GRADIENTS or not (
        is_recording() and any(x is not None and x.requires_grad for x in (input, weight, bias))
    ):
        return linear_activation(input, weight, bias, activation)
    # The gradient needs what the activation is applied to.
    out: Tensor = _ACTIVATIONS[activation](_linear(input, weight, bias))
    return out


def _expanded(bias: Tensor | None, weight: Tensor) -> Tensor | None:
    """A bias that broadcasts to (out) as one of that shape; None for others, and for what has it."""
    if bias is None or weight.spec.ndim != 2:
        return None
    shape, out = tuple(bias.spec.shape), weight.spec.shape[0]
    return bias.reshape(-1).expand(out) if shape in ((), (1,), (1, 1), (1, out)) and shape != (out,) else None


@public(method=False)
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input1 @ weight[k] @ input2 + bias[k] for each k: (..., in1), (..., in2), (out, in1, in2), (out) -> (..., out).

    Raises ShapeError for shapes that do not fit, DTypeError unless all have one dtype.
    """
    first, second, third = (tuple(x.spec.shape) for x in (input1, input2, weight))
    one_dtype("bilinear", input1.spec, input2.spec, weight.spec, None if bias is None else bias.spec)
    if not first or not second or second[:-1] != first[:-1] or third[1:] != (first[-1], second[-1]):
        raise ShapeError(
            f"bilinear(): expected (*, in1), (*, in2) and weight (out, in1, in2), got {first}, {second}, {third}"
        )
    (out, a, b), lead = third, first[:-1]
    # (rows, out * b) from one product with input1, then the sum with input2.
    count = prod(lead)
    rows = input1.reshape(count, a) @ weight.permute(1, 0, 2).reshape(a, out * b)
    result = (rows.reshape(count, out, b) @ input2.reshape(count, b, 1)).reshape((*lead, out))
    return result if bias is None else result + bias
