"""What `norch.capture` returns: a step that is run, recorded twice, and from then on replayed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import update_wrapper
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any

from .. import switches
from ..amp.state import state as autocast
from ..autograd.graph import is_recording, resolve
from ..autograd.mode import is_inference_mode_enabled
from ..device import Device
from ..dtype import DType
from ..errors import CaptureError
from ..func.trees import flatten, unflatten
from ..tensor_base import TensorBase
from . import recording
from .comparing import Differs, compare
from .epilogues import epilogues
from .fusion import fuse
from .program import Program
from .recorder import CONSTANT, Recorder
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


class Captured:
    """A step and its programs, one for each signature."""

    def __init__(self, function: Callable[..., Any], fullgraph: bool) -> None:
        self.function, self.fullgraph = function, fullgraph
        self.entries: OrderedDict[Any, Entry] = OrderedDict()
        self.fast: dict[Any, Entry] = {}
        """Entries whose arguments are tensors alone, by what can be asked of these quickly."""
        self.lock = Lock()
        self.running: int | None = None
        self.captured_again: list[str] = []
        update_wrapper(self, function)

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
            return self.function(*args, **kwargs)
        if entry.moves != switches.moves:
            entry.moves = switches.moves
            kept = [pair for pair in entry.programs if pair[0].holds()]
            if len(kept) < len(entry.programs):
                self.captured_again.append("a tensor that the step uses has other memory")
                entry.programs, entry.recorded, entry.recordings = kept, None, 0
                self.fast = {known: other for known, other in self.fast.items() if other is not entry}
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
                described.append((x.spec, x.node is not None and resolve(x) is not None))  # type: ignore[arg-type]
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
        before = [t.buffer.modified for t in tensors]
        with recording.recording(recorder):
            out = self.function(*args, **kwargs)
            leaves, structure = flatten(out)
            made: list[Any] = [x for x in leaves if isinstance(x, TensorBase)]
            differentiated = [is_differentiated(t) for t in made]
            recorder.finish(made)
        entry.recordings += 1
        if any(t.buffer.modified is not m for t, m in zip(tensors, before, strict=True)):
            recorder.refuse("an argument is changed in place")
        for t, used in zip(made, differentiated, strict=True):
            if used is False and type(t.node).__name__ != "Leaf":
                recorder.refuse("a result is part of a graph that is to be differentiated later")
            number = recorder.numbers.get(id(t.buffer))
            if number is not None and recorder.places[number].kind == CONSTANT:
                recorder.refuse("a result is made of Python data")
        if recorder.kept:
            shapes = ", ".join(str(tuple(t.shape)) for t in recorder.kept[:3])
            recorder.refuse(f"a tensor that the step makes is kept after it: {shapes}")
        plain = [None if isinstance(x, TensorBase) else x for x in leaves]
        if not all(x is None or type(x) in _VALUES for x in plain):
            recorder.refuse("it returns what is neither a tensor nor a number")
        if recorder.refusal is not None:
            self._refuse(entry, recorder.refusal)
            return out
        build = _builder(leaves, structure)
        last = entry.recorded
        entry.recorded = recorder, numbers, (plain, structure)
        if last is None:
            return out
        try:
            if last[2] != (plain, structure):
                raise Differs("what it returns is not the same the second time")
            arguments, sources = compare(last[0], recorder, last[1], numbers)
        except Differs as why:
            if entry.recordings >= MOST_RECORDINGS:
                self._refuse(entry, str(why))
            return out
        entry.programs.append((Program(recorder, arguments, sources, differentiated, _rewrite), build))
        entry.recorded, entry.recordings, entry.moves = None, 0, switches.moves
        if not kwargs and len(tensors) == len(args) and all(isinstance(x, TensorBase) for x in args):
            self.fast[(*[x.spec for x in args], is_recording(), switches.fingerprint)] = entry
        return out

    def _refuse(self, entry: Entry, why: str) -> None:
        entry.refusal, entry.recorded = why, None
        if self.fullgraph:
            raise CaptureError(f"capture(): {why}")


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


def _builder(leaves: list[Any], structure: Any) -> Callable[[list[Any]], Any]:
    """Puts results where the step has them in what it returns."""
    if len(leaves) == 1 and isinstance(leaves[0], TensorBase) and unflatten(structure, [0]) == 0:
        return lambda made: made[0]
    at = [i for i, x in enumerate(leaves) if isinstance(x, TensorBase)]
    plain = [None if isinstance(x, TensorBase) else x for x in leaves]

    def build(made: list[Any]) -> Any:
        values = list(plain)
        for i, value in zip(at, made, strict=True):
            values[i] = value
        return unflatten(structure, values)

    return build
