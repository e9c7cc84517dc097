"""A step as a program: what a recording has become, and one run of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

from .. import switches
from ..autograd.graph import Leaf, init_node, next_sequence_number
from ..backend.contract import Place
from ..device import Device
from ..tensor_base import make_tensor
from .calls import Call
from .checks import FIRST_CHECK, next_check
from .comparing import Differs, Sources, compare
from .failure import raise_failure_of
from .memory import copies_of_constants, in_scratch, lifetimes, plan_scratch
from .recorder import ARGUMENT, CONSTANT, GRADIENT, STATE, TEMPORARY, Recorder
from .replaying import make_run
from .results import CapturedNode, Gradient, Result, Standing, entry_of, make_output

if TYPE_CHECKING:
    from ..tensor import Tensor

_MASK = 2**64 - 1


class Program:
    """What a recording has become. `run_step` runs it on the tensors and numbers that a step is called with."""

    def __init__(
        self,
        recorder: Recorder,
        arguments: Sequence[tuple[Any, ...]],
        sources: Sources,
        differentiated: Sequence[bool | None],
        rewrite: Callable[[list[Call], dict[int, int]], list[Call]],
        recording: tuple[Recorder, Sequence[Any], Any],
        pinned: Sequence[tuple[int, int, int]],
    ) -> None:
        places, self.sources = list(recorder.places), sources
        self.recording, self.given, self.pinned = recording, arguments, pinned
        calls = [
            Call(c.op, c.operands, c.attrs, c.kernel, flat, _device(c, flat, places), line, c.own)
            for (c, _, line), flat in zip(recorder.calls, arguments, strict=True)
        ]
        self.outputs = [make_output(recorder, i, bool(used)) for i, used in enumerate(differentiated)]
        self.grads = [Gradient(leaf, where) for leaf, where in recorder.grads]
        self.moved = [(tensor, Result(*where)) for tensor, where in recorder.moved]
        left = [r for r in self.outputs if isinstance(r, Result)]
        left += [r for _, r in self.moved] + [g.left for g in self.grads if isinstance(g.left, Result)]
        left += [r.grad for r in self.outputs if isinstance(r, Result) and r.grad is not None]
        calls = [*copies_of_constants(places, {r.place for r in left} | set(recorder.modified)), *calls]
        results = {int(r.place) for r in left if places[r.place].kind == TEMPORARY}
        main = Counter(call.device for call in calls).most_common(1)[0][0] if calls else Device("cpu")
        temporaries = {
            at: info.nbytes
            for at, info in enumerate(places)
            if at and info.kind == TEMPORARY and at not in results
            if info.backend is main.backend and info.index == main.index
        }
        calls = rewrite(calls, temporaries)
        self.calls = calls
        offsets, self.scratch = plan_scratch(calls, temporaries)
        self.device = main
        used = lifetimes(calls)
        self.buffers: list[Any] = [None] * len(places)
        moving = {id(tensor()) for tensor, _ in self.moved}
        self.arguments: list[tuple[int, int]] = []
        self.gradients: list[tuple[Any, int]] = []
        self.movers: list[tuple[Any, int]] = []
        self.moving: list[tuple[Any, int, Any, int]] = []
        self.owners: list[tuple[Any, Any, Any, list[Any]]] = []
        self.allocations: list[tuple[int, int, Callable[[int, int], Any], int]] = []
        for at, info in enumerate(places):
            if info.kind == ARGUMENT:
                self.arguments.append((info.argument, at))
            elif info.kind == GRADIENT:
                self.gradients.append((info.owner, at))
            elif info.kind == STATE:
                owner = None if info.owner is None else info.owner()
                if owner is not None and id(owner) in moving:
                    seen = recorder.known[id(owner)]
                    self.movers.append((info.owner, at))
                    self.moving.append((info.owner, at, seen.spec, seen.offset))
                    info.buffer = None
                else:
                    self.buffers[at] = info.buffer
                    if owner is not None:
                        self.owners.append((info.owner, info.buffer, _seen(owner), info.owners))
            elif info.kind == CONSTANT:
                self.buffers[at] = info.buffer
            elif at in results or (at in used and at not in offsets):
                self.allocations.append((at, info.nbytes, info.backend.allocate, info.index))
        own = Counter(r.place for r in left)
        for grad in self.grads:
            place = grad.left.place if isinstance(grad.left, Result) else 0
            if place in results and own[place] == 1:
                grad.allocation = next(a for a in self.allocations if a[0] == place)
                self.allocations.remove(grad.allocation)
        self.modified = [at for at in recorder.modified if places[at].kind not in (CONSTANT, TEMPORARY)]
        self.entry = entry_of(recorder, self.grads, self.gradients)
        aliased = {memory for memory, _ in recorder.where} & {id(b) for b in self.buffers if b is not None}
        changed = {id(self.buffers[at]) for at in self.modified}
        self.state = frozenset({id(b) for b in self.buffers if b is not None} - (aliased - changed))
        self.is_still = not self.gradients and not self.movers
        self.run, self.native = make_run(
            in_scratch(calls, offsets), self.scratch, self.buffers, main.backend, main.index
        )
        for grad in self.grads:
            grad.reused = self.native
        self.passing = [place for place, *_ in self.allocations]
        self.passing += [grad.allocation[0] for grad in self.grads if grad.allocation is not None]
        self.passing += [place for _, place in (*self.arguments, *self.gradients, *self.movers)]
        self.runs, self.check = 0, FIRST_CHECK
        self.node = init_node(CapturedNode(), None, ())
        self.gone: list[Any] = []
        self.watch()

    def watch(self) -> None:
        """Has `gone` told of tensors that are freed."""
        self.gone.clear()
        found = [o for o, *_ in (*self.owners, *self.movers, *self.gradients)] + [g.leaf for g in self.grads]
        found += [o.tensor for o in self.outputs if isinstance(o, Standing)]
        self.watched = [ref(t, self.gone.append) for o in found if o is not None and (t := o()) is not None]
        if len(self.watched) < sum(o is not None for o in found):
            self.gone.append(None)

    def holds(self) -> bool:
        """Whether the tensors that the step uses still have the memory that it was recorded with."""
        for i, (owner, buffer, seen, others) in enumerate(self.owners):
            tensor = owner()
            if tensor is None:  # another that was there on the same memory will do
                owner = next((o for o in others if (t := o()) is not None and t.buffer is buffer), None)
                if owner is None:
                    return False
                self.owners[i] = owner, buffer, _seen(owner()), others
            elif tensor.buffer is not buffer or _seen(tensor) != seen:
                return False
        for owner, _, spec, offset in self.moving:
            tensor = owner()
            if tensor is None or tensor.spec is not spec or tensor.offset != offset:
                return False
        if self.gone:
            self.watch()
        return not self.gone

    def fits(self) -> bool:
        """Whether leaves have gradients where they had them when the step was recorded, and tensors are still there."""
        if self.gone:
            return False
        for leaf, seen in self.entry:
            grad = leaf()._grad
            if (grad is None) is not (seen is None) or (seen and (grad.spec is not seen[0] or grad.offset != seen[1])):
                return False
        return True

    def fits_all(self, tensors: Sequence[Tensor]) -> bool:
        """`fits`, and whether the arguments are memory that the program may be given."""
        if not self.fits():
            return False
        for position, memory, offset in self.pinned:
            if id(tensors[position].buffer) != memory or tensors[position].offset != offset:
                return False
        memory = {id(tensors[position].buffer) for position, _ in self.arguments}
        if not self.is_still:
            memory |= {id(tensors[position].buffer) for position, *_ in self.arguments}
            moving = {id(leaf()._grad.buffer) for leaf, _ in self.gradients}
            moving |= {id(owner().buffer) for owner, _ in self.movers}
            if memory & moving:
                return False
        return self.state.isdisjoint(memory)

    def compare(self, now: tuple[Recorder, Sequence[Any], Any]) -> None:
        """Raises Differs unless another run of the step has done what the program does."""
        recorder, numbers, returned = self.recording
        if returned != now[2]:
            raise Differs("what it returns is another")
        given, sources = compare(recorder, now[0], numbers, now[1])
        same = [(type(x), x) for flat in given for x in flat] == [(type(x), x) for flat in self.given for x in flat]
        if not same or sources.described() != self.sources.described():
            raise Differs("numbers that its kernels get are others")
        self.check = next_check(self.runs)

    def run_step(self, tensors: Sequence[Tensor], numbers: Sequence[float | None]) -> list[Any]:
        """Runs the kernels; returns the results, in the order of their places in what the step returned."""
        buffers, sources = self.buffers, self.sources
        self.runs += 1
        for position, place in self.arguments:
            tensor = tensors[position]
            buffers[place] = tensor.buffer if not tensor.offset else _from_offset(tensor)
        for leaf, place in self.gradients:
            buffers[place] = leaf()._grad.buffer
        for owner, place in self.movers:
            buffers[place] = owner().buffer
        for place, nbytes, allocate, index in self.allocations:
            buffers[place] = allocate(nbytes, index)
        for grad in self.grads:
            grad.prepare(buffers)
        fed: Any = ()
        if sources.draws or sources.arguments:
            fed = []
            for generator, count in sources.draws:
                seed, offsets = generator._draws
                fed.append(seed)
                fed += [next(offsets) & _MASK for _ in range(count)]
            fed += [numbers[at] for at in sources.arguments]
        try:
            try:
                self.run(buffers, fed)
            except Exception as error:
                at = getattr(error, "call", None)
                if type(at) is int:
                    raise_failure_of(self.calls[at], error)
                raise
            if self.modified:
                change = next_sequence_number(), "a captured step"
                for place in self.modified:
                    buffers[place].modified = change
            if self.moved:
                for owner, result in self.moved:
                    owner().buffer, owner().offset, owner().spec = buffers[result.place], result.offset, result.spec
                switches.moved()
            for grad in self.grads:
                grad.leave(buffers)
            made: list[Any] = []
            for output in self.outputs:
                if type(output) is Result:
                    node = self.node if output.differentiated else None
                    made.append(make_tensor(output.spec, buffers[output.place], output.offset, node))
                else:
                    made.append(output.get(buffers, tensors, made))
            return made
        finally:
            for place in self.passing:
                buffers[place] = None


def _seen(tensor: Tensor) -> Any:
    """What of a tensor that is there before the step decides what the step does, besides its memory."""
    node = tensor.node
    hooks = None
    if type(node) is Leaf and node.hooks is not None:
        hooks = tuple(map(tuple, (node.hooks, node.hooks.before, node.hooks.after, node.hooks.done)))
    return tensor.spec, tensor.offset, type(node) is Leaf, hooks


def _device(compiled: Any, flat: Sequence[Any], places: Sequence[Any]) -> Device:
    index = max(places[a].index for a in flat if type(a) is Place)
    return Device(compiled.backend.device_type, index)


def _from_offset(tensor: Tensor) -> Any:
    """A buffer that begins at the tensor's first element: a part of its own where that can be, else a copy."""
    backend, start = tensor.spec.device.backend, tensor.offset * tensor.spec.dtype.itemsize
    view = backend.host_view(tensor.buffer)
    if view is not None:
        part = backend.from_host(view[start:])
        if part is not None:
            return part
    size = tensor.buffer.nbytes - start
    copy = backend.allocate(size, tensor.spec.device.index)
    backend.copy(copy, 0, tensor.buffer, start, size)
    return copy
