"""Small calls of one kind become one call: the casts of weights that autocast makes, moving averages of batch_norms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from ..backend.contract import Operand
from ..dispatch.kernels import compile_kernel
from ..dtype import DType, float32
from .calls import Call
from .epilogues import Region, Uses, is_dense, with_regions
from .fusion import may_raise

MAX_BYTES = 1 << 26
"""Bytes of results of one call: those that are needed late are held from the first on."""


def batches(calls: Sequence[Call], temporaries: Mapping[int, int]) -> list[Call]:
    """The same calls, fewer of them where the backend has a kernel for several at once; the same bits."""
    uses = Uses(calls)
    changed: dict[int, Call | None] = {}
    _join_casts(calls, temporaries, uses, changed)
    _join_late_casts(calls, temporaries, uses, changed)
    _join_averages(calls, uses, changed)
    found = [changed.get(i, call) for i, call in enumerate(calls)]
    return [call for call in found if call is not None]


def _join_casts(
    calls: Sequence[Call], temporaries: Mapping[int, int], uses: Uses, changed: dict[int, Call | None]
) -> None:
    """Casts from float32 to 16 bits of what the step was given: each may be made as early as the first of them."""
    waiting: dict[tuple[Any, DType], list[int]] = {}

    for i, call in enumerate(calls):
        cast = _cast(i, calls, uses, temporaries)
        if cast is None:
            continue
        members = waiting.setdefault((call.device, cast.operand.dtype), [])
        if sum(_bytes(uses.accesses[k].writes[0]) for k in members) + _bytes(cast) > MAX_BYTES:
            _joined(members, members[0], calls, uses, changed)
            members.clear()
        members.append(i)
    for members in waiting.values():
        _joined(members, members[0], calls, uses, changed)


def _joined(
    members: Sequence[int], at: int, calls: Sequence[Call], uses: Uses, changed: dict[int, Call | None]
) -> None:
    """Puts one call in the place of call `at` for these casts."""
    if len(members) < 2:
        return
    regions = [uses.accesses[i].writes[0] for i in members] + [uses.accesses[i].reads[0] for i in members]
    call, attrs = calls[at], {"count": len(members)}
    operands: tuple[Operand, ...] = tuple([region.operand for region in regions])
    kernel = compile_kernel("casts", call.device, operands, attrs, False)
    if kernel is not None:
        changed.update(dict.fromkeys(members))
        changed[at] = with_regions(call._replace(op="casts", attrs=attrs, kernel=kernel), regions)


def _join_late_casts(
    calls: Sequence[Call], temporaries: Mapping[int, int], uses: Uses, changed: dict[int, Call | None]
) -> None:
    """Casts to float32 from 16 bits, gradients of weights: each may wait until something needs one of them."""
    waiting: dict[tuple[Any, DType], list[int]] = {}

    def join(members: list[int]) -> None:
        _joined(members, max(members, default=0), calls, uses, changed)
        members.clear()

    for i, call in enumerate(calls):
        access = uses.accesses[i]
        touched = {region.place for region in (*access.writes, *access.reads)}
        for members in waiting.values():
            both = [(uses.accesses[k].writes[0].place, uses.accesses[k].reads[0].place) for k in members]
            if any(result in touched or access.writes_to(source) for result, source in both):
                join(members)
        if call.op != "copy" or not access.is_known or len(access.reads) != 1:
            continue
        (result,), (source,) = access.writes, access.reads
        dtype = source.operand.dtype
        if result.operand.dtype is not float32 or dtype is None or dtype.itemsize != 2 or not dtype.is_floating_point:
            continue
        is_alike = source.operand.strides == result.operand.strides and is_dense(source.operand)
        if is_alike and {source.place, result.place} <= temporaries.keys() and uses.touching[result.place][0] == i:
            waiting.setdefault((call.device, dtype), []).append(i)
    for members in waiting.values():
        join(members)


def _cast(i: int, calls: Sequence[Call], uses: Uses, temporaries: Mapping[int, int]) -> Region | None:
    """What call i writes, if it casts memory that is as it was when the step began."""
    call, access = calls[i], uses.accesses[i]
    if call.op != "copy" or not access.is_known or len(access.reads) != 1:
        return None
    (result,), (source,) = access.writes, access.reads
    to = result.operand.dtype
    if source.operand.dtype is not float32 or to is None or to.itemsize != 2 or not to.is_floating_point:
        return None
    if source.operand.strides != result.operand.strides or not is_dense(source.operand):
        return None
    if source.place in temporaries or result.place not in temporaries or uses.touching[result.place][0] != i:
        return None
    earlier = [k for k in uses.touching[source.place] if k < i]
    return None if any(uses.accesses[k].writes_to(source.place) for k in earlier) else result


def _bytes(region: Region) -> int:
    return prod(region.operand.shape) * region.operand.dtype.itemsize


def _join_averages(calls: Sequence[Call], uses: Uses, changed: dict[int, Call | None]) -> None:
    """Steps of moving averages, in the place of the last: nothing touches an average or its value in between."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for i, call in enumerate(calls):
        if call.op == "update_averages":
            key = call.device, call.operands[0].dtype, repr(call.arguments[4 * call.attrs["count"] :])
            groups.setdefault(key, []).append(i)
    for members in groups.values():
        last = members[-1]
        if len(members) < 2 or any(_touched(i, last, uses) for i in members):
            continue
        if any(may_raise(call) and call.op != "add" for call in calls[members[0] : last]):
            continue  # a step that raises leaves the averages as they would be
        lists: tuple[list[Operand], list[Operand]] = ([], [])
        places: tuple[list[Any], list[Any]] = ([], [])
        for i in members:
            count = calls[i].attrs["count"]
            for half, (parts, given) in enumerate(zip(lists, places, strict=True)):
                parts += calls[i].operands[half * count : (half + 1) * count]
                given += calls[i].arguments[half * 2 * count : (half + 1) * 2 * count]
        call = calls[last]
        scalars = len(call.operands) - 2 * call.attrs["count"]
        operands = (*lists[0], *lists[1], *call.operands[-scalars:])
        attrs = dict(call.attrs) | {"count": len(lists[0])}
        kernel = compile_kernel(call.op, call.device, operands, attrs, False)
        if kernel is not None:
            arguments = (*places[0], *places[1], *call.arguments[-scalars:])
            changed.update(dict.fromkeys(members))
            changed[last] = call._replace(operands=operands, arguments=arguments, attrs=attrs, kernel=kernel)


def _touched(i: int, last: int, uses: Uses) -> set[int]:
    """The calls after i, up to `last`, that touch a place that call i touches."""
    places = {region.place for region in (*uses.accesses[i].writes, *uses.accesses[i].reads)}
    return {k for place in places for k in uses.touching[place] if i < k <= last}
