"""Results that are copied into slices of a tensor are written there at once: the gradients of the parts of a split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from ..backend.contract import Operand
from .calls import Call
from .epilogues import Region, Uses, box_of, compile_on, is_dense, with_regions

WRITERS = frozenset({"scaled_dot_product_attention_grad", "scaled_dot_product_attention_sums_grad"})
"""Ops with several results, which are sums that begin with 0, so that adding 0 to one changes nothing, unless it has
underflowed to -0."""


def slices(calls: Sequence[Call], temporaries: Mapping[int, int]) -> list[Call]:
    """The same calls, without the copies of results into slices of one place that nothing else writes."""
    if not any(call.op in WRITERS for call in calls):
        return list(calls)
    uses = Uses(calls)
    changed: dict[int, Call | None] = {}
    for i, call in enumerate(calls):
        if call.op in WRITERS:
            changed.update(_written_at_once(i, calls, uses, temporaries) or {})
    found = [changed.get(i, call) for i, call in enumerate(calls)]
    return [call for call in found if call is not None]


def _written_at_once(
    i: int, calls: Sequence[Call], uses: Uses, temporaries: Mapping[int, int]
) -> dict[int, Call | None] | None:
    call, access = calls[i], uses.accesses[i]
    copies: dict[int, Call | None] = {}
    outputs: list[Region] = []
    targets: list[Region] = []
    for out in access.writes:
        touching = uses.touching[out.place]
        if out.place not in temporaries or touching[0] != i or len(touching) != 2:
            return None
        moved = _copied(out, touching[1], calls, uses)
        if moved is None:
            return None
        copies[touching[1]] = None
        outputs.append(moved)
        targets += uses.accesses[touching[1]].writes
    places = {out.place for out in outputs}
    touching = uses.touching[outputs[0].place]
    if len(places) != 1 or touching[: len(copies)] != sorted(copies) or len(copies) != len(outputs):
        return None
    rest = touching[len(copies) :]
    if any(uses.accesses[k].writes_to(outputs[0].place) for k in rest) or not _are_apart(targets, rest, uses):
        return None
    operands = (*[out.operand for out in outputs], *[region.operand for region in access.reads])
    kernel = compile_on(call, operands)
    if kernel is None:
        return None
    return {**copies, i: with_regions(call._replace(kernel=kernel), [*outputs, *access.reads])}


def _are_apart(targets: Sequence[Region], readers: Sequence[int], uses: Uses) -> bool:
    """Whether the targets are boxes of what is read of their place, none of which overlap."""
    wholes = [r for k in readers for r in uses.accesses[k].reads if r.place == targets[0].place]
    if not wholes:
        return False
    boxes = [box_of(target, wholes[0]) for target in targets]
    return all(a is not None and not any(b is None or a.overlaps(b) for b in boxes[:i]) for i, a in enumerate(boxes))


def _copied(out: Region, k: int, calls: Sequence[Call], uses: Uses) -> Region | None:
    """Where call k copies all of `out`, or its sum with 0, with the dims that `out` has."""
    call, access = calls[k], uses.accesses[k]
    is_copy = call.op == "copy" or (call.op == "add" and call.arguments[-1:] == (0,) and call.operands[-1].is_scalar)
    if not is_copy or len(access.reads) != 1 or not access.is_known:
        return None
    (target,), (source,) = access.writes, access.reads
    if target.operand.dtype is not source.operand.dtype or source.operand.dtype is not out.operand.dtype:
        return None
    if source.place != out.place or source.offset != out.offset or target.place == out.place:
        return None
    strides = _strides_in(out.operand, source.operand, target.operand)
    if strides is None:
        return None
    return Region(target.place, target.offset, out.operand._replace(strides=strides))


def _strides_in(out: Operand, source: Operand, target: Operand) -> tuple[int, ...] | None:
    """The strides of `out`, whose memory `source` shows in other dims, where that lies as `target`; None where no
    strides say it."""
    if not is_dense(out) or not is_dense(source) or prod(out.shape) != prod(source.shape):
        return None
    found = []
    for n, stride in zip(out.shape, out.strides, strict=True):
        if n == 1:
            found.append(0)
            continue
        for m, step, to in zip(source.shape, source.strides, target.strides, strict=True):
            if m != 1 and step <= stride < step * m and stride % step == 0 and stride // step * n <= m:
                found.append(stride // step * to)
                break
        else:
            return None
    return tuple(found)
