"""What a captured step knows of its signatures: programs, recordings that may become one, and why others do not."""

from __future__ import annotations

import warnings
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from .. import switches
from ..amp.state import state as autocast
from ..autograd.graph import is_recording, resolve
from ..errors import CaptureError
from ..ops.generator import chosen_generator
from ..tensor_base import TensorBase
from .backwards import Backwards
from .batches import batches
from .building import caller_of
from .checks import next_check
from .comparing import Differs, compare
from .entries import Entry
from .epilogues import epilogues
from .families import Family, family_of
from .forwards import ForwardProgram, Live
from .fusion import fuse
from .in_place import in_place
from .inheriting import take_over
from .norms import norms
from .parts import LAST, Parts, line_of
from .program import Program
from .recorder import Recorder
from .returned import Apart, Known
from .signatures import alike, described, key_of, mixed_key, with_floats
from .slices import slices

if TYPE_CHECKING:
    from ..tensor import Tensor

MAX_PROGRAMS = 8
MAX_SIGNATURES = 32
"""Signatures without a program that are remembered."""
MAX_FAMILIES = 64
"""Families of signatures that are remembered, as there may be one for each length of a list."""
MAX_RECORDINGS = 4
"""Recordings of a signature, of which two must be the same."""
MAX_CHANGES = 16
"""How often a signature is captured again that has hardly been replayed in between."""
_ANOTHER = "an object that it is called with is another each time"
_DISTURBED = "other threads compute while it is recorded"


class Programs:
    """The programs of a step, one for each signature."""

    def __init__(
        self,
        function: Callable[..., Any],
        fullgraph: bool,
        source: Any = None,
        refused: Callable[[int | None, Sequence[int]], None] | None = None,
    ) -> None:
        """source: the function or method that `function` runs, if it is none itself. refused: of a part of a step, what
        is told where it was refused: the line, or which of its results no replay can return."""
        self.function, self.fullgraph, self.refused = function, fullgraph, refused
        self.source = function if source is None else source
        self.parts: Parts | None = None
        self.entries: OrderedDict[Any, Entry] = OrderedDict()
        self.families: dict[Any, Family] = {}
        self.by_value: dict[Any, None] = {}
        """Signatures of which each float has a program of its own, since Python needs to know it."""
        self.fast: dict[Any, Entry] = {}
        """Entries whose arguments are tensors, values and objects, by what can be asked of these quickly."""
        self.latest: Entry | None = None
        self.captured_again: deque[str] = deque(maxlen=20)
        self.replayed = 0

    def _entry(self, leaves: list[Any], structure: Any) -> Entry:
        key = key_of(leaves, structure)
        by_value = key in self.by_value
        if by_value:
            key = with_floats(key, leaves)
        entry = self.entries.get(key)
        if entry is None:
            family = self.families.setdefault(family_of(leaves, structure), Family())
            while len(self.families) > MAX_FAMILIES:
                del self.families[next(iter(self.families))]
            entry = self.entries[key] = Entry(key, described(leaves, by_value), family, leaves)
            entry.traces = not by_value and any(type(x) is float and isfinite(x) for x in leaves)
            for old in [old for old, other in self.entries.items() if other.known.gone and other is not entry]:
                gone = self.entries[old]
                if gone.refusal is None:
                    gone.family.life = gone.lived + sum(program.runs for program, _ in gone.programs)
                if gone.programs and alike(key, old):
                    self._give_up(entry)
                    entry.inherited = [program for program, _ in gone.programs if program.can_be_inherited]
                    gone.programs = [pair for pair in gone.programs if not pair[0].can_be_inherited]
                self._remove(old, _ANOTHER)
            self._make_room()
        self.entries.move_to_end(key)
        self.latest = entry
        return entry

    def _make_room(self) -> None:
        """Drops the least recently used signatures, where there are too many with a program, or without."""
        for most, has in ((MAX_PROGRAMS, True), (MAX_SIGNATURES, False)):
            same = [key for key, entry in self.entries.items() if bool(entry.programs) is has]
            if len(same) > most:
                self._remove(same[0], f"there are more than {most} of them in turn")

    def _remove(self, key: Any, why: str) -> None:
        entry = self.entries.pop(key)
        self._give_up(entry)
        if entry.programs or entry.recorded is not None:
            entry.came_to(sum(program.runs for program, _ in entry.programs), why)
        self._drop(entry)

    def _give_up(self, entry: Entry) -> None:
        """Forgets the programs that a signature might have inherited."""
        programs, entry.inherited = entry.inherited, []
        for program in programs:
            self.replayed += program.runs
            entry.family.came_to(program.runs, _ANOTHER)

    def _inherit(self, entry: Entry, now: Any, build: Any) -> bool:
        """Whether a program of objects that are gone does what was recorded of these, and is this signature's now."""
        for program in entry.inherited:
            try:
                take_over(program, now)
            except Differs:
                continue
            entry.inherited = [other for other in entry.inherited if other is not program]
            self._add(entry, program, build)
            return True
        entry.unlike += 1
        if not entry.programs or entry.unlike >= MAX_RECORDINGS:
            self._give_up(entry)
        return False

    def _drop(self, entry: Entry, kept: Sequence[tuple[Program, Any]] = ()) -> None:
        self.replayed += sum(pair[0].runs for pair in entry.programs if pair not in kept)
        entry.programs = list(kept)
        self.fast = {known: other for known, other in self.fast.items() if other is not entry}

    def _program(self, entry: Entry, tensors: list[Tensor], numbers: list[Any]) -> tuple[Program, Any] | None:
        if entry.moves != switches.moves or any(program.gone for program, _ in entry.programs):
            entry.moves = switches.moves
            kept = [pair for pair in entry.programs if pair[0].holds()]
            if len(kept) < len(entry.programs):
                outdated = next((program.outdated for program, _ in entry.programs if program.outdated), None)
                self._again(entry, outdated or "a tensor that the step uses is another, or has other memory", kept)
                if entry.backwards is not None:
                    entry.backwards.patterns.clear()
            if entry.backwards is not None and entry.backwards.missed:
                self._drop(entry)
                entry.begin_again()
                entry.backwards.record_again()
        return next((pair for pair in entry.programs if pair[0].fits_all(tensors, numbers)), None)

    def _again(self, entry: Entry, why: str, kept: Sequence[tuple[Program, Any]]) -> None:
        self.captured_again.append(f"{entry.signature}: {why}")
        entry.changes = 0 if any(pair[0].runs > 16 for pair in entry.programs) else entry.changes + 1
        self._drop(entry, kept)
        entry.begin_again()
        if entry.changes >= MAX_CHANGES:
            entry.changes = 0
            self._refuse(entry, f"{why}, again and again")

    def _refuse(self, entry: Entry, why: str) -> None:
        self._give_up(entry)
        entry.refusal, entry.again = why, next_check(entry.calls)
        entry.came_to(0, why)
        entry.family.life = 0
        entry.begin_again()

    def _give_each_a_program(self, entry: Entry, why: str) -> None:
        """Has each value of the floats that the step is called with recorded for itself."""
        self.captured_again.append(f"{entry.signature}: for each float by itself, since {why}")
        self._drop(entry)
        self.entries.pop(entry.key, None)
        self.by_value[entry.key] = None
        if len(self.by_value) > MAX_SIGNATURES:
            del self.by_value[next(iter(self.by_value))]

    def _take_apart(self, why: str, at: int | None, values: Sequence[Any], known: Known) -> None:
        """Says where a step, or a part of one, was refused, so that it runs in parts from now on."""
        if at is None:
            at = line_of(why, getattr(self.source, "__code__", None))
        if self.refused is not None:
            odd = [i for i, value in enumerate(values) if Apart(value, known).odd()]
            self.refused(at if at is not None and at > 0 else None, odd if at == LAST else ())
        elif at is not None:
            if self.parts is None:
                made: Any = type(self)
                self.parts = Parts(self.source, lambda function, refused: made(function, False, None, refused))
            self.parts.refuse(at)

    # --- What comes of a recording ------------------------------------------------------------------------------------

    def _quicken(self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Has calls like this one find the entry quickly, where no argument is a float or a container."""
        given = (*args, *kwargs.values())
        tensors = [x for x in given if isinstance(x, TensorBase)]
        if len({id(x.buffer) for x in tensors}) < len(tensors) or any(map(_in_graph, tensors)):
            return
        if chosen_generator.get() is not None or autocast.active is not None or entry.counters:
            return
        key: Any = mixed_key(args, kwargs)
        if len(tensors) == len(args) and not kwargs:
            key = (*[x.spec for x in args], is_recording(), switches.fingerprint)
        if key is not None:
            self.fast[key] = entry

    def _compare(
        self,
        entry: Entry,
        program: tuple[Program, Any] | None,
        now: Any,
        differentiated: list[Any],
        build: Any,
        found: Live | None,
    ) -> bool:
        """What comes of a recording: nothing yet, a refusal, or a program (true). One that was there is kept or not."""
        recorder: Recorder = now[0]
        if recorder.trace.pinned is not None and recorder.refusal is None:
            self._give_each_a_program(entry, recorder.trace.pinned)
            return False
        if recorder.others and (recorder.is_ambiguous or recorder.refusal is not None):
            entry.disturbed += 1  # another thread computes, and whose doing something was cannot be told
            if entry.disturbed >= MAX_CHANGES:
                self._refuse(entry, _DISTURBED)
            elif not entry.programs:
                entry.waiting = _DISTURBED
            return False
        if program is not None:
            if program not in entry.programs:
                return False
            why = recorder.refusal
            if why is None:
                try:
                    program[0].compare(now)
                    return False
                except Differs as differs:
                    why = str(differs)
            self._again(entry, why, [pair for pair in entry.programs if pair is not program])
            warnings.warn(f"capture(): a step is not what was recorded of it, and replayed since: {why}", stacklevel=4)
        if recorder.refusal is not None:
            if recorder.again:
                entry.waiting = recorder.refusal
            else:
                self._refuse(entry, recorder.refusal)
            return False
        if found is None and entry.inherited:
            if self._inherit(entry, now, build):
                return True
            if entry.family.first() > entry.calls + 1:
                return False
        entry.recordings += 1
        last, entry.recorded = entry.recorded, now
        if last is None:
            if entry.programs:
                entry.waiting = "its programs are for other gradients, or arguments in other memory"
            return False
        try:
            if last[1] != now[1]:
                raise Differs("what it returns is not the same the second time")
            arguments, sources = compare(last[0], recorder)
        except Differs as why:
            entry.waiting = str(why)
            if entry.recordings >= MAX_RECORDINGS and entry.traces and last[0].given != recorder.given:
                self._give_each_a_program(entry, str(why))
            elif entry.recordings >= MAX_RECORDINGS or _grows(last, now):
                self._refuse(entry, str(why))
                if self.fullgraph:
                    raise CaptureError(f"capture(): {why}") from None
            return False
        same = zip(last[0].where, recorder.where, strict=True)
        pinned = [(i, *one) for i, (one, other) in enumerate(same) if one == other]
        if found is not None:
            entry.ready = now, pinned, arguments, sources, differentiated, found, build
            return False
        nodes = [0 if used else -1 for used in differentiated]
        self._add(entry, Program(recorder, arguments, sources, nodes, rewrite, now, pinned), build)
        return True

    def _complete(
        self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any], structure: Any
    ) -> None:
        """Makes the program of a step whose results are part of a graph, if what goes back through it is known."""
        backwards = entry.backwards
        assert entry.ready is not None
        assert backwards is not None
        now, pinned, arguments, sources, differentiated, found, build = entry.ready
        recorder = now[0]
        if recorder.trace.pinned is not None:
            self._give_each_a_program(entry, recorder.trace.pinned)
            return
        if backwards.refusal is not None:
            backwards.patterns.clear()
            self._refuse(entry, backwards.refusal)
            return
        if not backwards.settled():
            if backwards.patterns or not found.can_run_again:
                entry.waiting = "no backward pass goes through its results twice in the same way"
                if entry.recordings >= 2 * MAX_RECORDINGS:
                    self._refuse(entry, entry.waiting)
                return
        backwards.of(recorder)
        again = caller_of(self.function, leaves, structure)
        made = ForwardProgram(
            recorder, arguments, sources, differentiated, rewrite, found, backwards, again, now, pinned
        )
        self._add(entry, made, build)
        self._quicken(entry, args, kwargs)

    def _add(self, entry: Entry, program: Program, build: Any) -> None:
        program.made_of[0].forget()
        program.there = entry.known.weak()
        program.watch()
        entry.programs.append((program, build))
        entry.begin_again()
        entry.waiting = None
        if len(entry.programs) > MAX_PROGRAMS:
            why = f"its calls need more than {MAX_PROGRAMS} programs, for gradients and arguments in other memory"
            self._again(entry, why, entry.programs[1:])
        entry.moves, entry.disturbed = switches.moves, 0
        self._make_room()


def _grows(last: Any, now: Any) -> bool:
    """Whether the step leaves a tensor of another shape in the same attribute each time, as a growing cache."""
    specs = [[where[2] for where in recorder.results if type(where) is tuple] for recorder, *_ in (last, now)]
    return bool(now[1][3]) and last[1][3] == now[1][3] and specs[0] != specs[1]


def _in_graph(x: Any) -> bool:
    return x.node is not None and resolve(x) is not None


def backwards_of(entry: Entry) -> Backwards:
    """What is known of the backward passes through the results of a signature."""
    if entry.backwards is None:
        entry.backwards = Backwards(entry, rewrite)
    return entry.backwards


def rewrite(calls: list[Any], temporaries: dict[int, int]) -> list[Any]:
    for rewrite in (epilogues, norms, slices, fuse, in_place, batches):
        calls = rewrite(calls, temporaries)
    return calls
