"""Normalisation of each channel over a batch: batch_norm, with the statistics of the batch and with running ones."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

from ...autograd.graph import is_recording
from ...dispatch.plan import Inferred
from ...errors import ShapeError
from ...spec import Spec, channels_last_strides, image_layout, is_channels_last, is_packed
from ...tensor_base import TakenOver
from ..elementwise.arithmetic import sqrt
from ..families import composite, floating
from ..optimizer.averaging import update_averages_
from ..reduction.reductions import mean
from ..reduction.variance import centred
from ..registry import public
from ..upcast import upcast, upcast_dtype
from .normalization import Gradients, _affine, _channels, _check_channels, _standardize, _standardize_grad

if TYPE_CHECKING:
    from ...tensor import Tensor


def _infer_batch_norm(input: Spec, weight: Spec | None, bias: Spec | None, eps: float) -> Inferred:
    return _of_channels((input,), (weight, bias), eps)


def _infer_batch_norm_grad(grad: Spec, input: Spec, weight: Spec | None, eps: float) -> Inferred:
    return _of_channels((grad, input), (weight,), eps)


def _of_channels(images: tuple[Spec, ...], parameters: tuple[Spec | None, ...], eps: float) -> Inferred:
    """The result like the last of `images`, and two values a channel. A kernel sees channels-last images as rows."""
    input = images[-1]
    last = channels_last_strides(input.shape) if is_channels_last(input) else None
    channels = input.like((input.shape[1],), dtype=upcast_dtype(input.dtype))
    outputs = input.like(input.shape, last), channels, channels
    kernel_outputs, seen = outputs, images
    if last is not None and all(is_packed(s.shape, s.strides, last) for s in images):
        rows = prod(input.shape) // input.shape[1], input.shape[1]
        kernel_outputs, seen = (input.like(rows), *outputs[1:]), tuple([s.like(rows) for s in images])
    given = tuple([s is not None for s in (*images, *parameters)])
    operands = (*seen, *[s for s in parameters if s is not None])
    return Inferred(outputs, operands, {"eps": eps, "given": given}, kernel_outputs)


@composite(_infer_batch_norm_grad)
def batch_norm_grad(grad: Tensor, input: Tensor, weight: Tensor | None, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of batch_norm's input, weight and bias."""
    ndim, g = input.spec.ndim, upcast(grad)
    dims = [0, *range(2, ndim)]
    x, factor = _standardize(upcast(input), dims, eps)
    grad_input = _standardize_grad(g if weight is None else g * _channels(weight, ndim), x, factor, dims)
    return grad_input.to(input.dtype), (g * x).sum(dims), g.sum(dims)


def _batch_norm_rule(
    g: tuple[Tensor, Tensor | None, Tensor | None], input: Tensor, weight: Tensor | None, eps: float
) -> Gradients:
    return batch_norm_grad(g[0], input, weight, eps)  # nothing is made of the statistics that wants a gradient


@composite(_infer_batch_norm, _batch_norm_rule, name="batch_norm", joint=True)
def _batch_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """`batch_norm` with the statistics of the batch, and those: the mean and unbiased variance of each channel."""
    ndim, x = input.spec.ndim, upcast(input)
    dims = [0, *range(2, ndim)]
    off = centred(x, dims)
    variance = mean(off * off, dims, True)
    out = _affine(off * (1 / sqrt(variance + eps)), _channels(weight, ndim), _channels(bias, ndim))
    count = input.spec.numel / max(input.spec.shape[1], 1)
    return out.to(input.dtype), mean(x, dims), variance.reshape(-1) * (count / max(count - 1, 1))


def _infer_batch_norm_running(
    input: Spec, running_mean: Spec, running_var: Spec, weight: Spec | None, bias: Spec | None, eps: float
) -> Spec:
    return input.like(input.shape, image_layout(input.shape, input))


def _infer_batch_norm_running_grad(
    grad: Spec, input: Spec, running_mean: Spec, running_var: Spec, weight: Spec | None, eps: float
) -> Inferred:
    return _of_channels((grad, input), (running_mean, running_var, weight), eps)


@composite(_infer_batch_norm_running_grad)
def batch_norm_running_grad(
    grad: Tensor, input: Tensor, running_mean: Tensor, running_var: Tensor, weight: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of input, weight and bias of batch_norm with statistics that are given."""
    ndim, g = input.spec.ndim, upcast(grad)
    dims = [0, *range(2, ndim)]
    factor = 1 / sqrt(upcast(running_var) + eps)
    scaled = factor if weight is None else factor * weight
    product = (g * (input - _channels(running_mean, ndim))).sum(dims)
    return (g * _channels(scaled, ndim)).to(input.dtype), product * factor, g.sum(dims)


def _batch_norm_running_rule(
    g: Tensor,
    input: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    weight: Tensor | None,
    eps: float,
    needs: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    if not any(needs[1:5]):  # of one factor a channel, as the result is
        none = running_mean.new_zeros(running_mean.shape)
        return _batch_norm_running(g, none, running_var, weight, None, eps).to(input.dtype), None, None, None, None
    to_input, to_weight, total = batch_norm_running_grad(g, input, running_mean, running_var, weight, eps)
    to_mean = to_var = None
    if needs[1] or needs[2]:
        factor = 1 / sqrt(upcast(running_var) + eps)
        scaled = factor if weight is None else factor * weight
        to_mean, to_var = -total * scaled, -0.5 * to_weight * scaled * factor
    return to_input, to_mean, to_var, to_weight, total


@composite(_infer_batch_norm_running, _batch_norm_running_rule, name="batch_norm_running", joint=True)
def _batch_norm_running(
    input: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> Tensor:
    """`batch_norm` with statistics that are given."""
    ndim = input.spec.ndim
    factor = 1 / sqrt(upcast(running_var) + eps)
    factor = factor if weight is None else factor * weight
    shift = -running_mean * factor if bias is None else bias - running_mean * factor
    return _affine(input, _channels(factor, ndim), _channels(shift, ndim)).to(input.dtype)


@lru_cache(256)
def _check_batch_norm(
    input: Spec, running_mean: Spec | None, running_var: Spec | None, weight: Spec | None, bias: Spec | None
) -> None:
    floating("batch_norm", input, running_mean, running_var, weight, bias)
    _check_channels("batch_norm", input, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)


@public(method=False)
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-05,
) -> Tensor:
    """(input - mean) / sqrt(variance + eps) * weight + bias for each channel (Ioffe and Szegedy, 2015): (n, c, ...).

    training: take mean and variance of this batch, and move the running ones, in place, by `momentum` towards them
    (towards the unbiased variance). Otherwise take the running ones, `running_mean` and `running_var`. All but input
    are (c). Shape and dtype kept. Raises ShapeError for shapes that do not fit, for training on one value a channel,
    and without running statistics where they are needed; DTypeError unless all are floating.
    """
    if input.spec.ndim == 1 and not input.spec.numel:  # as PyTorch has it, no values of no channels
        rest = running_mean, running_var, weight, bias, training, momentum, eps
        return batch_norm(input.reshape(0, 0), *rest).reshape(0)
    specs = [input.spec, *[None if x is None else x.spec for x in (running_mean, running_var, weight, bias)]]
    try:
        _check_batch_norm(*specs)
    except TakenOver:
        _check_batch_norm.__wrapped__(*specs)
    if not training:
        if running_mean is None or running_var is None:
            raise ShapeError("batch_norm(): needs running_mean and running_var unless training")
        if is_recording() and any(x is not None and x.requires_grad for x in (input, weight, bias)):
            # The gradient is of these, though training may move them before it is wanted.
            running_mean, running_var = running_mean.clone(), running_var.clone()
        return _batch_norm_running(input, running_mean, running_var, weight, bias, eps)
    count = input.spec.numel // max(input.spec.shape[1], 1)
    if count <= 1 and input.spec.numel:
        raise ShapeError(f"batch_norm(): training needs more than one value a channel, got {tuple(input.spec.shape)}")
    out, batch_mean, batch_var = _batch_norm(input, weight, bias, eps)
    moved = [pair for pair in ((running_mean, batch_mean), (running_var, batch_var)) if pair[0] is not None]
    if moved and count:  # of no values there is no mean to move towards
        update_averages_(*zip(*moved, strict=True), weight=momentum)
    return out
