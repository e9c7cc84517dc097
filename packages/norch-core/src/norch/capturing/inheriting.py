"""Programs that objects which are gone have left, for others like them: a cache of keys and values for each text."""

from __future__ import annotations

from typing import Any

from .comparing import Differs
from .places import STATE
from .program import Program
from .recorder import Recorder


def take_over(program: Program, now: tuple[Recorder, Any, Any]) -> None:
    """Has a program use the tensors that another recording has used in place of its own. Raises Differs where the step
    did something else in it."""
    program.compare(now, others=True)
    recorder = now[0]
    program.pinned = [(position, *recorder.where[position]) for position, *_ in program.pinned]
    program.made_of, program.recording = (recorder, *program.made_of[1:5], now, program.pinned), now
    program.owners.clear()
    for at, info in enumerate(recorder.places):
        if info.kind == STATE:
            program.hold(at, info)
    program.state = frozenset({id(b) for b in program.buffers if b is not None})
    if not program.state.isdisjoint({memory for memory, _ in recorder.where}):
        raise Differs("an argument has memory that the step uses besides")
