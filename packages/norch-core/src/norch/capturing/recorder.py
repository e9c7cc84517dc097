"""What is noted of one run of a step: kernel calls, and whose every buffer is."""

from __future__ import annotations

import gc
import sys
from threading import get_ident
from typing import TYPE_CHECKING, Any
from weakref import ref

from ..autograd.graph import Leaf, next_sequence_number
from ..backend.contract import Place
from ..dispatch.op import all_ops
from ..dispatch.traced import KINDS, Trace, plain
from ..errors import CaptureError
from ..source_lines import Line, here
from ..spec import span
from .places import ARGUMENT, CONSTANT, GRADIENT, STATE, TEMPORARY, OfLeaf, PlaceInfo
from .python import PythonCall, state_of
from .signatures import are_apart, extent, modes
from .surroundings import array_owner, describe_all, find_objects, host_random, is_shared, tensors_now

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..backend.contract import Backend
    from ..library import CustomOp
    from ..living import Newborn
    from ..tensor import Tensor
    from .recording import Compiled


class Recorder:
    """Notes one run of a step on `arguments`, the tensors among what it is called with.

    What it has done beside kernel calls, once it is finished. grads: leaves (weakly) whose gradient is another or was
    added to, with what it is now: None, or a tensor's place, offset and spec. moved: tensors (weakly) that have other
    memory now, likewise. kept: tensors that the step made and that are still there, but for its results.
    """

    def __init__(self, arguments: list[Tensor], fullgraph: bool) -> None:
        self.thread = get_ident()
        self.fullgraph = fullgraph
        self.trace = Trace()
        self.given: list[Any] = []
        """The numbers among what the step is called with, None for others. What is computed of them, `trace` tells."""
        self.decisions: dict[Any, bool] = {}
        """Those that Python has made by these numbers in this run."""
        self.refusal: str | None = None
        self.code: Any = None
        """The step's own code. `at`: the line in it where the step was refused, if that was while it ran."""
        self.at: int | None = None
        self.calls: list[tuple[Compiled, tuple[Any, ...], Line | None]] = []
        self.places: list[PlaceInfo] = [PlaceInfo(TEMPORARY, 0, None, 0)]  # 0 is the program's scratch memory
        self.numbers: dict[int, int] = {}
        self.held: list[Any] = []
        """What lives as long as the recording, so that its identity is not another's."""
        tensors, generators, replayed = find_objects()
        self.replayed = [ref(thing) for thing in replayed]
        self.states = self.states_now()
        self.python: list[PythonCall] = []
        """Calls of methods that run in replays too."""
        self.modes = modes()
        self.inside: PythonCall | None = None
        self.within: list[CustomOp] = []
        """Ops of `norch.library` that run. again: whether one has read values, and is one call from now on."""
        self.again = False
        self.stepping: tuple[Any, int] | None = None
        """The step of an optimiser that is being made, and how many numbers it has."""
        self.scalars: dict[int, tuple[int, int]] = {}
        """By kernel call that is an optimiser's step, which of `python`, and which step of that."""
        self.before = describe_all(tensors)
        self.known = {id(tensor): seen for tensor, seen in zip(tensors, self.before, strict=True)}
        self.newborn: Newborn | None = None
        """What is made while the step runs."""
        self.generators = [(generator, generator._state(), generator._draws) for generator in generators]
        del tensors, replayed
        self.host_random = host_random()
        self.start = next_sequence_number()
        self.positions = {id(t): i for i, t in reversed([*enumerate(arguments)])}
        self.arguments = [ref(t) for t in arguments]
        self.others = False
        """Whether another thread has computed meanwhile."""
        self.is_ambiguous = False
        """Whether it may have been that thread which did what `finish` finds."""
        self.hidden = 0
        """Whether what goes on is part of a kernel."""
        self.grad_specs: dict[int, tuple[Any, int]] = {}
        owners: dict[int, list[Any]] = {}
        grads: dict[int, Any] = {}
        for seen in self.before:
            tensor = seen.tensor()
            if tensor is None:
                continue
            if seen.grad is not None and (grad := seen.grad()) is not None:
                grads[id(grad.buffer)] = seen.tensor
                self.grad_specs[id(tensor)] = grad.spec, grad.offset
            owners.setdefault(seen.buffer, []).append(seen.tensor)
        self.owners, self.grads_of = owners, grads
        self.positions = {id(t): i for i, t in reversed(list(enumerate(arguments)))}
        self.parts: dict[int, list[tuple[int, int, Place]]] = {}
        """By memory of arguments: where those begin and end in it, and their places."""
        self.starts: dict[int, int] = {}
        """By place of an argument, the byte at which it begins."""
        self.where = [(id(t.buffer), t.offset) for t in arguments]
        by_memory: dict[int, list[tuple[int, Tensor]]] = {}
        for i, tensor in enumerate(arguments):
            if not any(type(owner().node) is Leaf for owner in owners.get(id(tensor.buffer), ())):
                by_memory.setdefault(id(tensor.buffer), []).append((i, tensor))
        for found in by_memory.values():
            if len(found) > 1 and not are_apart([t for _, t in found]):
                ends = [extent(t)[1] for _, t in found]
                i, tensor = min(found, key=lambda item: extent(item[1])[0])
                self._argument(i, tensor, max(ends))
            else:
                for i, tensor in found:
                    self._argument(i, tensor, extent(tensor)[1])

    def _argument(self, position: int, tensor: Tensor, end: int) -> None:
        device = tensor.spec.device
        begin = extent(tensor)[0]
        info = self._place(None, ARGUMENT, end - begin, device.backend, device.index)
        info.argument = position
        part = begin, end, Place(len(self.places) - 1)
        self.starts[len(self.places) - 1] = begin
        self.parts.setdefault(id(tensor.buffer), []).append(part)
        self.held.append(tensor.buffer)

    # --- What recording backends say ----------------------------------------------------------------------------------

    def _place(self, buffer: Any, kind: str, nbytes: int, backend: Any, index: int) -> PlaceInfo:
        if buffer is not None:
            self.numbers[id(buffer)] = len(self.places)
        info = PlaceInfo(kind, nbytes, getattr(backend, "real", backend), index)
        self.places.append(info)
        return info

    def allocated(self, buffer: Any, nbytes: int, backend: Backend, index: int) -> None:
        if not self.hidden:
            self._note_inside()
            self._place(buffer, TEMPORARY, nbytes, backend, index)

    def made_of_host_data(self, buffer: Any, data: memoryview, backend: Backend) -> None:
        if not self.hidden:
            self._note_inside()
            info = self._place(buffer, CONSTANT, buffer.nbytes, backend, 0)
            info.buffer, info.data, info.shared = buffer, bytes(data), array_owner(data)

    def copied_in(self, buffer: Any, offset: int, data: memoryview, backend: Backend) -> None:
        if self.hidden:
            return
        self._note_inside()
        number = self.numbers.get(id(buffer))
        info = None if number is None else self.places[number]
        if info is None or offset or data.nbytes != info.nbytes or info.kind != TEMPORARY or info.written:
            self.refuse("data of the host are copied into a tensor that was there before")
            return
        info.kind, info.buffer, info.data = CONSTANT, buffer, bytes(data)

    def copied(self, compiled: Compiled, args: tuple[Any, ...]) -> None:
        if self.hidden:
            return
        self._note_inside()
        out, out_offset, source, source_offset, nbytes = args
        place, out_offset = self._number(out, out_offset, nbytes)
        other, source_offset = self._number(source, source_offset, nbytes)
        self.calls.append((compiled, (place, out_offset, other, source_offset, nbytes), here()))

    def called(self, compiled: Compiled, args: tuple[Any, ...]) -> None:
        if self.refusal is not None or self.hidden:
            return
        if self.inside is not None:
            self._note_step(compiled)
        flat: list[Any] = []
        at = 0
        for i, operand in enumerate(compiled.operands):
            if operand.is_scalar:
                number = args[at]
                if type(number) in KINDS and number.trace is not self.trace:  # left by another run
                    number = plain(number)
                flat.append(number)
                at += 1
                continue
            size = operand.dtype.itemsize
            nbytes = span(operand.shape, operand.strides) * size
            place, offset = self._number(args[at], args[at + 1] * size, nbytes)
            at += 2
            offset, rest = divmod(offset, size)
            if rest:
                self.refuse(f"{compiled.op} gets a part of an argument that begins between two of its elements")
                return
            if not i:
                self.places[place].written = True
            flat += (place, offset)
        self.calls.append((compiled, tuple(flat), here()))

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

    def places_of(self, buffer: Any) -> list[int]:
        """The places that lie in a buffer."""
        number = self.numbers.get(id(buffer))
        return [int(place) for *_, place in self.parts.get(id(buffer), ())] + ([] if number is None else [number])

    def _number(self, buffer: Any, at: int = 0, nbytes: int = 0) -> tuple[Place, int]:
        """The place of `nbytes` bytes of the buffer, from its byte `at` on, and how far into the place they begin."""
        for begin, end, place in self.parts.get(id(buffer), ()):
            if begin <= at and at + nbytes <= end:
                return place, at - begin
        number = self.numbers.get(id(buffer))
        if number is None:
            owners = [o for o in self.owners.get(id(buffer), ()) if (t := o()) is not None and t.buffer is buffer]
            owners.sort(key=lambda owner: _rank(owner()))
            leaf = self.grads_of.get(id(buffer))
            device = owners[0]().spec.device if owners else None
            backend = None if device is None else device.backend
            info = self._place(buffer, STATE, buffer.nbytes, backend, 0 if device is None else device.index)
            info.buffer, info.owner, info.owners = buffer, owners[0] if owners else None, owners
            if leaf is not None:
                info.kind, info.owner = GRADIENT, leaf
            number = len(self.places) - 1
            self.held.append(buffer)
        return Place(number), at

    def read(self, buffer: Any) -> None:
        number = self.numbers.get(id(buffer))
        if number is not None and self.places[number].kind == CONSTANT and not self.places[number].written:
            return  # on its way to another device: data of the host are the same in every run, or it is not replayed
        if not self.hidden:
            self.refuse("a tensor's values are read by Python")

    def refuse(self, why: str) -> None:
        """Notes that the step cannot be replayed, and where. Raises CaptureError where it is to be one program."""
        if self.inside is not None:
            self.inside.why = self.inside.why or why
            return
        if self.within and self.refusal is None:
            self.within[0].is_opaque = self.again = True
        if self.refusal is None:
            self.refusal, self.at = f"{why} ({self.line()})", self._line_of_step()
            self.calls.clear()
        if self.fullgraph and not self.again:
            raise CaptureError(f"capture(): {self.refusal}")

    def _line_of_step(self) -> int | None:
        frame: Any = sys._getframe(1)
        while frame is not None and frame.f_code is not self.code:
            frame = frame.f_back
        return None if frame is None else int(frame.f_lineno)

    def line(self) -> str:
        return str(here() or "?")

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
        self.host_random = host_random()

    def changed_grads(self) -> list[tuple[Any, Any]]:
        """Leaves (weakly) whose gradient is not the one from before the step, with where it is now."""
        found = []
        for seen in self.before:
            tensor = seen.tensor()
            if tensor is not None:
                grad, old = tensor._grad, None if seen.grad is None else seen.grad()
                if grad is not old or (seen.grad is not None and old is None):
                    if self._is_ours(tensor.buffer, None if grad is None else grad.buffer):
                        found.append((seen.tensor, None if grad is None else self._where(grad)))
        return found

    # --- After the step -----------------------------------------------------------------------------------------------

    def finish(self, results: list[Tensor], held: Sequence[Tensor] = ()) -> None:
        """Finds what the step has left behind. `results`: the tensors that it returned; `held`: those of its graph."""
        self.decisions = dict(self.trace.decisions)
        if host_random() != self.host_random:
            self.refuse("the step draws from Python's or NumPy's random numbers")
        self.check_states()
        self.grads = self.changed_grads()
        self.moved: list[tuple[Any, Any]] = []
        self.read_grads: set[int] = {id(i.owner()) for i in self.places if i.kind == GRADIENT}
        self.of_leaf: dict[int, Any] = {}
        allowed = {id(tensor) for tensor in (*results, *held)} | {id(tensor.base) for tensor in results}
        tensors = tensors_now(self.before, self.newborn)
        for seen in describe_all(tensors):
            tensor = seen.tensor()
            if tensor is None:
                continue
            was = self.known.get(id(tensor))
            grad = tensor._grad
            if grad is not None:
                allowed.add(id(grad))
            if was is None or was.tensor is not seen.tensor:
                continue
            if grad is not None:
                self.of_leaf[id(grad)] = seen.tensor
            if seen.buffer != was.buffer or seen.offset != was.offset or seen.spec is not was.spec:
                if self._is_ours(tensor.buffer):
                    self.moved.append((seen.tensor, self._memory(tensor)))
        self.results: list[Any] = [self._result(tensor) for tensor in results]
        self.result_grads = [None if t._grad is None or self.was_there(t) else self._memory(t._grad) for t in results]
        self.leaves = [type(t.node) is Leaf for t in results]
        self.kept = self._kept(tensors, allowed)
        if self.kept:
            tensors.clear()
            self.kept.clear()
            gc.collect()  # what only a cycle holds is not kept
            self.kept = self._kept(find_objects()[0], allowed)
            self.is_ambiguous |= bool(self.kept)
        kept_by_tensors = [w for _, w in (*self.grads, *self.moved)]
        # In-place changes of what was there before, which graphs made outside of the step must hear of.
        self.modified = [
            number
            for number, info in enumerate(self.places)
            if info.buffer is not None and (m := info.buffer.modified) is not None and m[0] >= self.start
        ]
        if any(
            self.places[w[0]].kind == ARGUMENT if type(w) is tuple else w is not None and id(w()) in self.positions
            for w in kept_by_tensors
        ):
            self.refuse("an argument's memory is kept")
        left = {int(w[0]) for w in (*self.results, *[w for _, w in (*self.grads, *self.moved)]) if type(w) is tuple}
        if any((n in left or n in self.modified) and is_shared(info.shared) for n, info in enumerate(self.places)):
            self.refuse("a tensor on the memory of a NumPy array is changed, or is a result")
        self.draws = [
            (generator, state, count)
            for generator, state, draws in self.generators
            if (count := generator._state()[1] - state[1]) and generator._draws is draws
        ]
        self.is_ambiguous |= any(self._drawn(state) != count for _, state, count in self.draws)
        self.reseeded = any(generator._draws is not draws for generator, _, draws in self.generators)

    def forget(self) -> None:
        """Lets go of what is not needed to compare it with another recording."""
        self.held, self.before, self.generators = [], [], []
        self.owners, self.grads_of, self.of_leaf = {}, {}, {}
        used = {id(tensor()) for tensor, _ in (*self.grads, *self.moved)}
        used |= {id(info.owner()) for info in self.places if info.owner is not None}
        self.known = {key: seen for key, seen in self.known.items() if key in used}
        self.host_random = None
        for info in self.places:
            if info.kind == GRADIENT:
                info.buffer = None

    def _is_ours(self, *buffers: Any) -> bool:
        """Whether this thread has used that memory, or no other has computed."""
        if not self.others or any(id(b) in self.numbers for b in buffers if b is not None):
            return True
        self.is_ambiguous = True
        return False

    def _drawn(self, state: tuple[int, int]) -> int:
        """How many draws from a generator, which was in that state, kernels of this thread were given."""
        keyed = keyed_kernels()
        return len({flat[-1] for c, flat, _ in self.calls if c.op in keyed and flat[-2] == state[0]})

    def check_left(self) -> None:
        """Refuses tensors that a replay could not leave behind."""
        if self.kept:
            shapes = ", ".join(str(tuple(t.shape)) for t in self.kept[:3])
            self.refuse(f"a tensor that the step makes is kept after it: {shapes}")
            self.kept.clear()

    def _kept(self, tensors: list[Any], allowed: set[int]) -> list[Any]:
        found = []
        for tensor in tensors:
            number = self.numbers.get(id(tensor.buffer))
            part_of_argument = id(tensor.buffer) in self.parts
            if part_of_argument or (number is not None and self.places[number].kind in (TEMPORARY, CONSTANT)):
                if id(tensor) not in allowed and not self.was_there(tensor):
                    found.append(tensor)
        return found

    def was_there(self, tensor: Any) -> bool:
        """Whether `tensor` is one that was there before the step."""
        seen = self.known.get(id(tensor))
        return seen is not None and seen.tensor() is tensor

    def _where(self, tensor: Tensor) -> Any:
        """A tensor that was there before, itself; else its place, offset and spec."""
        return ref(tensor) if self.was_there(tensor) else self._memory(tensor)

    def _result(self, tensor: Tensor) -> Any:
        """The same; but an argument's position, and the leaf whose gradient it is."""
        position, leaf = self.positions.get(id(tensor)), self.of_leaf.get(id(tensor))
        if position is not None:
            return position
        return self._where(tensor) if leaf is None else OfLeaf(leaf)

    def _memory(self, tensor: Tensor) -> tuple[Place, int, Any]:
        begin, end = extent(tensor)
        place, at = self._number(tensor.buffer, begin, end - begin)
        return place, at // tensor.spec.dtype.itemsize, tensor.spec


def keyed_kernels() -> frozenset[str]:
    """Kernels whose last two scalars are the seed and the offset of a draw."""
    return frozenset(op.kernel for op in all_ops() if op.params[-2:] == ("seed", "offset"))


def _rank(tensor: Any) -> tuple[bool, bool, bool, int]:
    """Which of the tensors on one memory is asked for it: a leaf, one that is no view, the whole of it."""
    whole = tensor.spec.nbytes == tensor.buffer.nbytes
    return type(tensor.node) is not Leaf, tensor.base is not None, not whole, id(tensor)
