"""The backward pass through what a captured step returns: recorded, compared and replayed as the step is."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

from .. import switches
from ..amp.state import state as autocast
from ..autograd import graph as autograd
from ..autograd.graph import Leaf
from ..backend.contract import Place
from ..device import Device
from ..dtype import uint8
from ..spec import Spec
from . import recording
from .comparing import Differs, compare
from .graphs import GraphNode, Memory, remade, run_inside, saved_places
from .places import PlaceInfo
from .program import Program
from .recorder import Recorder

if TYPE_CHECKING:
    from ..autograd.passes import BackwardPass
    from .entries import Entry
    from .graphs import StepGraph

MAX_RECORDINGS = 4
MAX_PATTERNS = 8
ENOUGH = 8
"""Recordings of a way to go through a graph after which those that were seen less often are not waited for."""


class Pattern:
    """A way to go through the step's graph: from which results, to which ends.

    recorded: by which leaves had gradients, the last recording, None where it is yet to come. programs: each with what
    it reads of the forward's memory, and the places that this has. settled: for which leaves there is a program.
    """

    def __init__(self) -> None:
        self.recorded: dict[Any, tuple[Recorder, Any, Any] | None] = {}
        self.programs: list[tuple[Program, frozenset[int], list[int]]] = []
        self.recordings = 0
        self.settled: set[Any] = set()


class Backwards:
    """The backward passes through the graphs that the runs of a step make, of one signature."""

    def __init__(self, entry: Entry, rewrite: Any) -> None:
        self.entry, self.rewrite = entry, rewrite
        self.forward: Recorder | None = None
        self.patterns: dict[Any, Pattern] = {}
        self.refusal: str | None = None
        self.times = 0
        self.missed = False
        """Whether a replayed run was differentiated in a way that is not known."""
        self.lock = Lock()
        self.moves = -1

    def settled(self) -> bool:
        """Whether what was seen so far was seen often enough to replay the step."""
        patterns = self.patterns.values()
        if not any(pattern.programs for pattern in patterns):
            return False
        if any(pattern.recordings >= ENOUGH and pattern.programs for pattern in patterns):
            return True
        return all(set(pattern.recorded) <= pattern.settled for pattern in patterns)

    def read(self, places: list[int]) -> list[int]:
        """What backward passes read of a forward's memory, of which these places outlive it."""
        found: set[int] = set()
        for pattern in self.patterns.values():
            pattern.programs = [entry for entry in pattern.programs if entry[2] == places]
            for _, read, _ in pattern.programs:
                found |= read
        return sorted(found)

    def programs(self) -> list[Program]:
        """All that are known."""
        return [entry[0] for pattern in self.patterns.values() for entry in pattern.programs]

    def of(self, forward: Recorder) -> None:
        """Forgets what was learnt of runs that are not like `forward`."""
        if self.forward is not None and self.forward is not forward:
            try:
                compare(self.forward, forward, fixed=frozenset())
            except Differs:
                self.patterns.clear()
        self.forward = forward

    def record_again(self) -> None:
        """The step is recorded once more, so that ways through its graph that were not known become known."""
        self.missed = False
        self.times += 1
        for pattern in self.patterns.values():
            pattern.recordings = 0

    # --- A pass that gets to the step's results -----------------------------------------------------------------------

    def run(
        self,
        node: GraphNode,
        backward: BackwardPass,
        grads: list[Any],
        needed: tuple[bool, ...] | None,
        carried: Sequence[Any],
    ) -> list[Any]:
        """The gradients at the ends of the step's graph, as `run_inside` gives them."""
        outer = recording.recorder_here()
        plain = autograd.anomaly_check is not None
        if node.graph is not None:
            inner, nodes = node.graph.inner, node.graph.nodes
            if plain or outer is not None or node.recorder is None or self.refusal is not None:
                return run_inside(backward, inner, nodes, needed, grads, carried)
            turn = object()
            try:
                if recording.take(turn):
                    return self._record(node, backward, grads, needed, carried)
            finally:
                if recording.turn is turn:
                    recording.turn = None
            return run_inside(backward, inner, nodes, needed, grads, carried)
        if node.memory is None:
            raise node.freed()
        program = node.program
        assert program is not None
        program.check_saved(node)
        if not plain and outer is None:
            key = self._key(backward, node, grads, needed, carried)
            pattern = self.patterns.get(key)
            if pattern is not None:
                values = self._replay(pattern, node, grads, carried)
                if values is not None:
                    return values
            if self.times < MAX_RECORDINGS:
                self.missed = True
                self.patterns.setdefault(key, Pattern()).recorded.setdefault(_had(node), None)
                self.entry.moves = -1  # so that the next call looks
        graph = self.graph_of(node)
        if backward.retain:
            node.graph = graph
        return run_inside(backward, graph.inner, graph.nodes, needed, grads, carried)

    def graph_of(self, node: GraphNode) -> StepGraph:
        """The graph of a run that was replayed."""
        if node.memory is None:
            raise node.freed()
        outer = recording.recorder_here()
        if outer is not None:
            outer.refuse("it differentiates the graph of another captured step")
        assert node.program is not None
        return node.program.again(node)

    def _key(
        self, backward: BackwardPass, node: GraphNode, grads: Sequence[Any], needed: Any, carried: Sequence[Any]
    ) -> Any:
        specs = tuple([None if g is None else g.spec for g in grads])
        already = tuple([None if g is None else g.spec for g in carried])
        # A leaf whose hooks were all removed gets its gradient as one with hooks does.
        hooks = tuple([i for i, edge in enumerate(node.edges) if edge.hooks is not None and type(edge) is Leaf])
        cast = tuple(sorted(autocast.active.items())) if autocast.active else None
        return specs, already, needed, backward.targets is None, hooks, switches.fingerprint, cast

    def _replay(self, pattern: Pattern, node: GraphNode, grads: list[Any], carried: Sequence[Any]) -> list[Any] | None:
        with self.lock:
            if self.moves != switches.moves:
                for known in self.patterns.values():
                    known.programs = [entry for entry in known.programs if entry[0].holds()]
                self.moves = switches.moves
            assert node.program is not None
            numbers = [*node.numbers, *node.fed]
            for program, read, places in pattern.programs:
                if not (read <= node.program.kept and places == node.program.found.places):
                    continue
                if program.fits() and program.is_for(numbers):
                    arguments = [g for g in (*grads, *carried) if g is not None]
                    values = program.run_step([*arguments, *node.memory], numbers)  # type: ignore[misc]
                    rest = iter(values)
                    return [next(rest) if there else None for there in program.returned]  # type: ignore[attr-defined]
        return None

    # --- Recording ----------------------------------------------------------------------------------------------------

    def _record(
        self, node: GraphNode, backward: BackwardPass, grads: list[Any], needed: Any, carried: Sequence[Any]
    ) -> list[Any]:
        graph, forward = node.graph, node.recorder
        assert graph is not None
        assert forward is not None
        key = self._key(backward, node, grads, needed, carried)
        pattern = self.patterns.get(key)
        if pattern is None:
            pattern = self.patterns[key] = Pattern()
        had = _had(node)
        places = saved_places(graph, forward)
        buffers = {number: buffer for buffer in graph.saved for number in forward.places_of(buffer)}
        memory = [Memory(buffers[p], forward.starts.get(p, 0), _bytes(forward.places[p])) for p in places]
        given: list[Any] = [remade(g) for g in (*grads, *carried) if g is not None]
        rest = iter(given)
        grads = [None if g is None else next(rest) for g in grads]
        carried = [None if g is None else next(rest) for g in carried]
        arguments: list[Any] = [*given, *memory]
        recorder = Recorder(arguments, False)
        recorder.given, recorder.trace = forward.given, forward.trace
        before = [t.buffer.modified for t in given]
        with recording.recording(recorder), recorder.trace:
            values = run_inside(backward, graph.inner, graph.nodes, needed, grads, carried)
            made = [v for v in values if v is not None]
            recorder.finish(made, [v.base for v in made if v.base is not None])
        pattern.recordings += 1
        if any(t.buffer.modified is not m for t, m in zip(given, before, strict=True)):
            recorder.refuse("a gradient is changed in place")
        recorder.check_left()
        if recorder.others and (recorder.is_ambiguous or recorder.refusal is not None):
            return values  # another thread may have done it
        returned = [v is not None for v in values]
        described = (places, graph.described(), returned)
        if recorder.refusal is not None:
            self.refusal = f"its backward pass: {recorder.refusal}"
            return values
        last = pattern.recorded.get(had)
        if had in pattern.settled and last is not None:
            self._check(pattern, had, recorder, described, forward.draws)
            return values
        pattern.recorded[had] = recorder, described, forward.draws
        if last is None:
            return values
        try:
            if last[1] != described:
                raise Differs("its backward pass is another the second time")
            flat, sources = compare(last[0], recorder, (last[2], forward.draws))
        except Differs as why:
            if pattern.recordings >= MAX_RECORDINGS * (1 + len(pattern.settled)) or len(self.patterns) > MAX_PATTERNS:
                self.refusal = f"its backward pass: {why}"
            return values
        program = Program(recorder, flat, sources, [-1] * len(made), self.rewrite, (recorder, None, ()))
        recorder.forget()
        program.returned = returned  # type: ignore[attr-defined]
        first = len(given)
        used = {int(a) for call in program.calls for a in call.arguments if type(a) is Place}
        used |= {int(where[0]) for where in recorder.results if isinstance(where, tuple)}
        ours = {place: position - first for position, place in program.arguments if position >= first}
        read = frozenset(places[ours[p]] for p in used if p in ours)
        pattern.programs.append((program, read, places))
        pattern.settled.add(had)
        return values

    def _check(self, pattern: Pattern, had: Any, recorder: Recorder, described: Any, draws: Any) -> None:
        """Records all again where a backward pass that is replayed by now turns out to do something else."""
        last = pattern.recorded[had]
        assert last is not None
        try:
            if last[1] != described:
                raise Differs("its backward pass is another")
            compare(last[0], recorder, (last[2], draws), frozenset())
        except Differs as why:
            self.patterns.clear()
            self.missed = True
            self.entry.moves = -1
            warnings.warn(f"capture(): a step's backward pass is not what was recorded of it: {why}", stacklevel=4)


def _had(node: GraphNode) -> tuple[bool, ...]:
    """Which of the leaves have a gradient."""
    return tuple([end.leaf is not None and end.leaf()._grad is not None for end in node.ends])


def _bytes(info: PlaceInfo) -> Spec:
    return Spec((info.nbytes,), None, uint8, Device(info.backend.device_type, info.index))
