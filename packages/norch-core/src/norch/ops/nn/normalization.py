"""Normalisation: to mean 0 and variance 1, or to norm 1."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

from ...dtype import finfo, result_dtype
from ...errors import ShapeError, differing, drawn
from ...spec import Shape, Spec, as_shape, image_layout
from ...tensor_base import TakenOver
from ..copying import like_images
from ..elementwise.arithmetic import sqrt
from ..families import accepts_axis, composite, floating
from ..reduction.norms import norm
from ..reduction.reductions import mean
from ..reduction.variance import centred
from ..registry import public
from ..shape.views import broadcast_tensors, expand
from ..upcast import upcast, upcast_dtype

if TYPE_CHECKING:
    from ...tensor import Tensor

# The gradients are composites as well, so that a backend may have a kernel for each. They have no rules of their own:
# where the backward pass is recorded, they are differentiated through their parts.

Gradients = tuple["Tensor | None", "Tensor | None", "Tensor | None"]


def _standardize(x: Tensor, dims: list[int], eps: float, is_centred: bool = True) -> tuple[Tensor, Tensor]:
    """(x - mean) / sqrt(variance + eps) over `dims`, and the factor 1 / sqrt(variance + eps).

    Unless `is_centred` the mean is taken for 0, which leaves the root mean square.
    """
    if is_centred:
        x = centred(x, dims)
    factor = 1 / sqrt(mean(x * x, dims, True) + eps)
    return x * factor, factor


def _standardize_grad(g: Tensor, x: Tensor, factor: Tensor, dims: list[int], is_centred: bool = True) -> Tensor:
    """The gradient of what was standardized to `x`: without g's parts along 1 (if `is_centred`) and along x."""
    rest = g - mean(g, dims, True) if is_centred else g
    return (rest - x * mean(g * x, dims, True)) * factor


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    out = x if weight is None else x * weight
    return out if bias is None else out + bias


def _channels(x: Tensor | None, ndim: int) -> Any:
    """A (c) tensor in a shape that broadcasts to (n, c, ...)."""
    return None if x is None else x.reshape((-1, *(1,) * (ndim - 2)) if x.spec.numel else (0, *(1,) * (ndim - 2)))


def _check_channels(op: str, input: Spec, **given: Spec | None) -> None:
    if input.ndim < 2:
        raise ShapeError(f"{op}(): expected input (n, c, ...), got shape {tuple(input.shape)}")
    for name, spec in given.items():
        if spec is not None and tuple(spec.shape) != (input.shape[1],):
            raise ShapeError(
                f"{op}(): {name} {tuple(spec.shape)} does not fit the {input.shape[1]} channels of input "
                f"{tuple(input.shape)}" + drawn(("input", input.shape, (1,)), (name, spec.shape, (0,)))
            )


# --- Over the last dims ---------------------------------------------------------------------------------------------


def _check_last_dims(op: str, input: Spec, shape: Shape, *given: Spec | None) -> Spec:
    floating(op, input, *given)
    if not shape or tuple(input.shape[input.ndim - len(shape) :]) != shape or len(shape) > input.ndim:
        marks = differing(input.shape[-len(shape) :], shape) if shape else ()
        raise ShapeError(
            f"{op}(): input {tuple(input.shape)} does not end in normalized_shape {shape}"
            + drawn(("input", input.shape, marks), ("normalized_shape", shape, marks))
        )
    for spec in given:
        if spec is not None and tuple(spec.shape) != shape:
            raise ShapeError(f"{op}(): weight or bias {tuple(spec.shape)} is not of normalized_shape {shape}")
    return input.like()


def _infer_layer_norm(input: Spec, shape: Shape, weight: Spec | None, bias: Spec | None, eps: float) -> Spec:
    return _check_last_dims("layer_norm", input, shape, weight, bias)


def _infer_layer_norm_grad(
    grad: Spec, input: Spec, shape: Shape, weight: Spec | None, eps: float, affine: bool
) -> tuple[Spec, ...]:
    return (input.like(), *[input.like(shape, dtype=upcast_dtype(input.dtype))] * 2) if affine else (input.like(),)


@composite(_infer_layer_norm_grad)
def layer_norm_grad(grad: Tensor, input: Tensor, shape: Shape, weight: Tensor | None, eps: float, affine: bool) -> Any:
    """The gradient of layer_norm's input, and if `affine` those of weight and bias."""
    dims, lead, g = _last_dims(shape), list(range(input.spec.ndim - len(shape))), upcast(grad)
    x, factor = _standardize(upcast(input), dims, eps)
    grad_input = _standardize_grad(g if weight is None else g * weight, x, factor, dims).to(input.dtype)
    return (grad_input, _sum(g * x, lead), _sum(g, lead)) if affine else grad_input


def _last_dims(shape: Shape) -> list[int]:
    return list(range(-len(shape), 0))


def _sum(x: Tensor, dims: list[int]) -> Tensor:
    return x.sum(dims) if dims else x


def _layer_norm_rule(
    g: Tensor, input: Tensor, shape: Shape, weight: Tensor | None, eps: float, needs: tuple[bool, ...]
) -> Gradients:
    if needs[1] or needs[2]:
        return layer_norm_grad(g, input, shape, weight, eps, True)  # type: ignore[no-any-return]
    return layer_norm_grad(g, input, shape, weight, eps, False), None, None


@composite(_infer_layer_norm, _layer_norm_rule, name="layer_norm", joint=True)
def _layer_norm(input: Tensor, shape: Shape, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    x, _ = _standardize(upcast(input), _last_dims(shape), eps)
    return _affine(x, weight, bias).to(input.dtype)


@public(method=False)
def layer_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-05
) -> Tensor:
    """(input - mean) / sqrt(variance + eps) * weight + bias over the last dims (Ba et al., 2016). Shape and dtype kept.

    normalized_shape: the sizes of those dims; weight and bias have it too. Raises ShapeError where input does not end
    in it, DTypeError unless all are floating.
    """
    return _layer_norm(input, as_shape(normalized_shape, "layer_norm"), weight, bias, eps)


def _infer_rms_norm(input: Spec, shape: Shape, weight: Spec | None, eps: float) -> Spec:
    return _check_last_dims("rms_norm", input, shape, weight)


def _infer_rms_norm_grad(
    grad: Spec, input: Spec, shape: Shape, weight: Spec | None, eps: float, affine: bool
) -> tuple[Spec, ...]:
    return (input.like(), input.like(shape, dtype=upcast_dtype(input.dtype))) if affine else (input.like(),)


@composite(_infer_rms_norm_grad)
def rms_norm_grad(grad: Tensor, input: Tensor, shape: Shape, weight: Tensor | None, eps: float, affine: bool) -> Any:
    """The gradient of rms_norm's input, and if `affine` that of weight."""
    dims, lead, g = _last_dims(shape), list(range(input.spec.ndim - len(shape))), upcast(grad)
    x, factor = _standardize(upcast(input), dims, eps, is_centred=False)
    grad_input = _standardize_grad(g if weight is None else g * weight, x, factor, dims, is_centred=False).to(
        input.dtype
    )
    return (grad_input, _sum(g * x, lead)) if affine else grad_input


def _rms_norm_rule(
    g: Tensor, input: Tensor, shape: Shape, weight: Tensor | None, eps: float, needs: tuple[bool, ...]
) -> tuple[Tensor | None, Tensor | None]:
    if needs[1]:
        return rms_norm_grad(g, input, shape, weight, eps, True)  # type: ignore[no-any-return]
    return rms_norm_grad(g, input, shape, weight, eps, False), None


@composite(_infer_rms_norm, _rms_norm_rule, name="rms_norm", joint=True)
def _rms_norm(input: Tensor, shape: Shape, weight: Tensor | None, eps: float) -> Tensor:
    x, _ = _standardize(upcast(input), _last_dims(shape), eps, is_centred=False)
    return _affine(x, weight, None).to(input.dtype)


@lru_cache(64)
def _epsilon(input: Spec) -> float:
    floating("rms_norm", input)
    return finfo(upcast_dtype(input.dtype)).eps


@public(method=False)
def rms_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """input / sqrt(mean(input ** 2) + eps) * weight over the last dims (Zhang and Sennrich, 2019). Shape, dtype kept.

    eps: that of the dtype by default, float32 for 16-bit ones. Raises as layer_norm does.
    """
    if eps is None:
        try:
            eps = _epsilon(input.spec)
        except TakenOver:
            eps = _epsilon.__wrapped__(input.spec)
    return _rms_norm(input, as_shape(normalized_shape, "rms_norm"), weight, eps)


# --- Over channels --------------------------------------------------------------------------------------------------


def _infer_group_norm(input: Spec, groups: int, weight: Spec | None, bias: Spec | None, eps: float) -> Spec:
    floating("group_norm", input, weight, bias)
    _check_channels("group_norm", input, weight=weight, bias=bias)
    if groups < 1 or input.shape[1] % groups:
        raise ShapeError(f"group_norm(): {input.shape[1]} channels of {tuple(input.shape)} are not {groups} groups")
    return input.like(input.shape, image_layout(input.shape, input))


def _grouped(x: Tensor, groups: int) -> Tensor:
    n, *rest = x.spec.shape
    return x.reshape(n, groups, prod(rest) // groups)


def _infer_group_norm_grad(grad: Spec, input: Spec, groups: int, weight: Spec | None, eps: float) -> tuple[Spec, ...]:
    channels = input.like((input.shape[1],), dtype=upcast_dtype(input.dtype))
    return input.like(input.shape, image_layout(input.shape, input)), channels, channels


@composite(_infer_group_norm_grad)
def group_norm_grad(
    grad: Tensor, input: Tensor, num_groups: int, weight: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of group_norm's input, weight and bias."""
    shape, ndim, g = input.spec.shape, input.spec.ndim, upcast(grad)
    x = _grouped(upcast(input), num_groups)
    dims, size = [0, *range(2, ndim)], tuple(x.spec.shape[2:])
    part = _grouped(g if weight is None else g * _channels(weight, ndim), num_groups)
    grad_input = layer_norm_grad(part, x, size, None, eps, False).reshape(shape)
    grad_weight = (g * _layer_norm(x, size, None, None, eps).reshape(shape)).sum(dims)
    return like_images(grad_input, input).to(input.dtype), grad_weight, g.sum(dims)


def _group_norm_rule(g: Tensor, input: Tensor, num_groups: int, weight: Tensor | None, eps: float) -> Gradients:
    return group_norm_grad(g, input, num_groups, weight, eps)


@public(method=False)
@composite(_infer_group_norm, _group_norm_rule, joint=True)
def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-05
) -> Tensor:
    """`layer_norm` of each of `num_groups` groups of channels (Wu and He, 2018): (n, c, ...), shape and dtype kept.

    weight, bias: (c). Raises ShapeError where the groups do not divide the channels, DTypeError unless all floating.
    """
    ndim, x = input.spec.ndim, _grouped(upcast(input), num_groups)
    x = like_images(_layer_norm(x, tuple(x.spec.shape[2:]), None, None, eps).reshape(input.spec.shape), input)
    return _affine(x, _channels(weight, ndim), _channels(bias, ndim)).to(input.dtype)


# --- To norm 1 ------------------------------------------------------------------------------------------------------


@public(method=False)
@accepts_axis
def normalize(input: Tensor, p: float = 2.0, dim: Any = 1, eps: float = 1e-12) -> Tensor:
    """input / max(norm, eps), the norm being the `p`-norm along `dim`. Raises DTypeError unless floating."""
    floating("normalize", input.spec)
    return input / expand(norm(input, p, dim, True).clamp(eps), tuple(input.spec.shape))


@public(method=False)
@accepts_axis
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-08) -> Tensor:
    """x1 @ x2 / (max(|x1|, eps) * max(|x2|, eps)) of the vectors along `dim`, which is reduced.

    The two broadcast. Raises DTypeError unless they promote to a floating dtype, ShapeError for shapes that do not
    broadcast.
    """
    dtype = result_dtype([(x.spec.dtype, x.spec.ndim) for x in (x1, x2)])
    if not dtype.is_floating_point:
        floating("cosine_similarity", x1.spec, x2.spec)  # raises
    a, b = broadcast_tensors(upcast(x1.to(dtype)), upcast(x2.to(dtype)))
    a, b = (x / norm(x, 2, dim, True).clamp(eps) for x in (a, b))  # products of large numbers would overflow
    return (a * b).sum(dim).to(dtype)
