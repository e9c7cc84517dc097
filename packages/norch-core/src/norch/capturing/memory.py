"""Where temporaries lie: those that do not live at the same time share the bytes of one scratch buffer."""

from __future__ import annotations

from collections.abc import Sequence

from ..backend.contract import Place
from .calls import Call

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
