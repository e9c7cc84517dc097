"""What is noted of one run of a step: kernel calls, and whose every buffer is."""

from __future__ import annotations

import gc
import random
import sys
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

import numpy as np

from ..autograd.graph import Leaf, next_sequence_number
from ..backend.contract import Place
from ..errors import CaptureError
from ..ops.generator import Generator
from ..switches import Replayed
from ..tensor_base import TensorBase
from .python import PythonCall, state_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..backend.contract import Backend
    from ..tensor import Tensor
    from .recording import Compiled

TEMPORARY, ARGUMENT, STATE, GRADIENT, CONSTANT = "temporary", "argument", "state", "gradient", "constant"
"""Whose memory a place is: made and gone within the step, or its result; an argument's; that of a tensor which was
there before; that of a leaf's gradient which was there before; made of data of the host."""


class PlaceInfo:
    """What is known of a place. `owner`: the tensor (weakly) whose memory it is, or the leaf whose gradient's.

    buffer: that of the recording, for what outlives it. data: the bytes of a constant.
    """

    __slots__ = ("argument", "backend", "buffer", "data", "index", "kind", "nbytes", "owner", "written")

    def __init__(self, kind: str, nbytes: int, backend: Any, index: int) -> None:
        self.kind, self.nbytes, self.backend, self.index = kind, nbytes, backend, index
        self.argument = -1
        self.buffer: Any = None
        self.data: bytes | None = None
        self.owner: Any = None
        self.written = False

    def role(self) -> Any:
        """What must be the same in two recordings."""
        who = None if self.owner is None else id(self.owner())
        if self.kind == STATE and self.owner is None:
            who = id(self.buffer)
        return self.kind, self.nbytes, self.index, self.argument, who


class Seen(NamedTuple):
    """A tensor that was there before the step, and what it was then."""

    tensor: Any  # weakly
    buffer: int
    offset: int
    spec: Any
    grad: Any  # its gradient weakly, None where there was none


class Recording:
    """What a run of the step has done, beside its kernel calls.

    grads: leaves (weakly) whose gradient is another or was added to, with what it is now: None, or a tensor's place,
    offset and spec. moved: tensors (weakly) that have other memory now, likewise. kept: tensors that the step made and
    that are still there, but for its results.
    """


class Recorder:
    """Notes one run of a step on `arguments`, the tensors among what it is called with."""

    def __init__(self, arguments: list[Tensor], fullgraph: bool) -> None:
        self.thread = get_ident()
        self.fullgraph = fullgraph
        self.refusal: str | None = None
        self.code: Any = None
        """The step's own code. `at`: the line in it where the step was refused, if that was while it ran."""
        self.at: int | None = None
        self.calls: list[tuple[Compiled, tuple[Any, ...], str]] = []
        self.places: list[PlaceInfo] = [PlaceInfo(TEMPORARY, 0, None, 0)]  # 0 is the program's scratch memory
        self.numbers: dict[int, int] = {}
        self.held: list[Any] = []
        """What lives as long as the recording, so that its identity is not another's."""
        tensors, generators, replayed = _found()
        self.replayed = [ref(thing) for thing in replayed]
        self.states = self.states_now()
        self.python: list[PythonCall] = []
        """Calls of methods that run in replays too."""
        self.inside: PythonCall | None = None
        self.stepping: tuple[Any, int] | None = None
        """The step of an optimiser that is being made, and how many numbers it has."""
        self.scalars: dict[int, tuple[int, int]] = {}
        """By kernel call that is an optimiser's step, which of `python`, and which step of that."""
        self.before = _seen(tensors)
        self.known = {id(tensor): seen for tensor, seen in zip(tensors, self.before, strict=True)}
        self.generators = [(generator, generator._state()) for generator in generators]
        del tensors, replayed
        self.host_random = _host_random()
        self.start = next_sequence_number()
        self.positions = {id(t): i for i, t in reversed([*enumerate(arguments)])}
        self.arguments = [ref(t) for t in arguments]
        self.starts: dict[int, int] = {}
        owners: dict[int, Any] = {}
        grads: dict[int, Any] = {}
        for seen in self.before:
            tensor = seen.tensor()
            if tensor is None:
                continue
            if seen.grad is not None and (grad := seen.grad()) is not None:
                grads[id(grad.buffer)] = seen.tensor
            best = owners.get(seen.buffer)
            if best is None or _rank(tensor) < _rank(best()):
                owners[seen.buffer] = seen.tensor
        self.owners, self.grads_of = owners, grads
        for i, tensor in enumerate(arguments):
            owner = owners.get(id(tensor.buffer))
            leaf = owner is not None and type(owner().node) is Leaf
            if leaf or id(tensor.buffer) in self.numbers:
                continue
            info = self._place(
                tensor.buffer, ARGUMENT, tensor.buffer.nbytes, tensor.spec.device.backend, tensor.spec.device.index
            )
            info.argument = i
            self.held.append(tensor.buffer)
            self.starts[len(self.places) - 1] = tensor.offset * tensor.spec.dtype.itemsize

    # --- What recording backends say ----------------------------------------------------------------------------------

    def _place(self, buffer: Any, kind: str, nbytes: int, backend: Any, index: int) -> PlaceInfo:
        self.numbers[id(buffer)] = len(self.places)
        info = PlaceInfo(kind, nbytes, getattr(backend, "real", backend), index)
        self.places.append(info)
        return info

    def allocated(self, buffer: Any, nbytes: int, backend: Backend, index: int) -> None:
        self._note_inside()
        self._place(buffer, TEMPORARY, nbytes, backend, index)

    def made_of_host_data(self, buffer: Any, data: memoryview, backend: Backend) -> None:
        self._note_inside()
        info = self._place(buffer, CONSTANT, buffer.nbytes, backend, 0)
        info.buffer, info.data = buffer, bytes(data)

    def copied_in(self, buffer: Any, offset: int, data: memoryview, backend: Backend) -> None:
        self._note_inside()
        number = self.numbers.get(id(buffer))
        info = None if number is None else self.places[number]
        if info is None or offset or data.nbytes != info.nbytes or info.kind != TEMPORARY or info.written:
            self.refuse("data of the host are copied into a tensor that was there before")
            return
        info.kind, info.buffer, info.data = CONSTANT, buffer, bytes(data)

    def copied(self, compiled: Compiled, args: tuple[Any, ...]) -> None:
        self._note_inside()
        out, out_offset, source, source_offset, nbytes = args
        flat = (self._number(out), out_offset, self._number(source), source_offset, nbytes)
        self.calls.append((compiled, flat, self.line()))

    def called(self, compiled: Compiled, args: tuple[Any, ...]) -> None:
        if self.refusal is not None:
            return
        if self.inside is not None:
            self._note_step(compiled)
        flat: list[Any] = []
        at = 0
        for i, operand in enumerate(compiled.operands):
            if operand.is_scalar:
                flat.append(args[at])
                at += 1
                continue
            place, offset = self._number(args[at]), args[at + 1]
            at += 2
            info = self.places[place]
            if not i:
                info.written = True
            start = self.starts.get(place)
            if start:
                size = operand.dtype.itemsize
                offset, rest = divmod(offset * size - start, size)
                if rest or offset < 0:
                    self.refuse(f"{compiled.op} reads memory before an argument's first element")
                    return
            flat += (place, offset)
        self.calls.append((compiled, tuple(flat), self.line()))

    def _note_inside(self) -> None:
        """A `replayed` method that computes anything beside steps of optimisers cannot be fed."""
        if self.inside is not None and self.stepping is None and self.inside.why is None:
            self.inside.why = f"it computes more than steps of norch's optimisers ({self.line()})"

    def _note_step(self, compiled: Compiled) -> None:
        assert self.inside is not None
        if self.stepping is None:
            self._note_inside()
            return
        op, count = self.stepping
        scalars = sum(operand.is_scalar for operand in compiled.operands)
        if compiled.op == op.kernel and scalars == count:
            self.scalars[len(self.calls)] = len(self.python), len(self.inside.steps) - 1
        elif scalars and self.inside.why is None:
            self.inside.why = f"{op.name} is made of tensor ops, not of one kernel"

    def _number(self, buffer: Any) -> Place:
        number = self.numbers.get(id(buffer))
        if number is None:
            owner = self.owners.get(id(buffer))
            leaf = self.grads_of.get(id(buffer))
            tensor = None if owner is None else owner()
            if tensor is not None and tensor.buffer is not buffer:
                owner = None
            device = None if tensor is None else tensor.spec.device
            backend = None if device is None else device.backend
            info = self._place(buffer, STATE, buffer.nbytes, backend, 0 if device is None else device.index)
            info.buffer, info.owner = buffer, owner
            if leaf is not None:
                info.kind, info.owner = GRADIENT, leaf
            number = len(self.places) - 1
            self.held.append(buffer)
        return Place(number)

    def read(self, buffer: Any) -> None:
        self.refuse("a tensor's values are read by Python")

    def refuse(self, why: str) -> None:
        """Notes that the step cannot be replayed, and where. Raises CaptureError where it is to be one program."""
        if self.inside is not None:
            self.inside.why = self.inside.why or why
            return
        if self.refusal is None:
            self.refusal, self.at = f"{why} ({self.line()})", self._line_of_step()
            self.calls.clear()
        if self.fullgraph:
            raise CaptureError(f"capture(): {self.refusal}")

    def _line_of_step(self) -> int | None:
        frame: Any = sys._getframe(1)
        while frame is not None and frame.f_code is not self.code:
            frame = frame.f_back
        return None if frame is None else int(frame.f_lineno)

    def line(self) -> str:
        """Where outside of norch the thread is."""
        libraries = sys.modules["norch"].__path__
        frame: Any = sys._getframe(1)
        while frame is not None:
            name = frame.f_code.co_filename
            if not name.startswith(("<norch", *libraries)):
                return f"{Path(name).name}:{frame.f_lineno}"
            frame = frame.f_back
        return "?"

    # --- What changes in Python -----------------------------------------------------------------------------------

    def states_now(self) -> list[Any]:
        things = [thing() for thing in self.replayed]
        return [None if thing is None else state_of(vars(thing)) for thing in things]

    def check_states(self) -> None:
        """Refuses where optimisers and the like know something else than after the last method of theirs."""
        for weak, old, new in zip(self.replayed, self.states, now := self.states_now(), strict=True):
            thing = weak()
            if old != new and thing is not None:
                name = type(thing).__name__
                self.refuse(f"{name} is changed by Python of the step other than its step(), which replays leave out")
        self.states = now

    def take_host_random(self) -> None:
        """What a `replayed` method draws from Python's and NumPy's random numbers, it draws in replays too."""
        self.host_random = _host_random()

    def changed_grads(self) -> list[tuple[Any, Any]]:
        """Leaves (weakly) whose gradient is not the one from before the step, with where it is now."""
        found = []
        for seen in self.before:
            tensor = seen.tensor()
            if tensor is not None:
                grad, old = tensor._grad, None if seen.grad is None else seen.grad()
                if grad is not old or (seen.grad is not None and old is None):
                    found.append((seen.tensor, None if grad is None else self._where(grad)))
        return found

    # --- After the step -----------------------------------------------------------------------------------------------

    def finish(self, results: list[Tensor], held: Sequence[Tensor] = ()) -> None:
        """Finds what the step has left behind. `results`: the tensors that it returned; `held`: those of its graph."""
        if _host_random() != self.host_random:
            self.refuse("the step draws from Python's or NumPy's random numbers")
        self.check_states()
        self.results = [self.positions.get(id(tensor), self._where(tensor)) for tensor in results]
        self.grads = self.changed_grads()
        self.moved: list[tuple[Any, Any]] = []
        self.read_grads: set[int] = {id(i.owner()) for i in self.places if i.kind == GRADIENT}
        allowed = {id(tensor) for tensor in (*results, *held)}
        tensors = _found()[0]
        for seen in _seen(tensors):
            tensor = seen.tensor()
            if tensor is None:
                continue
            was = self.known.get(id(tensor))
            grad = tensor._grad
            if grad is not None:
                allowed.add(id(grad))
            if was is None or was.tensor is not seen.tensor:
                continue
            if seen.buffer != was.buffer or seen.offset != was.offset or seen.spec is not was.spec:
                self.moved.append((seen.tensor, self._memory(tensor)))
        self.kept = self._kept(tensors, allowed)
        if self.kept:
            tensors.clear()
            self.kept.clear()
            gc.collect()  # what only a cycle holds is not kept
            self.kept = self._kept(_found()[0], allowed)
        # In-place changes of what was there before, which graphs made outside of the step must hear of.
        self.modified = [
            number
            for number, info in enumerate(self.places)
            if info.buffer is not None and (m := info.buffer.modified) is not None and m[0] > self.start
        ]
        self.draws = [
            (generator, state, count)
            for generator, state in self.generators
            if (count := generator._state()[1] - state[1]) and generator._state()[0] == state[0]
        ]
        self.reseeded = any(generator._state()[0] != state[0] for generator, state in self.generators)

    def check_left(self, results: Sequence[Tensor]) -> None:
        """Refuses results and other tensors that a replay could not leave behind."""
        for tensor in results:
            number = self.numbers.get(id(tensor.buffer))
            if number is not None and self.places[number].kind == CONSTANT:
                self.refuse("a result is made of Python data")
        if self.kept:
            shapes = ", ".join(str(tuple(t.shape)) for t in self.kept[:3])
            self.refuse(f"a tensor that the step makes is kept after it: {shapes}")

    def _kept(self, tensors: list[Any], allowed: set[int]) -> list[Any]:
        found = []
        for tensor in tensors:
            number = self.numbers.get(id(tensor.buffer))
            if number is not None and self.places[number].kind == TEMPORARY:
                if id(tensor) not in allowed and not self.was_there(tensor):
                    found.append(tensor)
        return found

    def was_there(self, tensor: Any) -> bool:
        """Whether `tensor` is one that was there before the step."""
        seen = self.known.get(id(tensor))
        return seen is not None and seen.tensor() is tensor

    def _where(self, tensor: Tensor) -> Any:
        """A tensor that was there before, itself; else its place, offset and spec."""
        if self.was_there(tensor):
            return ref(tensor)
        return self._memory(tensor)

    def _memory(self, tensor: Tensor) -> tuple[Place, int, Any]:
        place = self._number(tensor.buffer)
        offset = tensor.offset
        start = self.starts.get(place)
        if start:
            offset -= start // tensor.spec.dtype.itemsize
        return place, offset, tensor.spec


def _rank(tensor: Any) -> tuple[bool, bool, int]:
    """Which of the tensors on one memory is asked for it: a leaf, one that is no view."""
    return type(tensor.node) is not Leaf, tensor.base is not None, id(tensor)


def _found() -> tuple[list[Any], list[Generator], list[Replayed]]:
    """All tensors, generators, optimisers and the like. They are asked by their types, which runs none of their code."""
    kinds: set[type] = {TensorBase, Generator, Replayed}
    stack = list(kinds)
    while stack:
        found: set[type] = set(stack.pop().__subclasses__()) - kinds
        kinds |= found
        stack += found
    things = [thing for thing in gc.get_objects() if type(thing) in kinds]
    tensors = [t for t in things if isinstance(t, TensorBase) and hasattr(t, "_grad")]  # else it is being made
    generators = [g for g in things if isinstance(g, Generator)]
    return tensors, generators, [r for r in things if isinstance(r, Replayed) and hasattr(r, "__dict__")]


def _seen(tensors: list[Any]) -> list[Seen]:
    return [Seen(ref(t), id(t.buffer), t.offset, t.spec, None if t._grad is None else ref(t._grad)) for t in tensors]


def _host_random() -> Any:
    state: Any = np.random.get_state(legacy=False)
    return random.getstate(), state["state"]["key"].tobytes(), state["state"]["pos"], state["has_gauss"]
