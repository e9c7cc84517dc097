"""What `norch.capture` returns: a step that is run, recorded twice, and from then on replayed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import update_wrapper
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any
from weakref import ref

from .. import switches
from ..amp.state import state as autocast
from ..autograd.graph import Leaf, is_recording, resolve
from ..autograd.mode import is_inference_mode_enabled
from ..device import Device
from ..dtype import DType
from ..errors import CaptureError
from ..func.trees import flatten, unflatten
from ..tensor_base import TensorBase
from . import recording
from .backwards import Backwards
from .comparing import Differs, compare
from .epilogues import epilogues
from .forwards import ForwardProgram, Live
from .fusion import fuse
from .graphs import GraphNode, StepGraph, attach, entered, holders_of, is_live, kept_elsewhere, with_bases
from .parts import LAST, Parts, line_of
from .program import Program
from .recorder import Recorder
from .results import is_differentiated

if TYPE_CHECKING:
    from ..tensor import Tensor

MOST_PROGRAMS = 8
MOST_RECORDINGS = 4
"""Recordings of a signature, of which two must be the same."""

_NUMBERS = (int, float)
_VALUES = (int, float, bool, str, bytes, type(None), DType, Device)


class Entry:
    """What is known of a signature: its program; or what was recorded of it; or why it is not replayed."""

    def __init__(self) -> None:
        self.calls = 0
        self.recorded: tuple[Recorder, Sequence[Any], Any] | None = None
        self.recordings = 0
        self.programs: list[tuple[Program, Any]] = []
        self.refusal: str | None = None
        self.moves = -1
        self.backwards: Backwards | None = None
        self.ready: tuple[Any, ...] | None = None
        """What a program will be made of once the backward passes through the results have been recorded too."""


class Captured:
    """A step and its programs, one for each signature."""

    def __init__(
        self,
        function: Callable[..., Any],
        fullgraph: bool,
        source: Any = None,
        refused: Callable[[int | None, Sequence[int]], None] | None = None,
    ) -> None:
        """source: the function or method that `function` runs, if that is no function itself. refused: of a part of a
        step, what is told where it was refused: the line, or which of its results no replay can return."""
        self.function, self.fullgraph, self.refused = function, fullgraph, refused
        self.source = function if source is None else source
        self.parts: Parts | None = None
        self.entries: OrderedDict[Any, Entry] = OrderedDict()
        self.fast: dict[Any, Entry] = {}
        """Entries whose arguments are tensors alone, by what can be asked of these quickly."""
        self.lock = Lock()
        self.running: int | None = None
        self.captured_again: list[str] = []
        update_wrapper(self, function, updated=())

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
            or (len(args) > 1 and len({id(x.buffer) for x in args}) < len(args))
            or not self.lock.acquire(blocking=False)
        ):
            return self._slowly(args, kwargs)
        self.running = get_ident()
        try:
            program, build = entry.programs[0]
            if program.fits():
                for x in args:
                    if x.node is not None:
                        break
                else:
                    return build(program.run_step(args, ()))
        finally:
            self.running = None
            self.lock.release()
        return self._slowly(args, kwargs)

    def _slowly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if recording.recorder_here() is not None or self.running == get_ident():
            return self.function(*args, **kwargs)  # a part of a step that is being recorded, or of its own
        leaves, structure = flatten((args, kwargs))
        tensors: list[Any] = [x for x in leaves if isinstance(x, TensorBase)]
        numbers = [x if type(x) in _NUMBERS else None for x in leaves]
        with self.lock:
            self.running = get_ident()
            try:
                return self._call(args, kwargs, leaves, structure, tensors, numbers)
            finally:
                self.running = None

    def _call(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        leaves: list[Any],
        structure: Any,
        tensors: list[Tensor],
        numbers: list[Any],
    ) -> Any:
        key = self._key(leaves, structure)
        entry = self.entries.get(key)
        if entry is None:
            entry = self.entries[key] = Entry()
            if len(self.entries) > MOST_PROGRAMS:
                _, gone = self.entries.popitem(last=False)
                self.fast = {known: other for known, other in self.fast.items() if other is not gone}
        self.entries.move_to_end(key)
        if entry.refusal is not None:
            run = None if self.parts is None else self.parts.run
            return (run or self.function)(*args, **kwargs)
        if entry.moves != switches.moves:
            entry.moves = switches.moves
            kept = [pair for pair in entry.programs if pair[0].holds()]
            if len(kept) < len(entry.programs):
                self.captured_again.append("a tensor that the step uses has other memory")
                entry.programs, entry.recorded, entry.recordings, entry.ready = kept, None, 0, None
                if entry.backwards is not None:
                    entry.backwards.patterns.clear()
                self.fast = {known: other for known, other in self.fast.items() if other is not entry}
            if entry.backwards is not None and entry.backwards.missed:
                entry.programs, entry.recorded, entry.recordings, entry.ready = [], None, 0, None
                entry.backwards.record_again()
                self.fast = {known: other for known, other in self.fast.items() if other is not entry}
        if entry.ready is not None:
            self._complete(entry, args, kwargs, leaves, structure)
            if entry.refusal is not None:
                return self.function(*args, **kwargs)
        for program, build in entry.programs:
            if program.fits():
                return build(program.run_step(tensors, numbers))
        entry.calls += 1
        if entry.calls == 1:
            return self.function(*args, **kwargs)
        return self._record(entry, args, kwargs, tensors, numbers)

    def _key(self, leaves: list[Any], structure: Any) -> Any:
        described: list[Any] = []
        for x in leaves:
            if isinstance(x, TensorBase):
                leaf = type(x.node) is Leaf  # the step is recorded with that very tensor
                described.append(Same(ref(x)) if leaf else (x.spec, x.node is not None and resolve(x) is not None))  # type: ignore[arg-type]
            elif type(x) in _VALUES:
                described.append((type(x), x))
            else:
                described.append(Same(x))
        buffers = [x.buffer for x in leaves if isinstance(x, TensorBase)]
        shared: Any = None
        if len({id(b) for b in buffers}) < len(buffers):
            shared = tuple([next(i for i, c in enumerate(buffers) if c is b) for b in buffers])
        modes = is_recording(), is_inference_mode_enabled(), switches.fingerprint
        cast = tuple(sorted(autocast.active.items())) if autocast.active else None
        return tuple(described), repr(structure), shared, modes, cast

    def _record(
        self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor], numbers: list[Any]
    ) -> Any:
        recorder = Recorder(tensors, self.fullgraph)
        recorder.code = getattr(self.source, "__code__", None)
        holders = holders_of(tensors) if self.refused is not None or is_recording() else None
        before, modes = [t.buffer.modified for t in tensors], switches.fingerprint
        casts, autocast.cache = autocast.cache, None
        graph = None
        try:
            with recording.recording(recorder), entered(tensors, recorder) as entrances:
                out = self.function(*args, **kwargs)
                autocast.cache = None
                leaves, structure = flatten(out)
                made = with_bases([x for x in leaves if isinstance(x, TensorBase)], recorder.was_there)
                live = [i for i, t in enumerate(made) if is_live(t, recorder)]
                differentiated = [is_differentiated(t, recorder.start) for t in made]
                if live:
                    graph = StepGraph([made[i] for i in live], entrances, recorder.start, recorder.was_there)
                recorder.finish(made, () if graph is None else graph.tensors)
        finally:
            autocast.cache = casts
        own = [t for t in (*made, *(() if graph is None else graph.tensors)) if not recorder.was_there(t)]
        recorder.kept += kept_elsewhere(own, graph, out, (leaves, made))
        if holders is not None and kept_elsewhere(tensors, graph, out, (leaves, made), holders):
            recorder.refuse("an argument is kept after the step")
        found = None
        if graph is not None:
            if graph.problem is not None:
                recorder.refuse(graph.problem)
            else:
                if entry.backwards is None:
                    entry.backwards = Backwards(entry, _rewrite)
                node = GraphNode(entry.backwards, graph.ends, tensors, len(live))
                found = Live(graph, made, live, tensors, recorder)
                attach(node, graph, [made[i] for i in live])
        entry.recordings += 1
        if any(t.buffer.modified is not m for t, m in zip(tensors, before, strict=True)):
            recorder.refuse("an argument is changed in place")
        if switches.fingerprint != modes and switches.latest is not None:
            recorder.refuse(f"the step changes `{switches.latest[1]}` of a {switches.latest[0].__name__}")
        if recorder.python and graph is not None:
            recorder.refuse("an optimiser makes a step, and a result is part of a graph")
        if any(type(t.node) is Leaf and not recorder.was_there(t) for t in made):
            recorder.refuse("a result is a leaf that the step makes")
        recorder.check_left(made)
        plain = [None if isinstance(x, TensorBase) else x for x in leaves]
        if not all(x is None or type(x) in _VALUES for x in plain):
            recorder.refuse("it returns what is neither a tensor nor a number")
            recorder.at = recorder.at or LAST
        if recorder.refusal is not None:
            self._refuse(entry, recorder.refusal, recorder.at, out)
            return out
        if found is not None:
            node.recorder = recorder
        build = _builder(leaves, structure)
        last = entry.recorded
        like = plain, structure, found and (found.described, found.live, found.bases, found.places)
        entry.recorded = recorder, numbers, like
        if last is None:
            return out
        try:
            if last[2] != like:
                raise Differs("what it returns is not the same the second time")
            arguments, sources = compare(last[0], recorder, last[1], numbers)
        except Differs as why:
            if entry.recordings >= MOST_RECORDINGS:
                self._refuse(entry, str(why))
            return out
        if found is not None:
            entry.ready = recorder, arguments, sources, differentiated, found, build
            return out
        nodes = [0 if used else -1 for used in differentiated]
        self._add(entry, Program(recorder, arguments, sources, nodes, _rewrite), build, args, kwargs)
        return out

    def _complete(
        self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any], structure: Any
    ) -> None:
        """Makes the program of a step whose results are part of a graph, if what goes back through it is known."""
        backwards = entry.backwards
        assert entry.ready is not None
        assert backwards is not None
        recorder, arguments, sources, differentiated, found, build = entry.ready
        if backwards.refusal is not None:
            self._refuse(entry, backwards.refusal)
            return
        if not backwards.settled():
            if backwards.patterns or recorder.modified or recorder.moved:
                if entry.recordings >= 2 * MOST_RECORDINGS:
                    self._refuse(entry, "no backward pass goes through its results twice in the same way")
                return
        backwards.of(recorder)
        again = _caller(self.function, leaves, structure)
        program = ForwardProgram(recorder, arguments, sources, differentiated, _rewrite, found, backwards, again)
        self._add(entry, program, build, args, kwargs)

    def _add(self, entry: Entry, program: Program, build: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        entry.programs.append((program, build))
        entry.recorded, entry.recordings, entry.moves, entry.ready = None, 0, switches.moves, None
        if not kwargs and all(isinstance(x, TensorBase) for x in args):
            self.fast[(*[x.spec for x in args], is_recording(), switches.fingerprint)] = entry

    def _refuse(self, entry: Entry, why: str, at: int | None = None, out: Any = None) -> None:
        entry.refusal, entry.recorded, entry.ready = why, None, None
        if self.fullgraph:
            raise CaptureError(f"capture(): {why}")
        if at is None:
            at = line_of(why, getattr(self.source, "__code__", None))
        if self.refused is not None:
            values = out if at == LAST and type(out) is tuple else ()
            odd = [i for i, x in enumerate(values) if not isinstance(x, TensorBase) and type(x) not in _VALUES]
            self.refused(None if at == LAST else at, odd)
            return
        if self.parts is None:
            self.parts = Parts(self.source, lambda function, refused: Captured(function, False, None, refused))
        self.parts.refuse(at)


class Same:
    """An argument that is no value: it is the same only as itself."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def _rewrite(calls: list[Any], temporaries: dict[int, int]) -> list[Any]:
    return fuse(epilogues(calls, temporaries), temporaries)


def _caller(function: Callable[..., Any], leaves: list[Any], structure: Any) -> Callable[..., Any]:
    """Calls `function` with other tensors and numbers in the places of those among `leaves`."""
    at = [i for i, x in enumerate(leaves) if isinstance(x, TensorBase)]
    plain = [None if isinstance(x, TensorBase) else x for x in leaves]

    def call(tensors: Sequence[Tensor], numbers: Sequence[Any]) -> Any:
        values = list(plain)
        for i, number in enumerate(numbers):
            if number is not None:
                values[i] = number
        for i, tensor in zip(at, tensors, strict=True):
            values[i] = tensor
        args, kwargs = unflatten(structure, values)
        return function(*args, **kwargs)

    return call


def _builder(leaves: list[Any], structure: Any) -> Callable[[list[Any]], Any]:
    """Puts results where the step has them in what it returns."""
    if len(leaves) == 1 and isinstance(leaves[0], TensorBase) and unflatten(structure, [0]) == 0:
        return lambda made: made[0]
    at = [i for i, x in enumerate(leaves) if isinstance(x, TensorBase)]
    which = {n: i for i, n in enumerate(dict.fromkeys(id(leaves[i]) for i in at))}
    order = [which[id(leaves[i])] for i in at]
    plain = [None if isinstance(x, TensorBase) else x for x in leaves]

    def build(made: list[Any]) -> Any:
        values = list(plain)
        for i, number in zip(at, order, strict=True):
            values[i] = made[number]
        return unflatten(structure, values)

    return build
