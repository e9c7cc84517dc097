"""pad: elements put around a tensor, or cut off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...dispatch.arguments import recover
from ...dispatch.op import Op
from ...dispatch.plan import Inferred, Part
from ...errors import ShapeError
from ...spec import Shape, Spec, as_int, image_layout
from ..copying import fresh, like_images
from ..creation import arange
from ..indexing import INDEX
from ..registry import FUNCTIONS, public
from .joining import cat
from .views import narrow, slice_dim

if TYPE_CHECKING:
    from ...tensor import Tensor


_FEW = 8
"""Up to so many elements are put around a dim by a copy of each slice, which is quicker than an index for each."""

_PAD_MODES = ("constant", "reflect", "replicate", "circular")


@public(method=False, check=False)
def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Elements put around the tensor, or cut off where negative: `pad` has (before, after) of the last dim first.

    mode: "constant" (`value`, 0 by default), "reflect" (mirrored, the edge not repeated), "replicate" (the edge),
    "circular" (from the other end). Raises ShapeError for pads that do not fit, ValueError for another mode.
    """
    try:
        amounts, ndim = [as_int(p, "pad", "pad") for p in pad], input.spec.ndim
    except (AttributeError, TypeError) as error:
        return recover(error, FUNCTIONS["pad"], (input, pad, mode, value), {})  # type: ignore[no-any-return]
    if len(amounts) % 2 or len(amounts) // 2 > ndim:
        raise ShapeError(f"pad(): {amounts} are not pairs for at most {ndim} dims")
    if mode not in _PAD_MODES:
        raise ValueError(f"pad(): mode must be one of {', '.join(_PAD_MODES)}, got {mode!r}")
    pairs = [(ndim - 1 - i // 2, amounts[i], amounts[i + 1]) for i in range(0, len(amounts), 2)]
    out, constant = input, {}
    for dim, before, after in pairs:
        n = out.spec.shape[dim]
        if n + before + after < 0:
            raise ShapeError(
                f"pad(): {before} and {after} cut off more than dim {dim} of shape {tuple(input.spec.shape)} has"
            )
        if mode in ("reflect", "replicate") and min(before, after) < 0 < max(before, after):
            # The end that is put on may be made of what is cut off at the other.
            out = narrow(
                _pad_by_index(out, dim, max(before, 0), max(after, 0), mode), dim, max(-before, 0), n + before + after
            )
            continue
        if before < 0 or after < 0:
            start = max(-before, 0)
            out = narrow(out, dim, start, max(n - start - max(-after, 0), 0))
            before, after = max(before, 0), max(after, 0)
        if (before or after) and mode != "constant":
            out = _pad_by_index(out, dim, before, after, mode)
        elif before or after:
            constant[dim] = before, after
    if constant:
        number = 0 if value is None else value.item() if hasattr(value, "item") else value
        out = _pad_constant(out, constant, number)
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


_PAD = Op("pad", ("x", "before", "after", "value"), 1, _infer_pad, (_pad_vjp,), kind="composite", numbers=(3,))


def _pad_constant(x: Tensor, amounts: dict[int, tuple[int, int]], value: float) -> Tensor:
    pads = [amounts.get(d, (0, 0)) for d in range(x.spec.ndim)]
    return _PAD.call(x, tuple([a for a, _ in pads]), tuple([b for _, b in pads]), value)


def _pad_by_index(x: Tensor, dim: int, before: int, after: int, mode: str) -> Tensor:
    n = x.spec.shape[dim]
    if (mode == "reflect" and max(before, after) >= n) or (mode == "circular" and max(before, after) > n) or n == 0:
        raise ShapeError(
            f"pad(): {mode} by {before} and {after} is too much for dim {dim} of shape {tuple(x.spec.shape)}"
        )
    if mode == "circular" or before + after <= _FEW:
        if mode == "circular":
            first, last = [(n - before, before)][:before], [(0, after)][:after]
        elif mode == "replicate":
            first, last = [(0, 1)] * before, [(n - 1, 1)] * after
        else:
            first, last = [(before - i, 1) for i in range(before)], [(n - 2 - i, 1) for i in range(after)]
        return cat([*[narrow(x, dim, *at) for at in first], x, *[narrow(x, dim, *at) for at in last]], dim)
    places = arange(-before, n + after, device=x.device)
    places = places.clamp(0, n - 1) if mode == "replicate" else (n - 1) - ((n - 1) - places.abs()).abs()
    return INDEX.call(x, places, dim)


def pad_end(input: Tensor, shape: Shape) -> Tensor:
    """Zeros put behind the elements of each dim, up to `shape`."""
    amounts = [a for n, m in zip(reversed(input.spec.shape), reversed(shape), strict=True) for a in (0, m - n)]
    return pad(input, amounts)
