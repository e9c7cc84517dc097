"""A step as a program: what a recording has become, and one run of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

from .. import switches
from ..autograd.graph import Leaf, changed_by, init_node
from ..backend.contract import Place
from ..device import Device
from ..dispatch.traced import evaluate
from ..observing import REPLAY, observable
from ..tensor_base import make_tensor
from .calls import Call
from .checks import FIRST_CHECK, next_check
from .comparing import Differs, Sources, compare
from .failure import raise_failure_of
from .memory import copies_of_constants, filled_once, in_scratch, lifetimes, plan_scratch
from .places import ARGUMENT, CONSTANT, GRADIENT, STATE, TEMPORARY, PlaceInfo
from .python import Misfit, PythonCall
from .recorder import Recorder
from .replaying import make_run
from .results import CapturedNode, Gradient, NewLeaf, Result, Standing, entry_of, make_output

if TYPE_CHECKING:
    from ..tensor import Tensor

_MASK = 2**64 - 1

LARGE = 1 << 28
"""Bytes of scratch memory."""


class Program:
    """What a recording has become. `run_step` runs it on the tensors and numbers that a step is called with.

    Methods of optimisers and the like that the step called are fed to it up to the first which cannot be, or to none
    if `apart`; the others run as they are between its parts.
    """

    there: Sequence[Any] = ()
    """Objects (weakly) that are arguments or results of every run."""

    def __init__(
        self,
        recorder: Recorder,
        arguments: Sequence[tuple[Any, ...]],
        sources: Sources,
        nodes: Sequence[int],
        rewrite: Callable[[list[Call], dict[int, int]], list[Call]],
        recording: Any = None,
        pinned: Sequence[tuple[int, int, int]] = (),
        apart: bool = False,
        saved: Sequence[int] = (),
    ) -> None:
        self.made_of = recorder, arguments, sources, nodes, rewrite, recording, pinned
        places, self.sources = list(recorder.places), sources
        self.recording, self.flat, self.pinned = recording, arguments, pinned
        calls = [
            Call(c.op, c.operands, c.attrs, c.kernel, flat, _device(c, flat, places), str(line or "?"), c.own)
            for (c, _, line), flat in zip(recorder.calls, arguments, strict=True)
        ]
        self.outputs = [make_output(recorder, i, node) for i, node in enumerate(nodes)]
        self.grads = [Gradient(leaf, where) for leaf, where in recorder.grads]
        self.moved = [(tensor, Result(*where)) for tensor, where in recorder.moved]
        python = recorder.python
        first = next((i for i, call in enumerate(python) if apart or call.why is not None), len(python))
        self.fed, as_it_is = python[:first], python[first:]
        self.unfed = sum(step.scalars for call in as_it_is for step in call.steps)
        self.outdated: str | None = None
        """Why it is not to be run again."""
        left = [r for r in self.outputs if isinstance(r, Result)]
        left += [r for _, r in self.moved] + [g.left for g in self.grads if isinstance(g.left, Result)]
        left += [r.grad for r in self.outputs if isinstance(r, NewLeaf) and r.grad is not None]
        changed = {r.place for r in left} | set(recorder.modified)
        copies = copies_of_constants(places, changed)
        used_apart = {place for call in as_it_is for place in call.places()}
        groups = filled_once(_between(calls, as_it_is), places, {*changed, *saved, *used_apart})
        results = {int(place) for place in (*[r.place for r in left], *saved) if places[place].kind == TEMPORARY}
        groups[0] = [*copies, *groups[0]]
        calls = [call for group in groups for call in group]
        results.update(_crossing(groups), used_apart)
        results.intersection_update([at for at, info in enumerate(places) if info.kind == TEMPORARY])
        main = Counter(call.device for call in calls).most_common(1)[0][0] if calls else Device("cpu")
        temporaries = {
            at: info.nbytes
            for at, info in enumerate(places)
            if at and info.kind == TEMPORARY and at not in results
            if info.backend is main.backend and info.index == main.index
        }
        groups = [
            rewrite(group, {at: temporaries[at] for at in lifetimes(group) if at in temporaries}) for group in groups
        ]
        self.calls = calls = [call for group in groups for call in group]
        plans = [plan_scratch(group, temporaries) for group in groups]
        offsets = {place: offset for plan, _ in plans for place, offset in plan.items()}
        self.scratch = max(size for _, size in plans)
        self.device = main
        used = lifetimes(calls)
        self.buffers: list[Any] = [None] * len(places)
        moving = {id(tensor()) for tensor, _ in self.moved}
        self.arguments: list[tuple[int, int]] = []
        self.gradients: list[tuple[Any, int]] = []
        self.movers: list[tuple[Any, int]] = []
        self.moving: list[tuple[Any, int, Any, int]] = []
        self.owners: list[tuple[Any, Any, Any, list[tuple[Any, Any]]]] = []
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
                    self.hold(at, info)
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
        noted = {id(leaf()) for leaf in (*(leaf for leaf, _ in self.entry), *(grad.leaf for grad in self.grads))}
        self.entry += {id(leaf()): (leaf, grad) for call in python for leaf, grad in call.others(noted)}.values()
        aliased = {memory for memory, _ in recorder.where} & {id(b) for b in self.buffers if b is not None}
        left_alone = not (self.grads or self.moved or self.gradients or python or aliased)
        self.can_be_inherited = left_alone and type(self) is Program
        written = {id(self.buffers[at]) for at in self.modified}
        self.state = frozenset({id(b) for b in self.buffers if b is not None} - (aliased - written))
        self.is_still = not self.gradients and not self.movers
        runs: list[tuple[Any, bool]] = [
            make_run(in_scratch(group, offsets), size, self.buffers, main.backend, main.index)
            if group
            else (_nothing, True)
            for group, (_, size) in zip(groups, plans, strict=True)
        ]
        self.native = all(native for _, native in runs)
        self.parts = [(run, group, call) for (run, _), group, call in zip(runs, groups, [*as_it_is, None], strict=True)]
        for grad in self.grads:
            grad.reused = self.native
        self.passing = [place for place, *_ in self.allocations]
        self.passing += [grad.allocation[0] for grad in self.grads if grad.allocation is not None]
        self.passing += [place for _, place in (*self.arguments, *self.gradients, *self.movers)]
        self.runs, self.check = 0, FIRST_CHECK
        self.given = {place: position for position, place in self.arguments}
        self.differentiated = (init_node(CapturedNode(), None, ()),)
        self.gone: list[Any] = []
        self.watch()
        for info in places:
            if info.kind in (ARGUMENT, GRADIENT):
                info.buffer = None  # of the recording, and nobody's now

    @property
    def ends(self) -> Sequence[Any]:
        """What counters are after a run, as expressions."""
        return () if self.recording is None else self.recording[1][-1]

    def hold(self, at: int, info: PlaceInfo) -> None:
        """Binds a place to the memory of a tensor that was there before the step."""
        self.buffers[at] = info.buffer
        owner = None if info.owner is None else info.owner()
        if owner is not None:
            others = [(o, _seen(t)) for o in info.owners if (t := o()) is not None]
            self.owners.append((info.owner, info.buffer, _seen(owner), others))

    def watch(self) -> None:
        """Has `gone` told of tensors that are freed."""
        self.gone.clear()
        found: list[Any] = [owner for owner, *_ in self.owners]
        found += [owner for owner, _ in (*self.movers, *self.gradients)] + [g.leaf for g in self.grads]
        found += [leaf for leaf, _ in self.entry] + [call.owner for call in self.made_of[0].python]
        found += [o.tensor for o in self.outputs if isinstance(o, Standing)]
        found += self.there
        self.watched = [ref(t, self.gone.append) for o in found if o is not None and (t := o()) is not None]
        if len(self.watched) < sum(o is not None for o in found):
            self.gone.append(None)

    def holds(self) -> bool:
        """Whether the tensors that the step uses still have the memory that it was recorded with."""
        if self.outdated is not None or not all(call.holds() for call in self.made_of[0].python):
            return False
        for i, (owner, buffer, _, others) in enumerate(self.owners):
            # A parameter that is frozen is one of several on its memory, if its state_dict() is kept.
            alive = [(weak, seen, tensor) for weak, seen in others if (tensor := weak()) is not None]
            if not alive or any(t.buffer is not buffer or _seen(t) != seen for _, seen, t in alive):
                return False
            if owner() is None:  # another that was there on the same memory will do
                self.owners[i] = alive[0][0], buffer, alive[0][1], others
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

    def fits_all(self, tensors: Sequence[Tensor], numbers: Sequence[Any] = ()) -> bool:
        """`fits`, and whether the arguments are memory that the program may be given, and numbers that it is for."""
        if not self.fits():
            return False
        if numbers and not self.is_for(numbers):
            return False
        for position, memory, offset in self.pinned:
            if id(tensors[position].buffer) != memory or tensors[position].offset != offset:
                return False
        given = {id(tensors[position].buffer) for position, _ in self.arguments}
        if not self.is_still:
            moving = {id(leaf()._grad.buffer) for leaf, _ in self.gradients}
            moving |= {id(owner().buffer) for owner, _ in self.movers}
            if given & moving:
                return False
        return self.state.isdisjoint(given)

    def is_for(self, numbers: Sequence[Any]) -> bool:
        """Whether Python would decide by these numbers as it did when the step was recorded."""
        recorder, sources = self.made_of[0], self.sources
        if any(repr(numbers[at]) != repr(recorder.given[at]) for at in sources.fixed):
            return False
        try:
            for expression, outcome in recorder.decisions.items():
                if evaluate(expression, numbers) is not outcome:
                    return False
            for expression in sources.arguments:
                evaluate(expression, numbers)
        except ArithmeticError:
            return False  # eager code raises it where it comes
        return True

    def compare(self, now: tuple[Recorder, Any, Any], others: bool = False) -> None:
        """Raises Differs unless another run of the step has done what the program does. others: as in `compare`."""
        recorder, returned, _ = self.recording
        if returned != now[1]:
            raise Differs("what it returns is another")
        given, sources = compare(recorder, now[0], fixed=self.sources.fixed, others=others)
        same = [(type(x), x) for flat in given for x in flat] == [(type(x), x) for flat in self.flat for x in flat]
        if not same or sources.described() != self.sources.described():
            raise Differs("numbers that its kernels get are others")
        self.check = next_check(self.runs)

    def give_back(self) -> None:
        """Frees scratch memory until the next run, if it is large: the step is about to be run as it is."""
        if self.scratch >= LARGE:
            for run, *_ in self.parts:
                if (release := getattr(run, "release", None)) is not None:
                    release()

    def nodes(self, tensors: Sequence[Tensor], numbers: Sequence[float | None], fed: Sequence[float]) -> Sequence[Any]:
        """The nodes of the results that have one, by number."""
        return self.differentiated

    @observable(REPLAY, "replay")
    def run_step(
        self, tensors: Sequence[Tensor], numbers: Sequence[float | None], taken: Sequence[Any] = ()
    ) -> list[Any]:
        """Runs the kernels; returns the results, in the order of their places in what the step returned.

        taken: what the first methods of optimisers have already done of their Python.
        """
        buffers, sources = self.buffers, self.sources
        self.runs += 1
        stepped: list[float] = []
        for call in self.fed:
            try:
                call.feed(stepped)
            except Misfit:
                return self._run_apart(tensors, numbers, call)
        for call in self.fed:
            call.taken.clear()  # gradients whose memory is to be used again
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
            fed += stepped
            fed += [0.0] * self.unfed
            fed += [numbers[x] if type(x) is int else evaluate(x, numbers) for x in sources.arguments]
        elif stepped:
            fed = stepped
        kept: set[int] = set()
        try:
            kept = self._run_parts(buffers, fed, tensors, taken)
            if self.modified:
                change = changed_by("a captured step")
                for place in self.modified:
                    buffers[place].modified = change
            if self.moved:
                for owner, result in self.moved:
                    owner().buffer, owner().offset, owner().spec = buffers[result.place], result.offset, result.spec
                switches.moved()
            for grad in self.grads:
                if not kept or grad.left is None or id(grad.leaf()) not in kept:
                    grad.leave(buffers)
            nodes = self.nodes(tensors, numbers, fed)
            made: list[Any] = []
            for output in self.outputs:
                if type(output) is Result:
                    node = nodes[output.node] if output.node >= 0 else None
                    made.append(make_tensor(output.spec, buffers[output.place], output.offset, node))
                else:
                    made.append(output.get(buffers, tensors, nodes))
            return made
        finally:
            for place in self.passing:
                buffers[place] = None

    def _run_parts(self, buffers: list[Any], fed: Any, tensors: Any, taken: Sequence[Any]) -> set[int]:
        """Runs the parts and what is between them; returns the ids of leaves that got gradients from the latter."""
        kept: set[int] = set()
        entry: dict[int, tuple[Any, Any]] = {}  # leaves with the gradients from before the step
        for at, (run, group, call) in enumerate(self.parts):
            try:
                run(buffers, fed)
            except Exception as error:
                which = getattr(error, "call", None)
                if type(which) is int and which < len(group):
                    raise_failure_of(group[which], error)
                raise
            if call is not None:
                for leaf, grad in entry.values():
                    leaf._grad = grad
                for leaf in [weak() for weak, _ in call.grads]:
                    entry.setdefault(id(leaf), (leaf, leaf._grad))
                if at < len(taken):
                    call.run_taken(taken[at], buffers)
                else:
                    kept.update(map(id, call.run(buffers, tensors)))
        for key, (leaf, grad) in entry.items():
            if key not in kept:
                leaf._grad = grad
        return kept

    def _run_apart(self, tensors: Any, numbers: Any, misfit: PythonCall) -> list[Any]:
        """Runs the step in parts, since the Python of `misfit` has done other steps than it did."""
        fed = self.fed[: self.fed.index(misfit) + 1]
        program = Program(*self.made_of, apart=True)
        taken = [call.taken_steps() for call in fed]
        self.outdated = f"{misfit.name} makes other steps than it did ({misfit.line})"
        switches.moved()
        return program.run_step(tensors, numbers, taken)


def _nothing(buffers: Sequence[Any], numbers: Sequence[float]) -> None:
    """A part without kernels."""


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


def _between(calls: list[Call], python: Sequence[PythonCall]) -> list[list[Call]]:
    """The kernel calls before, between and after those that methods have made."""
    ends = [0, *(call.end for call in python)]
    begins = [*(call.begin for call in python), len(calls)]
    return [calls[end:begin] for end, begin in zip(ends, begins, strict=True)]


def _crossing(groups: list[list[Call]]) -> set[int]:
    """The places that more than one of the groups uses."""
    used = [lifetimes(group) for group in groups]
    return {place for place, n in Counter(place for lives in used for place in lives).items() if n > 1}
