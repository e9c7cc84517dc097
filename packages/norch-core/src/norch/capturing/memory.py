"""Where temporaries lie: those that do not live at the same time share the bytes of one scratch buffer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from copy import copy
from typing import Any

from ..backend.contract import Operand, Place
from ..device import Device
from ..dispatch.kernels import compile_kernel
from ..dispatch.plan import SCALARS
from ..dtype import uint8
from .calls import Call
from .epilogues import access
from .places import CONSTANT, TEMPORARY

ALIGNMENT = 256
"""Bytes, as of memory that a device allocates: cuBLASLt chooses its algorithm by it, and so the bits of a product."""


def lifetimes(calls: Sequence[Call]) -> dict[int, tuple[int, int]]:
    """By place, the first and the last call that names it."""
    found: dict[int, tuple[int, int]] = {}
    for at, call in enumerate(calls):
        for argument in call.arguments:
            if type(argument) is Place:
                found[argument] = (found[argument][0] if argument in found else at, at)
    return found


def plan_scratch(calls: Sequence[Call], temporaries: dict[int, int]) -> tuple[dict[int, int], int]:
    """The byte at which each temporary (place number -> bytes) begins, and how many there are in all.

    First fit in the order of their first use.
    """
    lives = lifetimes(calls)
    alive: list[tuple[int, int, int]] = []  # begin, end, last call; by begin
    offsets: dict[int, int] = {}
    total = 0
    for place, (first, last) in sorted(lives.items(), key=lambda item: item[1]):
        if place not in temporaries:
            continue
        size = -(-temporaries[place] // ALIGNMENT) * ALIGNMENT
        alive = [entry for entry in alive if entry[2] >= first]
        begin, at = 0, 0
        for at, (start, end, _) in enumerate(alive):  # noqa: B007
            if start - begin >= size:
                break
            begin = max(begin, end)
        else:
            at = len(alive)
        alive.insert(at, (begin, begin + size, last))
        offsets[place] = begin
        total = max(total, begin + size)
    return offsets, total


def in_scratch(calls: Sequence[Call], offsets: dict[int, int]) -> list[Call]:
    """The calls with Place(0), at another offset, for each temporary."""
    moved = []
    for call in calls:
        arguments = list(call.arguments)
        sizes = [o.dtype.itemsize for o in call.operands if not o.is_scalar] or [1, 1]
        tensor = 0
        for at, argument in enumerate(arguments):
            if type(argument) is Place:
                if argument in offsets:
                    arguments[at] = Place(0)
                    arguments[at + 1] += offsets[argument] // sizes[tensor]
                tensor += 1
        moved.append(call._replace(arguments=tuple(arguments)))
    return moved


def copies_of_constants(places: list[Any], changed: set[int]) -> list[Call]:
    """Calls that begin a run with what the step makes of data of the host and then changes or returns: the memory is
    made anew each time, and copied from memory that is not changed. Both are put into `places`."""
    calls = []
    for at in sorted(changed):
        info = places[at]
        if info.kind != CONSTANT:
            continue
        kept, fresh = copy(info), copy(info)
        kept.buffer = info.backend.allocate(info.nbytes, info.index)
        info.backend.copy_in(kept.buffer, 0, memoryview(info.data))
        fresh.kind, fresh.buffer = TEMPORARY, None
        places[at] = fresh
        places.append(kept)
        device = Device(info.backend.device_type, info.index)
        operands = (Operand(uint8, (info.nbytes,), (1,)),) * 2
        kernel = compile_kernel("copy", device, operands, {}, True)
        arguments = (Place(at), 0, Place(len(places) - 1), 0)
        calls.append(Call("copy", operands, {}, kernel, arguments, device, "?"))  # type: ignore[arg-type]
    return calls


def filled_once(groups: Sequence[list[Call]], places: list[Any], others: Container[int]) -> list[list[Call]]:
    """The groups without the calls that only fill a few bytes with one number, such as the gradient that backward
    starts with, where no other call writes there: they are run now, and their places become constants.

    others: places that something besides the calls uses.
    """
    writers = Counter(place for group in groups for call in group for place in {r.place for r in access(call).writes})

    def runs_once(call: Call) -> bool:
        if call.op != "fill" or not call.own or type(call.arguments[-1]) not in SCALARS:
            return False
        place = call.arguments[0]
        info = places[place]
        if info.kind != TEMPORARY or info.nbytes > ALIGNMENT or writers[place] > 1 or place in others:
            return False
        info = places[place] = copy(info)
        info.kind, info.buffer = CONSTANT, info.backend.allocate(info.nbytes, info.index)
        call.kernel(info.buffer, *call.arguments[1:])
        info.backend.synchronize(info.index)
        return True

    return [[call for call in group if not runs_once(call)] for group in groups]
