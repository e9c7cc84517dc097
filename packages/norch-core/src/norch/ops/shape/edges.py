"""A tensor with its own elements put around it, as `pad` does, or moved around, as `roll` does."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from ...errors import ShapeError
from ...spec import Shape, Spec, as_int, image_layout, wrap_dim
from ..copying import fresh
from ..creation import arange
from ..families import composite
from ..indexing import INDEX, gather_grad
from ..registry import public
from ..upcast import upcast
from .joining import cat
from .views import RESHAPE, narrow, reshape

if TYPE_CHECKING:
    from ...tensor import Tensor

_FEW = 8
"""Up to so many elements are put around a dim by a copy of each slice, which is quicker than an index for each."""


def _infer_edges(x: Spec, before: Shape, after: Shape, mode: str) -> Spec:
    shape = tuple([n + a + b for n, a, b in zip(x.shape, before, after, strict=True)])
    return x.like(shape, image_layout(shape, x))


def _infer_edges_grad(grad: Spec, before: Shape, after: Shape, mode: str) -> Spec:
    shape = tuple([n - a - b for n, a, b in zip(grad.shape, before, after, strict=True)])
    return grad.like(shape, image_layout(shape, grad))


def _edges_grad_vjp(g: Tensor, before: Shape, after: Shape, mode: str) -> Tensor:
    return pad_edges(g, before, after, mode)


@composite(_infer_edges_grad, {"grad": _edges_grad_vjp})
def pad_edges_grad(grad: Tensor, before: Shape, after: Shape, mode: str) -> Tensor:
    """The gradients of the places that each element was put to, added up."""
    if grad.spec.dtype.itemsize == 2:
        return pad_edges_grad(upcast(grad), before, after, mode).to(grad.spec.dtype)
    for dim, (first, last) in enumerate(zip(before, after, strict=True)):
        if first or last:
            n = grad.spec.shape[dim] - first - last
            places = _places(n, first, last, mode, grad).reshape([-1 if d == dim else 1 for d in range(grad.spec.ndim)])
            shape = tuple(grad.spec.shape)
            grad = gather_grad(grad, places.expand(shape), dim, (*shape[:dim], n, *shape[dim + 1 :]))
    return grad


def _edges_vjp(g: Tensor, before: Shape, after: Shape, mode: str) -> Tensor:
    if mode == "circular" and all(a == -b for a, b in zip(after, before, strict=True)):
        return pad_edges(g, after, before, mode)
    return pad_edges_grad(g, before, after, mode)


@composite(_infer_edges, {"x": _edges_vjp})
def pad_edges(x: Tensor, before: Shape, after: Shape, mode: str) -> Tensor:
    """`x` with its own elements around it, by mode; if "circular", as many may be cut off at an end as it has."""
    for dim, (first, last) in enumerate(zip(before, after, strict=True)):
        if first or last:
            x = _pad_dim(x, dim, first, last, mode)
    return x


def _pad_dim(x: Tensor, dim: int, before: int, after: int, mode: str) -> Tensor:
    n = x.spec.shape[dim]
    if mode == "circular":
        # Of before, what is on from the other end; of after, what is cut off there.
        parts = [(n - before, before), (max(-before, 0), n + min(before, 0) + min(after, 0)), (0, after)]
    elif before + after > _FEW:
        return INDEX.call(x, _places(n, before, after, mode, x), dim)
    elif mode == "replicate":
        parts = [(0, 1)] * before + [(0, n)] + [(n - 1, 1)] * after
    else:
        parts = [(before - i, 1) for i in range(before)] + [(0, n)] + [(n - 2 - i, 1) for i in range(after)]
    return cat([narrow(x, dim, *at) for at in parts if at[1] > 0], dim)


def _places(n: int, before: int, after: int, mode: str, x: Tensor) -> Tensor:
    """Which element of a dim of n stands at each place."""
    places = arange(-before, n + after, device=x.device)
    if mode == "reflect":
        return (n - 1) - ((n - 1) - places.abs()).abs()
    return places.clamp(0, n - 1) if mode == "replicate" else places % n


@public()
def roll(input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """The elements moved by `shifts` along `dims`, those that leave one end coming back at the other.

    Raises ShapeError for another number of shifts than dims.
    """
    if dims is None:
        if input.spec.ndim != 1:
            return reshape(roll(reshape(input, -1), shifts, 0), tuple(input.spec.shape))
        dims = 0
    by = shifts if isinstance(shifts, tuple | list) else (shifts,)
    axes = dims if isinstance(dims, tuple | list) else (dims,)
    if len(by) != len(axes):
        raise ShapeError(f"roll(): {len(by)} shifts for {len(axes)} dims")
    shape = tuple(input.spec.shape)
    start = [0] * len(shape)
    for shift, dim in zip(by, axes, strict=True):
        at = wrap_dim(dim, len(shape), "roll")
        if not shape:
            raise ShapeError("roll(): a 0-d tensor has no dim to roll along")
        start[at] = (start[at] + as_int(shift, "roll", "shift")) % shape[at] if shape[at] else 0
    if not any(start):
        return fresh(input, input)
    # Of dims behind the last one that is rolled, a step of that moves whole rows.
    last = max(d for d, n in enumerate(start) if n)
    row = prod(shape[last + 1 :])
    flat = RESHAPE.call(input, (*shape[:last], shape[last] * row)) if row > 1 else None
    if flat is not None:
        input, start = flat, [*start[:last], start[last] * row]
    out = pad_edges(input, tuple(start), tuple([-s for s in start]), "circular")
    return out if flat is None else reshape(out, shape)
