"""Copies: `clone`, `contiguous`, and the write of one tensor into another's memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..dispatch.call import call_in_place, run_into, run_one
from .creation import COPY
from .registry import method, public

if TYPE_CHECKING:
    from ..spec import Spec
    from ..tensor import Tensor


def write(out: Tensor, source: Tensor) -> None:
    """Copies `source` into the memory of `out`, unrecorded."""
    run_into(COPY, out, source, out.spec.dtype, None)


def write_parts(out: Tensor, parts: Sequence[Tensor], form: Spec, places: Sequence[int]) -> None:
    """`write` of tensors of one spec into parts of `out`: views of spec `form`, that many elements from its first."""
    plan = COPY.plans["into", form, parts[0].spec, out.spec.dtype, None]
    buffer, first = out.buffer, out.offset
    for part, place in zip(parts, places, strict=True):
        call_in_place(plan, [buffer, first + place, part.buffer, part.offset])


@public()
def clone(input: Tensor, *, memory_format: object = None) -> Tensor:
    """A copy in memory of its own, through which gradients flow; laid out as `memory_format` says, if given."""
    if memory_format is not None:
        from ..memory_format import channels_behind, contiguous_format

        behind = channels_behind(input, memory_format, "clone")
        if behind is not None or memory_format is contiguous_format:
            copy: Tensor = run_one(COPY, input if behind is None else behind, None, True)
            return copy if behind is None else copy.movedim(-1, 1)
    out: Tensor = run_one(COPY, input, None, None)
    return out


@method()
def contiguous(input: Tensor, memory_format: object = None) -> Tensor:
    """The tensor itself if its elements lie in row-major order without gaps, else a copy of which that is true.

    memory_format: `norch.channels_last` (of 4 dims, or `channels_last_3d` of 5) asks for the order without dim 1, which
    then varies fastest.
    """
    if memory_format is not None:
        from ..memory_format import channels_behind

        behind = channels_behind(input, memory_format, "contiguous")
        if behind is not None:
            return input if behind.spec.is_contiguous else contiguous(behind).movedim(-1, 1)
    if input.spec.is_contiguous:
        return input
    out: Tensor = run_one(COPY, input, None, True)
    return out
