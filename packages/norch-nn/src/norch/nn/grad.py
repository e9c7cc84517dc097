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


def _of_input(
    convolve: Callable[..., norch.Tensor], input_size: Any, weight: norch.Tensor, grad_output: norch.Tensor, *how: Any
) -> norch.Tensor:
    return _derivative(convolve, 0, [grad_output.new_zeros(tuple(input_size)), weight], grad_output, *how)


def _of_weight(
    convolve: Callable[..., norch.Tensor], input: norch.Tensor, weight_size: Any, grad_output: norch.Tensor, *how: Any
) -> norch.Tensor:
    return _derivative(convolve, 1, [input, grad_output.new_zeros(tuple(weight_size))], grad_output, *how)


def conv1d_input(
    input_size: Any,
    weight: norch.Tensor,
    grad_output: norch.Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> norch.Tensor:
    """The gradient of `conv1d` by an input of shape `input_size`. Raises ShapeError for shapes that do not fit."""
    return _of_input(functional.conv1d, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv1d_weight(
    input: norch.Tensor,
    weight_size: Any,
    grad_output: norch.Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> norch.Tensor:
    """The gradient of `conv1d` by a weight of shape `weight_size`. Raises ShapeError for shapes that do not fit."""
    return _of_weight(functional.conv1d, input, weight_size, grad_output, stride, padding, dilation, groups)


def conv2d_input(
    input_size: Any,
    weight: norch.Tensor,
    grad_output: norch.Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> norch.Tensor:
    """The gradient of `conv2d` by an input of shape `input_size`. Raises ShapeError for shapes that do not fit."""
    return _of_input(functional.conv2d, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv2d_weight(
    input: norch.Tensor,
    weight_size: Any,
    grad_output: norch.Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> norch.Tensor:
    """The gradient of `conv2d` by a weight of shape `weight_size`. Raises ShapeError for shapes that do not fit."""
    return _of_weight(functional.conv2d, input, weight_size, grad_output, stride, padding, dilation, groups)


def conv3d_input(
    input_size: Any,
    weight: norch.Tensor,
    grad_output: norch.Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> norch.Tensor:
    """The gradient of `conv3d` by an input of shape `input_size`. Raises ShapeError for shapes that do not fit."""
    return _of_input(functional.conv3d, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv3d_weight(
    input: norch.Tensor,
    weight_size: Any,
    grad_output: norch.Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> norch.Tensor:
    """The gradient of `conv3d` by a weight of shape `weight_size`. Raises ShapeError for shapes that do not fit."""
    return _of_weight(functional.conv3d, input, weight_size, grad_output, stride, padding, dilation, groups)
