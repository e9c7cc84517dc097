"""The gradients of convolutions by their inputs and their weights, as functions: `torch.nn.grad`.

All can be differentiated again.

Arguments that mean the same in every function:

    input, weight: (n, c, *sizes) and (o, c / groups, *kernel). input_size, weight_size: such shapes.
    grad_output: the gradient of the result, (n, o, *out).
    stride, padding, dilation, groups: of the convolution, each but the last an int, or one for every dim.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import norch

from . import functional

__all__ = ["conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input", "conv3d_weight"]


def _derivative(
    convolve: Callable[..., norch.Tensor], at: int, operands: list[norch.Tensor], grad_output: norch.Tensor, *how: Any
) -> norch.Tensor:
    """A convolution is linear in each operand, so that the value of the one differentiated by does not matter."""
    recording = norch.is_grad_enabled()
    with norch.enable_grad():
        operands[at] = operands[at].requires_grad_()
        stride, padding, dilation, groups = how
        out = convolve(*operands, None, stride, padding, dilation, groups)
        found = norch.autograd.grad(out, operands[at], grad_output, create_graph=recording)
    return cast(norch.Tensor, found[0])


def _by_input(convolve: Callable[..., norch.Tensor]) -> Callable[..., norch.Tensor]:
    def gradient(
        input_size: Any,
        weight: norch.Tensor,
        grad_output: norch.Tensor,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> norch.Tensor:
        operands = [grad_output.new_zeros(tuple(input_size)), weight]
        return _derivative(convolve, 0, operands, grad_output, stride, padding, dilation, groups)

    return _named(gradient, convolve, "input", "an input of shape `input_size`")


def _by_weight(convolve: Callable[..., norch.Tensor]) -> Callable[..., norch.Tensor]:
    def gradient(
        input: norch.Tensor,
        weight_size: Any,
        grad_output: norch.Tensor,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> norch.Tensor:
        operands = [input, grad_output.new_zeros(tuple(weight_size))]
        return _derivative(convolve, 1, operands, grad_output, stride, padding, dilation, groups)

    return _named(gradient, convolve, "weight", "a weight of shape `weight_size`")


def _named(gradient: Callable[..., norch.Tensor], convolve: Callable[..., Any], by: str, what: str) -> Any:
    gradient.__name__ = gradient.__qualname__ = f"{convolve.__name__}_{by}"
    gradient.__doc__ = f"The gradient of `{convolve.__name__}` by {what}. Raises ShapeError for shapes that do not fit."
    return gradient


conv1d_input, conv1d_weight = _by_input(functional.conv1d), _by_weight(functional.conv1d)
conv2d_input, conv2d_weight = _by_input(functional.conv2d), _by_weight(functional.conv2d)
conv3d_input, conv3d_weight = _by_input(functional.conv3d), _by_weight(functional.conv3d)
