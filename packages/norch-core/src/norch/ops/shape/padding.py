"""pad: elements put around a tensor, or cut off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...dispatch.op import Op
from ...dispatch.plan import Inferred, Part
from ...errors import ShapeError
from ...spec import Shape, Spec, as_int, image_layout
from ..copying import fresh, like_images
from ..registry import public
from .edges import pad_edges
from .views import narrow, slice_dim

if TYPE_CHECKING:
    from ...tensor import Tensor


_PAD_MODES = ("constant", "reflect", "replicate", "circular")


@public(method=False)
def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Elements put around the tensor, or cut off where negative: `pad` has (before, after) of the last dim first.

    mode: "constant" (`value`, 0 by default), "reflect" (mirrored, the edge not repeated), "replicate" (the edge),
    "circular" (from the other end). Raises ShapeError for pads that do not fit, ValueError for another mode.
    """
    amounts, ndim = [as_int(p, "pad", "pad") for p in pad], input.spec.ndim
    if len(amounts) % 2 or len(amounts) // 2 > ndim:
        raise ShapeError(f"pad(): {amounts} are not pairs for at most {ndim} dims")
    if mode not in _PAD_MODES:
        raise ValueError(f"pad(): mode must be one of {', '.join(_PAD_MODES)}, got {mode!r}")
    pairs = [(ndim - 1 - i // 2, amounts[i], amounts[i + 1]) for i in range(0, len(amounts), 2)]
    out, amounts_of = input, {}
    for dim, before, after in pairs:
        n = out.spec.shape[dim]
        if n + before + after < 0:
            raise ShapeError(
                f"pad(): {before} and {after} cut off more than dim {dim} of shape {tuple(input.spec.shape)} has"
            )
        if mode in ("reflect", "replicate") and min(before, after) < 0 < max(before, after):
            # The end that is put on may be made of what is cut off at the other.
            padded = _pad_edges(out, {dim: (max(before, 0), max(after, 0))}, mode)
            out = narrow(padded, dim, max(-before, 0), n + before + after)
            continue
        if before < 0 or after < 0:
            start = max(-before, 0)
            out = narrow(out, dim, start, max(n - start - max(-after, 0), 0))
            before, after = max(before, 0), max(after, 0)
        if before or after:
            amounts_of[dim] = before, after
    if amounts_of and mode != "constant":
        out = _pad_edges(out, amounts_of, mode)
    elif amounts_of:
        number = 0 if value is None else value.item() if hasattr(value, "item") else value
        out = PAD.call(out, *_by_dim(out, amounts_of), number)
    return fresh(like_images(out, input), input)


def _infer_pad(x: Spec, before: Shape, after: Shape, value: type) -> Inferred:
    shape = tuple([n + a + b for n, a, b in zip(x.shape, before, after, strict=True)])
    out = x.like(shape, image_layout(shape, x))
    shift = sum([a * s for a, s in zip(before, out.strides, strict=True)])
    parts = [Part("fill", out, 0, 1)]
    if x.numel:
        parts.append(Part("copy", out.like(x.shape, out.strides), shift, 0))
    return Inferred((out,), (x, (x.dtype, ())), {"before": before, "after": after}, parts=tuple(parts))


def _pad_vjp(g: Tensor, x_spec: Spec, before: Shape) -> Tensor:
    for d, (start, size) in enumerate(zip(before, x_spec.shape, strict=True)):
        if size != g.spec.shape[d]:
            g = slice_dim(g, d, start, size)
    return g


PAD = Op("pad", ("x", "before", "after", "value"), 1, _infer_pad, (_pad_vjp,), kind="composite", numbers=(3,))
"""A number put around a tensor, so many times before and after each dim."""


def _by_dim(x: Tensor, amounts: dict[int, tuple[int, int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How much comes before each dim, and after."""
    pairs = [amounts.get(d, (0, 0)) for d in range(x.spec.ndim)]
    return tuple([a for a, _ in pairs]), tuple([b for _, b in pairs])


def _pad_edges(x: Tensor, amounts: dict[int, tuple[int, int]], mode: str) -> Tensor:
    for dim, (before, after) in amounts.items():
        n, most = x.spec.shape[dim], max(before, after)
        if (mode == "reflect" and most >= n) or (mode == "circular" and most > n) or n == 0:
            raise ShapeError(
                f"pad(): {mode} by {before} and {after} is too much for dim {dim} of shape {tuple(x.spec.shape)}"
            )
    return pad_edges(x, *_by_dim(x, amounts), mode)


def pad_end(input: Tensor, shape: Shape) -> Tensor:
    """Zeros put behind the elements of each dim, up to `shape`."""
    amounts = [a for n, m in zip(reversed(input.spec.shape), reversed(shape), strict=True) for a in (0, m - n)]
    return pad(input, amounts)
