"""Batch normalisation in evaluation made part of the layer before it."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import norch

from ..module import Module
from ..parameter import Parameter

M = TypeVar("M", bound=Module)


def _fused(
    weight: norch.Tensor, bias: Any, mean: Any, var: Any, eps: float, scale: Any, shift: Any, dim: int
) -> tuple[Parameter, Parameter]:
    with norch.no_grad():
        factor = norch.rsqrt(var + eps)
        factor = factor if scale is None else scale * factor
        old = norch.zeros_like(mean) if bias is None else bias
        shape = [1] * weight.ndim
        shape[dim] = -1
        new = (old - mean) * factor
        new = new if shift is None else new + shift
        fused = (weight * factor.reshape(shape)).to(weight.dtype), new.to(old.dtype)
    trained = weight.requires_grad, weight.requires_grad if bias is None else bias.requires_grad
    return Parameter(fused[0], trained[0]), Parameter(fused[1], trained[1])


def fuse_conv_bn_weights(
    conv_w: norch.Tensor,
    conv_b: norch.Tensor | None,
    bn_rm: norch.Tensor,
    bn_rv: norch.Tensor,
    bn_eps: float,
    bn_w: norch.Tensor | None,
    bn_b: norch.Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of the convolution that does what one and a batch normalisation after it do in evaluation.

    conv_w, conv_b: of the convolution, (out, in, ...) and (out) or None; `transpose`d, (in, out, ...). bn_rm, bn_rv,
    bn_eps, bn_w, bn_b: the normalisation's running mean and variance, eps, weight and bias, (out), the last two or
    None.
    """
    return _fused(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 1 if transpose else 0)


def fuse_linear_bn_weights(
    linear_w: norch.Tensor,
    linear_b: norch.Tensor | None,
    bn_rm: norch.Tensor,
    bn_rv: norch.Tensor,
    bn_eps: float,
    bn_w: norch.Tensor | None,
    bn_b: norch.Tensor | None,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of the linear layer that does what one and a batch normalisation after it do in evaluation.

    linear_w, linear_b: of the layer, (out, in) and (out) or None. bn_rm, bn_rv, bn_eps, bn_w, bn_b: as of
    `fuse_conv_bn_weights`.
    """
    return _fused(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 0)


def _fused_copy(layer: M, bn: Any, op: str, dim: int) -> M:
    if layer.training or bn.training:
        raise ValueError(f"{op}(): both modules must be in evaluation mode; call eval() first")
    if bn.running_mean is None or bn.running_var is None:
        raise ValueError(f"{op}(): the batch normalisation has no running statistics")
    copied = copy.deepcopy(layer)
    parts = (layer.weight, layer.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
    copied.weight, copied.bias = _fused(*parts, dim)
    return copied


def fuse_conv_bn_eval(conv: M, bn: Module, transpose: bool = False) -> M:
    """A copy of `conv` that does what `conv` and `bn` after it do in evaluation. ValueError where one is in training.

    Where the channels are in groups, a transposed convolution cannot be fused, and raises ValueError. transpose: `conv`
    is a transposed convolution.
    """
    if transpose and conv.groups != 1:
        raise ValueError(f"fuse_conv_bn_eval(): a transposed convolution of {conv.groups} groups cannot be fused")
    return _fused_copy(conv, bn, "fuse_conv_bn_eval", 1 if transpose else 0)


def fuse_linear_bn_eval(linear: M, bn: Module) -> M:
    """A copy of `linear` that does what `linear` and `bn` after it do in evaluation.

    Raises ValueError where one is in training, or the numbers of features differ.
    """
    if linear.out_features != bn.num_features:
        raise ValueError(f"fuse_linear_bn_eval(): {linear.out_features} features and {bn.num_features} channels differ")
    return _fused_copy(linear, bn, "fuse_linear_bn_eval", 0)
