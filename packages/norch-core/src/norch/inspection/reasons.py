"""Why a result is a view of what it was made of, or a copy."""

from __future__ import annotations

from ..spec import Spec, reshape_strides
from .storage import Layout, row_major, runs


def why_view(before: Layout, after: Layout) -> str:
    """What a view changes of what it is a view of."""
    old, new = before.spec, after.spec
    if old.dtype is not new.dtype:
        return f"the same bytes, read as {new.dtype.name}"
    was, now = _dims(old), _dims(new)
    if new.numel < old.numel:
        return f"fewer of the elements, from offset {after.offset:,}; no byte moves"
    if any(n > 1 and not s for n, s in now) and new.numel > old.numel:
        return "a stride of 0 shows the same elements again; no byte moves"
    if new.numel > old.numel:
        return "windows that share their elements; no byte moves"
    if was == now:
        return "all of it as it is" if old.ndim == new.ndim else "dims of size 1 come or go"
    if sorted(was) == sorted(now):
        return "the dims change places, each with its stride; no byte moves"
    return f"the strides {_tuple(new.strides)} show the elements in the same order; no byte moves"


def why_new(before: Layout | None, after: Layout) -> str:
    """Why there is new memory. before: what was copied, None for a result that was computed."""
    size = f"{after.spec.nbytes:,} bytes"
    if before is None:
        return f"{size} of new memory"
    old, new = before.spec, after.spec
    if old.device is not new.device:
        return f"{size}: from {old.device} to {new.device}"
    if old.dtype is not new.dtype:
        return f"{size}: {new.dtype.name} takes other bytes than {old.dtype.name}"
    if old.numel == new.numel and reshape_strides(old.shape, old.strides, new.shape) is None:
        return f"{size}: {no_view(before)}"
    if old.shape == new.shape and new.is_contiguous and not old.is_contiguous:
        return f"{size}: the strides of a contiguous {_tuple(old.shape)} are {row_major(old)}, not {old.strides}"
    return f"{size}: a copy is what was asked for"


def no_view(layout: Layout) -> str:
    """Why the elements in row-major order are no view of one dim: where they are, as far as the first uneven step."""
    run, total = runs(layout.spec)[-1][0], layout.spec.numel
    orders = [0, 1, None, run - 1, run] if run > 4 else list(range(min(total, 6)))
    places = ["..." if n is None else f"{layout.position(n):,}" for n in orders]
    if total > (orders[-1] or 0) + 1:
        places.append("...")
    return f"in row-major order the elements are at {', '.join(places)}: no one stride steps through that"


def _dims(spec: Spec) -> list[tuple[int, int]]:
    return [(n, s) for n, s in zip(spec.shape, spec.strides, strict=True) if n != 1]


def _tuple(values: tuple[int, ...]) -> str:
    return str(tuple(values))
