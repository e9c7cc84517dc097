"""Why a result is a view of what it was made of, or a copy."""

from __future__ import annotations

from ..spec import Shape, Spec, reshape_strides
from .storage import Layout, pairs, row_major, runs


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
        return f"{size}: {no_view(before, new.shape)}"
    if old.shape == new.shape and new.is_contiguous and not old.is_contiguous:
        return f"{size}: the strides of a contiguous {_tuple(old.shape)} are {row_major(old)}, not {old.strides}"
    return f"{size}: a copy is what was asked for"


def no_view(layout: Layout, shape: Shape) -> str:
    """Why the elements in another shape are no view: the dims that would have to merge, and where the elements are as
    far as the first uneven step."""
    run, total = runs(layout.spec)[-1][0], layout.spec.numel
    orders = [0, 1, None, run - 1, run] if run > 4 else list(range(min(total, 6)))
    places = ["..." if n is None else f"{layout.position(n):,}" for n in orders]
    if total > (orders[-1] or 0) + 1:
        places.append("...")
    (a, b), why = _in_the_way(layout.spec, shape)
    return f"dims {a} and {b} do not merge ({why}): in row-major order the elements are at {', '.join(places)}"


def _in_the_way(spec: Spec, shape: Shape) -> tuple[tuple[int, int], str]:
    """Two dims that another shape has in one, but which do not merge. The dims of both shapes are gone through in the
    smallest groups that have as many elements."""
    merging = {pair.dims: pair for pair in pairs(spec)}
    new = iter([n for n in shape if n != 1])
    size = wanted = 1
    last = -1
    for d, n in enumerate(spec.shape):
        if n == 1:
            continue
        if size == wanted:  # a group begins
            size, wanted, last = n, next(new), d
        else:
            pair = merging[last, d]
            if not pair.merges:
                return pair.dims, pair.why
            size, last = size * n, d
        while wanted < size:
            wanted *= next(new)
    raise AssertionError("no dims are in the way")


def _dims(spec: Spec) -> list[tuple[int, int]]:
    return [(n, s) for n, s in zip(spec.shape, spec.strides, strict=True) if n != 1]


def _tuple(values: tuple[int, ...]) -> str:
    return str(tuple(values))
