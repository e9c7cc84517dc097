"""Results of elementwise calls take the place of operands that nothing reads later: memory that is in the caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from ..backend.contract import ELEMENTWISE
from ..backend.fused import FUSED_COMPOSITES
from .calls import Call
from .epilogues import Access, Region, access, is_dense, may_alias, on_places
from .memory import lifetimes

OVERWRITING = frozenset({"cross_entropy_rows_grad"})
"""Other ops whose result may be exactly one of the inputs."""


def in_place(calls: Sequence[Call], temporaries: Mapping[int, int]) -> list[Call]:
    """The same calls on fewer places.

    temporaries: by place, the bytes of buffers whose contents nobody needs after the step.
    """
    lives = lifetimes(calls)
    instead: dict[int, int] = {}
    found = []
    for i, call in enumerate(calls):
        moved = on_places(call, instead)
        if call.op in OVERWRITING or (
            (call.op in ELEMENTWISE or call.op in FUSED_COMPOSITES or call.op == "fused") and may_alias(call)
        ):
            used = access(moved)
            taken = set[int]()
            for out in used.writes if used.is_known else ():
                if out.place not in temporaries or lives[out.place][0] != i or not _is_all(out, temporaries):
                    continue
                for source in used.reads:
                    place = source.place
                    if place not in taken and lives[place][1] == i and _fits(out, source, used, temporaries):
                        taken.add(place)
                        instead[out.place] = place
                        lives[place] = lives[place][0], lives[out.place][1]
                        break
            moved = on_places(moved, instead)
        found.append(moved)
    return found


def _is_all(region: Region, temporaries: Mapping[int, int]) -> bool:
    """Whether it is all of its place."""
    operand = region.operand
    return is_dense(operand) and prod(operand.shape) * operand.dtype.itemsize == temporaries[region.place]


def _fits(out: Region, source: Region, used: Access, temporaries: Mapping[int, int]) -> bool:
    """Whether a result may lie where an operand does, which is read in no other way."""
    return (
        temporaries.get(source.place) == temporaries[out.place]
        and (source.offset, source.operand) == (out.offset, out.operand)
        and all(other == source for other in (*used.reads, *used.writes) if other.place == source.place)
    )
