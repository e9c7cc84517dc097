"""What `norch.capture` returns: a step that is run, recorded twice, and from then on replayed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import update_wrapper
from threading import Lock, active_count, get_ident
from types import MethodType
from typing import TYPE_CHECKING, Any

from .. import switches
from ..amp.state import state as autocast
from ..autograd import graph
from ..autograd.graph import Leaf, is_recording, resolve
from ..dispatch.traced import KINDS, Trace, plain
from ..errors import CaptureError
from ..func.trees import flatten
from ..observing import CAPTURED, observable
from ..ops.generator import chosen_generator
from ..tensor_base import TensorBase
from . import recording
from .attributes import attributes_of, holders_in
from .building import putting, with_traced
from .counters import Counted, count_on, counters_among
from .entries import Entry
from .forwards import Live
from .graphs import GraphNode, StepGraph, attach, entered, is_live, with_bases
from .keeping import counts_of, holders_of, holds_kept, kept_elsewhere
from .parts import LAST, SOMEWHERE
from .program import Program
from .programs import Programs, backwards_of
from .recorder import Recorder
from .results import is_differentiated
from .returned import Apart, Value, together
from .signatures import VALUES, canonically, mixed_key, modes

if TYPE_CHECKING:
    from ..tensor import Tensor
    from .report import Report

_NUMBERS = (int, float)
IDLE = 64
LOOKS = 8
"""After so many calls in a row as they are, one in so many is looked at, which takes tens of microseconds."""


class Captured(Programs):
    """A step that is called, and its programs, one for each signature."""

    def __init__(
        self,
        function: Callable[..., Any],
        fullgraph: bool,
        source: Any = None,
        refused: Callable[[int | None, Sequence[int]], None] | None = None,
    ) -> None:
        """The arguments are those of Programs."""
        update_wrapper(self, function, updated=())
        super().__init__(function, fullgraph, source, refused)
        self.lock = Lock()
        self.running: int | None = None
        """The thread that replays."""
        self.eager = self.recorded = 0
        self.idle = 0
        """Calls since the last that was recorded or replayed, where there is no program."""

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
        tensors: Sequence[Any] = args
        try:
            if kwargs:
                entry, tensors = self._quickly(args, kwargs)
            else:
                entry = self.fast.get((*[x.spec for x in args], is_recording(), switches.fingerprint))
        except AttributeError:
            entry, tensors = self._quickly(args, kwargs)
        except TypeError:
            entry = None
        if (
            entry is None
            or entry.moves != switches.moves
            or autocast.active is not None
            or recording.active is not None
            or chosen_generator.get() is not None
            or self.running == get_ident()
        ):
            return self._slowly(args, kwargs)
        for x in tensors:
            if x.node is not None and resolve(x) is not None:
                return self._slowly(args, kwargs)
        with self.lock:  # Ctrl-C would come between a call of acquire() and a try
            try:
                self.running = get_ident()
                if entry is not self.latest:
                    self.entries.move_to_end(entry.key)
                    self.latest = entry
                if len(tensors) < 2 or len({id(x.buffer) for x in tensors}) == len(tensors):
                    for program, build in entry.programs:
                        if program.fits_all(tensors):
                            if program.runs < program.check:
                                return build(program.run_step(tensors, ()))
                            break
            except KeyError:
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

    def _quickly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Entry | None, list[Any]]:
        """The entry for arguments of which some are no tensors, if it is found by little, and the tensors."""
        try:
            key = mixed_key(args, kwargs)
            entry = None if key is None else self.fast.get(key)
        except TypeError:  # specs of tensors that stand for others
            entry = None
        if entry is None:
            return None, []
        tensors = []
        for x in (*args, *kwargs.values()):
            if isinstance(x, TensorBase):
                tensors.append(x)
            elif type(x) not in VALUES and x not in entry.known:
                return None, []
        return entry, tensors

    def _slowly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if recording.recorder_here() is not None or self.running == get_ident():
            return self.function(*args, **kwargs)  # a part of a step that is being recorded
        if graph.anomaly_check is not None:  # which reads values, and looks at every op
            self.eager += 1
            return self.function(*args, **kwargs)
        if (elsewhere := recording.active) is not None:
            elsewhere.others = True
        if self.idle >= IDLE and self.idle % LOOKS:
            self.idle += 1
            self.eager += 1
            return self.function(*args, **kwargs)
        leaves, structure = flatten((args, kwargs))
        tensors: list[Any] = [x for x in leaves if isinstance(x, TensorBase)]
        if any(x.apply_function is not None for x in tensors):
            return self.function(*args, **kwargs)  # tensors that stand for others, such as vmap's
        numbers = [x if type(x) in _NUMBERS else None for x in leaves]
        with self.lock:
            self.running = get_ident()
            try:
                entry = self._entry(leaves, structure)
                numbers += entry.counts()
                found = self._program(entry, tensors, numbers)
                if entry.ready is not None and entry.refusal is None:
                    self._complete(entry, args, kwargs, leaves, structure)
                    found = self._program(entry, tensors, numbers)
                if found is not None and found[0].runs < found[0].check:
                    self.idle = 0
                    made = found[1](found[0].run_step(tensors, numbers))
                    count_on(entry.counters, entry.known, found[0].ends, numbers)
                    return made
                entry.calls += 1
                entry.lived += 1 if self.idle < IDLE else LOOKS
                if entry.refusal is not None and entry.calls >= max(entry.again, entry.first):
                    entry.refusal = None
                    entry.begin_again()
                now = found is not None or (entry.calls >= entry.first and entry.refusal is None)
                if self.fullgraph and entry.refusal is not None:
                    raise CaptureError(f"capture(): {entry.refusal}")
            finally:
                self.running = None
        turn = object()
        busy = now or self.fullgraph or any(other.programs for other in list(self.entries.values()))
        self.idle = 0 if busy else self.idle + 1
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
            self.idle = 0
            return run(*args, **kwargs)
        return self.function(*args, **kwargs)

    def _look_for_changes(
        self, entry: Entry, recorder: Recorder, before: Sequence[Value], counted: Counted, is_live: bool
    ) -> None:
        """Refuses where values in known objects are others than before. Integers are followed from the next call on."""
        before, now = counted.others(before), counted.others(entry.known.values())
        changed, found = entry.known.changed(before, now), counters_among(before, now)
        if changed is None:
            changed = counted.problem("a result is part of a graph" if is_live else recorder.trace.pinned)
        elif found and not is_live:
            recorder.again = True
            with self.lock:
                self._drop(entry)
                entry.follow((*entry.counters, *found))
        if changed is not None:
            recorder.refuse(f"the step changes {changed}")

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
        counted = Counted(entry.counters, entry.known, trace, numbers)
        objects = entry.known.values()
        fingerprint = switches.fingerprint
        casts, autocast.cache = autocast.cache, None  # what autocast keeps from this run is none of the next
        graph = None
        try:
            with (
                counted.followed(),
                recording.recording(recorder),
                recorder.trace,
                entered(tensors, recorder) as entrances,
            ):
                out = self.function(*args, **kwargs)
                autocast.cache = None
                apart = entry.take_apart(out)
                leaves = apart.leaves
                if (entry.traces or entry.counters) and any(type(x) in KINDS for x in leaves):
                    out = together(apart.structure, [plain(x, "it returns one") for x in leaves])
                    apart = entry.take_apart(out)
                    leaves = apart.leaves
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
        if entry.recorded is not None and holds_kept(apart.containers, id(out), Apart((args, kwargs), entry.known)):
            recorder.refuse("a list, a dict or an object that it returns is kept after it")
        lists = leaves, made, within, own, *apart.containers
        recorder.kept += kept_elsewhere(own, graph, id(out), lists)
        attributes = None
        if recorder.kept and graph is None:
            attributes = attributes_of(recorder.kept, [*lists, lists])
        if attributes and not any(is_live(a.tensor, recorder) for a in attributes):
            apart = entry.take_apart((out, [a.tensor for a in attributes]))
            leaves = apart.leaves
            made = with_bases([x for x in leaves if isinstance(x, TensorBase)], recorder.was_there)
            differentiated = [is_differentiated(t, recorder.start) for t in made]
            recorder.finish(made, within)
            own = [t for t in (*made, *within) if not recorder.was_there(t)]
            lists = leaves, made, within, own, *apart.containers
            recorder.kept += kept_elsewhere(own, graph, id(out), [*lists, *attributes, *holders_in(attributes)])
        found = None
        if graph is not None:
            if graph.problem is not None:
                recorder.refuse(graph.problem)
            else:
                node = GraphNode(backwards_of(entry), graph.ends, tensors, len(live))
                node.numbers = numbers
                found = Live(graph, made, live, tensors, recorder, entry.known)
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
        self._look_for_changes(entry, recorder, objects, counted, graph is not None)
        if graph is None:
            returned = {id(t) for t in made} | {id(t.base) for t in made}
            if any(
                id(t) not in returned and m > n for t, n, m in zip(tensors, counts, counts_of(tensors), strict=True)
            ):
                recorder.refuse("an argument is kept after the step")
        elif held is not None and kept_elsewhere(tensors, graph, id(out), lists, held):
            recorder.refuse("an argument is kept after the step")
        recorder.check_left()
        if apart.odd():
            recorder.refuse("it returns what is neither a tensor nor a number")
            recorder.at = recorder.at or LAST
        if found is not None and recorder.refusal is None:
            node.recorder = recorder
        build = apart.builder()
        if attributes:
            attributes = [a._replace(tensor=None) for a in attributes]  # type: ignore[arg-type]
            build = putting(build, attributes)
        graph_of_it = found and (found.described, found.live, found.bases, found.places)
        with self.lock:
            where = [(id(a.owner()), a.name) for a in attributes or ()]
            now = recorder, (apart.described(), apart.structure, graph_of_it, where, counted.ends), apart.objects
            if self._compare(entry, program, now, differentiated, build, found):
                self._quicken(entry, args, kwargs)
            elif entry.refusal is not None:
                at = recorder.at or (None if recorder.refusal is None else SOMEWHERE)
                self._take_apart(entry.refusal, at, out if type(out) is tuple else (), entry.known)
        return out
