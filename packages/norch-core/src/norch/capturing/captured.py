"""What `norch.capture` returns: a step that is run, recorded twice, and from then on replayed."""

from __future__ import annotations

import sys
import warnings
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import update_wrapper
from math import isfinite
from threading import Lock, active_count, get_ident
from types import MethodType
from typing import TYPE_CHECKING, Any

from .. import switches
from ..amp.state import state as autocast
from ..autograd import graph
from ..autograd.graph import Leaf, is_recording, resolve
from ..dispatch.traced import Trace, Traced, plain
from ..errors import CaptureError
from ..func.trees import flatten, unflatten
from ..observing import CAPTURED, observable
from ..ops.generator import chosen_generator
from ..tensor_base import TensorBase
from . import recording
from .attributes import attributes_of, holders_in
from .backwards import Backwards
from .batches import batches
from .building import builder_of, caller_of, is_plain, putting, with_traced
from .checks import next_check
from .comparing import Differs, compare
from .entries import Entry
from .epilogues import epilogues
from .forwards import ForwardProgram, Live
from .fusion import fuse
from .graphs import GraphNode, StepGraph, attach, entered, is_live, with_bases
from .in_place import in_place
from .keeping import containers, counts_of, holders_of, kept_elsewhere
from .norms import norms
from .parts import LAST, SOMEWHERE, Parts, line_of
from .program import Program
from .recorder import Recorder
from .results import is_differentiated
from .signatures import VALUES, canonically, described, key_of, modes, with_floats
from .slices import slices

if TYPE_CHECKING:
    from ..tensor import Tensor
    from .report import Report

MOST_PROGRAMS = 8
MOST_SIGNATURES = 32
"""Signatures without a program that are remembered."""
MOST_RECORDINGS = 4
"""Recordings of a signature, of which two must be the same."""
MOST_CHANGES = 16
"""How often a signature is captured again that has hardly been replayed in between."""

_NUMBERS = (int, float)


class Captured:
    """A step and its programs, one for each signature."""

    def __init__(
        self,
        function: Callable[..., Any],
        fullgraph: bool,
        source: Any = None,
        refused: Callable[[int | None, Sequence[int]], None] | None = None,
    ) -> None:
        """source: the function or method that `function` runs, if it is none itself. refused: of a part of a step, what
        is told where it was refused: the line, or which of its results no replay can return."""
        update_wrapper(self, function, updated=())
        self.function, self.fullgraph, self.refused = function, fullgraph, refused
        self.source = function if source is None else source
        self.parts: Parts | None = None
        self.entries: OrderedDict[Any, Entry] = OrderedDict()
        self.by_value: dict[Any, None] = {}
        """Signatures of which each float has a program of its own, since Python needs to know it."""
        self.fast: dict[Any, Entry] = {}
        """Entries whose arguments are tensors alone, by what can be asked of these quickly."""
        self.lock = Lock()
        self.running: int | None = None
        """The thread that replays."""
        self.latest: Entry | None = None
        self.captured_again: deque[str] = deque(maxlen=20)
        self.eager = self.recorded = self.replayed = 0

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> Any:
        found: Any = sys.modules.get(getattr(self, "__module__", None) or "")
        name = getattr(self, "__qualname__", None) or "?"
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is self:
            return name  # a decorated function of a module
        return type(self), (self.function, self.fullgraph)

    @observable(CAPTURED)
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            entry = self.fast.get((*[x.spec for x in args], is_recording(), switches.fingerprint))
        except (AttributeError, TypeError):
            entry = None
        if (
            entry is None
            or kwargs
            or entry.moves != switches.moves
            or autocast.active is not None
            or recording.active is not None
            or chosen_generator.get() is not None
            or self.running == get_ident()
        ):
            return self._slowly(args, kwargs)
        for x in args:
            if x.node is not None and resolve(x) is not None:
                return self._slowly(args, kwargs)
        with self.lock:  # Ctrl-C would come between a call of acquire() and a try
            try:
                self.running = get_ident()
                if entry is not self.latest:
                    self.entries.move_to_end(entry.key)
                    self.latest = entry
                program, build = entry.programs[0]
                if (
                    program.runs < program.check
                    and (len(args) < 2 or len({id(x.buffer) for x in args}) == len(args))
                    and program.fits_all(args)
                ):
                    return build(program.run_step(args, ()))
            except (IndexError, KeyError):
                if entry.programs and entry.key in self.entries:
                    raise
            finally:
                self.running = None
        return self._slowly(args, kwargs)

    def report(self, timed: bool = False) -> Report:
        """How often the step ran in which way, its programs, and what was in the way; print it.

        timed: runs each kernel of each program once more, on memory of its own, for how long it takes.
        """
        from .report import make_report

        return make_report(self, timed)

    def _slowly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if recording.recorder_here() is not None or self.running == get_ident():
            return self.function(*args, **kwargs)  # a part of a step that is being recorded
        if graph.anomaly_check is not None:  # which reads values, and looks at every op
            self.eager += 1
            return self.function(*args, **kwargs)
        if (elsewhere := recording.active) is not None:
            elsewhere.others = True
        leaves, structure = flatten((args, kwargs))
        tensors: list[Any] = [x for x in leaves if isinstance(x, TensorBase)]
        if any(x.apply_function is not None for x in tensors):
            return self.function(*args, **kwargs)  # tensors that stand for others, such as vmap's
        numbers = [x if type(x) in _NUMBERS else None for x in leaves]
        with self.lock:
            self.running = get_ident()
            try:
                entry = self._entry(leaves, structure)
                found = self._program(entry, tensors, numbers)
                if entry.ready is not None and entry.refusal is None:
                    self._complete(entry, args, kwargs, leaves, structure)
                    found = self._program(entry, tensors, numbers)
                if found is not None and found[0].runs < found[0].check:
                    return found[1](found[0].run_step(tensors, numbers))
                entry.calls += 1
                if entry.refusal is not None and entry.calls >= entry.again:
                    entry.refusal = None
                    entry.begin_again()
                now = found is not None or (entry.calls > 1 and entry.refusal is None)
                if self.fullgraph and entry.refusal is not None:
                    raise CaptureError(f"capture(): {entry.refusal}")
            finally:
                self.running = None
        turn = object()
        try:
            if now and recording.take(turn):
                if found is not None:
                    found[0].give_back()
                with canonically(tensors):
                    return self._record(entry, found, args, kwargs, tensors, numbers)
        finally:
            if recording.turn is turn:
                recording.turn = None
        self.eager += 1
        if self.parts is not None and entry.refusal is not None and (run := self.parts.run) is not None:
            return run(*args, **kwargs)
        return self.function(*args, **kwargs)

    # --- Which program ------------------------------------------------------------------------------------------------

    def _entry(self, leaves: list[Any], structure: Any) -> Entry:
        key = key_of(leaves, structure)
        by_value = key in self.by_value
        if by_value:
            key = with_floats(key, leaves)
        entry = self.entries.get(key)
        if entry is None:
            entry = self.entries[key] = Entry(key, described(leaves, by_value))
            entry.traces = not by_value and any(type(x) is float and isfinite(x) for x in leaves)
            self._make_room()
        self.entries.move_to_end(key)
        self.latest = entry
        return entry

    def _make_room(self) -> None:
        """Drops the least recently used signatures, where there are too many with a program, or without."""
        for most, has in ((MOST_PROGRAMS, True), (MOST_SIGNATURES, False)):
            same = [key for key, entry in self.entries.items() if bool(entry.programs) is has]
            if len(same) > most:
                self._drop(self.entries.pop(same[0]))

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
        if entry.changes >= MOST_CHANGES:
            entry.changes = 0
            self._refuse(entry, f"{why}, again and again")

    def _refuse(self, entry: Entry, why: str) -> None:
        entry.refusal, entry.again = why, next_check(entry.calls)
        entry.begin_again()

    def _give_each_a_program(self, entry: Entry, why: str) -> None:
        """Has each value of the floats that the step is called with recorded for itself."""
        self.captured_again.append(f"{entry.signature}: for each float by itself, since {why}")
        self._drop(entry)
        self.entries.pop(entry.key, None)
        self.by_value[entry.key] = None
        if len(self.by_value) > MOST_SIGNATURES:
            del self.by_value[next(iter(self.by_value))]

    def _take_apart(self, why: str, at: int | None, values: Sequence[Any] = ()) -> None:
        """Says where a step, or a part of one, was refused, so that it runs in parts from now on."""
        if at is None:
            at = line_of(why, getattr(self.source, "__code__", None))
        if self.refused is not None:
            odd = [i for i, value in enumerate(values) if not all(map(is_plain, flatten(value)[0]))]
            self.refused(at if at is not None and at > 0 else None, odd if at == LAST else ())
        elif at is not None:
            if self.parts is None:
                self.parts = Parts(self.source, lambda function, refused: Captured(function, False, None, refused))
            self.parts.refuse(at)

    # --- Recording ----------------------------------------------------------------------------------------------------

    def _record(
        self,
        entry: Entry,
        program: tuple[Program, Any] | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tensors: list[Tensor],
        numbers: list[Any],
    ) -> Any:
        self.recorded += 1
        trace = Trace()
        if entry.traces:
            args, kwargs = with_traced((args, kwargs), trace)
        counts = counts_of(tensors)
        recorder = Recorder(tensors, self.fullgraph)
        recorder.given, recorder.trace = numbers, trace
        recorder.code = getattr(self.source, "__code__", None)
        # Where other threads run, tuples that they are building must not be held even for a moment.
        held = (holders_of(tensors), counts) if is_recording() and active_count() == 1 else None
        before, as_they_were = [t.buffer.modified for t in tensors], modes()
        fingerprint = switches.fingerprint
        casts, autocast.cache = autocast.cache, None  # what autocast keeps from this run is none of the next
        graph = None
        try:
            with recording.recording(recorder), recorder.trace, entered(tensors, recorder) as entrances:
                out = self.function(*args, **kwargs)
                autocast.cache = None
                leaves, structure = flatten(out)
                if entry.traces and any(type(x) is Traced for x in leaves):
                    leaves = [plain(x, "it returns one") for x in leaves]
                    out = unflatten(structure, leaves)
                made = with_bases([x for x in leaves if isinstance(x, TensorBase)], recorder.was_there)
                live = [i for i, t in enumerate(made) if is_live(t, recorder)]
                differentiated = [is_differentiated(t, recorder.start) for t in made]
                if live:
                    graph = StepGraph([made[i] for i in live], entrances, recorder.start, recorder.was_there)
                within = [t.base for t in made if t.base is not None] + ([] if graph is None else graph.tensors)
                recorder.finish(made, within)
        finally:
            autocast.cache = casts
        own = [t for t in (*made, *within) if not recorder.was_there(t)]
        lists = leaves, made, within, own, *containers(out)
        recorder.kept += kept_elsewhere(own, graph, id(out), lists)
        attributes = None
        if recorder.kept and graph is None:
            attributes = attributes_of(recorder.kept, [*lists, lists])
        if attributes and not any(is_live(a.tensor, recorder) for a in attributes):
            leaves, structure = flatten((out, [a.tensor for a in attributes]))
            made = with_bases([x for x in leaves if isinstance(x, TensorBase)], recorder.was_there)
            differentiated = [is_differentiated(t, recorder.start) for t in made]
            recorder.finish(made, within)
            own = [t for t in (*made, *within) if not recorder.was_there(t)]
            lists = leaves, made, within, own, *containers(out)
            recorder.kept += kept_elsewhere(own, graph, id(out), [*lists, *attributes, *holders_in(attributes)])
        found = None
        if graph is not None:
            if graph.problem is not None:
                recorder.refuse(graph.problem)
            else:
                if entry.backwards is None:
                    entry.backwards = Backwards(entry, _rewrite)
                node = GraphNode(entry.backwards, graph.ends, tensors, len(live))
                node.numbers = numbers
                found = Live(graph, made, live, tensors, recorder)
                attach(node, graph, [made[i] for i in live])
            if recorder.python:
                recorder.refuse("an optimiser makes a step, and a result is part of a graph")
            if any(type(t.node) is Leaf and not recorder.was_there(t) for t in made):
                recorder.refuse("a result is a leaf that the step makes, and another is part of a graph")
        if switches.fingerprint != fingerprint and switches.latest is not None:
            recorder.refuse(f"the step changes `{switches.latest[1]}` of a {switches.latest[0].__name__}")
        if modes() != as_they_were:
            recorder.refuse("the step leaves another mode behind")
        if any(t.buffer.modified is not m for t, m in zip(tensors, before, strict=True)):
            recorder.refuse("an argument is changed in place")
        if graph is None:
            returned = {id(t) for t in made} | {id(t.base) for t in made}
            if any(
                id(t) not in returned and m > n for t, n, m in zip(tensors, counts, counts_of(tensors), strict=True)
            ):
                recorder.refuse("an argument is kept after the step")
        elif held is not None and kept_elsewhere(tensors, graph, id(out), lists, held):
            recorder.refuse("an argument is kept after the step")
        recorder.check_left()
        others = [None if isinstance(x, TensorBase) else x for x in leaves]
        if not all(type(x) in (*VALUES, float) for x in others):
            recorder.refuse("it returns what is neither a tensor nor a number")
            recorder.at = recorder.at or LAST
        if found is not None and recorder.refusal is None:
            node.recorder = recorder
        build = builder_of(leaves, structure)
        if attributes:
            attributes = [a._replace(tensor=None) for a in attributes]  # type: ignore[arg-type]
            build = putting(build, attributes)
        graph_of_it = found and (found.described, found.live, found.bases, found.places)
        with self.lock:
            where = [(id(a.owner()), a.name) for a in attributes or ()]
            now = recorder, (repr(others), structure, graph_of_it, where)
            if self._compare(entry, program, now, differentiated, build, found):
                self._quicken(entry, args, kwargs)
            elif entry.refusal is not None:
                at = recorder.at or (None if recorder.refusal is None else SOMEWHERE)
                self._take_apart(entry.refusal, at, out if type(out) is tuple else ())
        return out

    def _quicken(self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Has calls like this one find the entry quickly, where their arguments are tensors alone."""
        if kwargs or any(not isinstance(x, TensorBase) or _in_graph(x) for x in args):
            return
        if len({id(x.buffer) for x in args}) < len(args) or chosen_generator.get() is not None:
            return
        if autocast.active is None:
            self.fast[(*[x.spec for x in args], is_recording(), switches.fingerprint)] = entry

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
            entry.waiting = "other threads compute while it is recorded"
            if entry.disturbed >= MOST_CHANGES:
                self._refuse(entry, entry.waiting)
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
            self._refuse(entry, recorder.refusal)
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
            if entry.recordings >= MOST_RECORDINGS and entry.traces and last[0].given != recorder.given:
                self._give_each_a_program(entry, str(why))
            elif entry.recordings >= MOST_RECORDINGS:
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
        self._add(entry, Program(recorder, arguments, sources, nodes, _rewrite, now, pinned), build)
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
                if entry.recordings >= 2 * MOST_RECORDINGS:
                    self._refuse(entry, entry.waiting)
                return
        backwards.of(recorder)
        again = caller_of(self.function, leaves, structure)
        made = ForwardProgram(
            recorder, arguments, sources, differentiated, _rewrite, found, backwards, again, now, pinned
        )
        self._add(entry, made, build)
        self._quicken(entry, args, kwargs)

    def _add(self, entry: Entry, program: Program, build: Any) -> None:
        program.made_of[0].forget()
        entry.programs.append((program, build))
        entry.begin_again()
        entry.waiting = None
        if len(entry.programs) > MOST_PROGRAMS:
            why = f"its calls need more than {MOST_PROGRAMS} programs, for gradients and arguments in other memory"
            self._again(entry, why, entry.programs[1:])
        entry.moves, entry.disturbed = switches.moves, 0
        self._make_room()


def _in_graph(x: Any) -> bool:
    return x.node is not None and resolve(x) is not None


def _rewrite(calls: list[Any], temporaries: dict[int, int]) -> list[Any]:
    for rewrite in (epilogues, norms, slices, fuse, in_place, batches):
        calls = rewrite(calls, temporaries)
    return calls
