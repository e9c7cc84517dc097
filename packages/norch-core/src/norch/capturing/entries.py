"""What a captured step knows of a signature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .backwards import Backwards
from .counters import Counter
from .families import Family
from .program import Program
from .recorder import Recorder
from .returned import Apart, Known


class Entry:
    """What is known of a signature: its programs; or what was recorded of it; or why it is not replayed.

    again: the call at which a refused one is tried again. waiting: why the last recording has become no program.
    """

    def __init__(self, key: Any, signature: str, family: Family, leaves: Sequence[Any]) -> None:
        self.key, self.signature, self.family = key, signature, family
        self.judged = False
        """Whether its family knows what came of it."""
        self.known = Known(leaves)
        self.calls = self.recordings = self.changes = self.disturbed = self.again = 0
        self.lived = 0
        """About how often it was called without being replayed, those calls too that were not looked at."""
        self.recorded: tuple[Recorder, Any, Any] | None = None
        self.programs: list[tuple[Program, Any]] = []
        self.refusal: str | None = None
        self.waiting: str | None = None
        self.moves = -1
        self.traces = False
        """Whether floats among the arguments may be others at each call."""
        self.backwards: Backwards | None = None
        self.counters: tuple[Counter, ...] = family.counters
        self.inherited: list[Program] = []
        """Those of a signature like this one, with objects that are gone. unlike: recordings that were none of them."""
        self.unlike = 0
        self.ready: tuple[Any, ...] | None = None
        """What a program will be made of once the backward passes through the results have been recorded too."""

    @property
    def first(self) -> int:
        """The first call that is recorded."""
        if self.inherited:
            return 1
        return 2 if self.recorded is not None else self.family.first()

    def counts(self) -> list[Any]:
        """What the counters are now. Where there are others than before, none is followed, and there is no program."""
        found = [counter.value(self.known) for counter in self.counters]
        if None in found:
            self.counters, self.programs = (), []
            self.begin_again()
            return []
        return found

    def follow(self, counters: tuple[Counter, ...]) -> None:
        """Has integers that the step changes followed, in signatures like this one too."""
        self.counters = self.family.counters = counters
        self.begin_again()

    def take_apart(self, out: Any) -> Apart:
        """What a run returned. An object that another run has returned too was there before."""
        apart = Apart(out, self.known)
        before = () if self.recorded is None else self.recorded[2]
        again = {id(thing): thing for weak in before if (thing := weak()) is not None}
        found = [thing for weak in apart.objects if (thing := weak()) is not None and id(thing) in again]
        if not found:
            return apart
        for thing in found:
            self.known.add(thing)
        return Apart(out, self.known)

    def came_to(self, replays: int, why: str) -> None:
        """Tells its family, the first time."""
        if not self.judged:
            self.judged = True
            self.family.came_to(replays, why)

    def begin_again(self) -> None:
        self.recorded, self.recordings, self.ready = None, 0, None
