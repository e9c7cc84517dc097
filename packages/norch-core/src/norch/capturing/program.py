"""A step as a program: what a recording has become, and one run of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .. import switches
from ..autograd.graph import Leaf, init_node, next_sequence_number
from ..backend.contract import Place
from ..device import Device
from ..tensor_base import make_tensor
from .calls import Call
from .comparing import Sources
from .memory import in_scratch, lifetimes, plan_scratch
from .python import Misfit, PythonCall
from .recorder import ARGUMENT, CONSTANT, GRADIENT, STATE, TEMPORARY, Recorder
from .replaying import Run, make_run
from .results import CapturedNode, Gradient, Result

if TYPE_CHECKING:
    from ..tensor import Tensor

_MASK = 2**64 - 1


class Program:
    """What a recording has become. `run_step` runs it on the tensors and numbers that a step is called with.

    Methods of optimisers and the like that the step called are fed to it up to the first which cannot be, or to none
    if `apart`; the others run as they are between its parts.
    """

    def __init__(
        self,
        recorder: Recorder,
        arguments: Sequence[tuple[Any, ...]],
        sources: Sources,
        differentiated: Sequence[bool | None],
        rewrite: Callable[[list[Call], dict[int, int]], list[Call]],
        apart: bool = False,
    ) -> None:
        self.made_of = recorder, arguments, sources, differentiated, rewrite
        places, self.sources = recorder.places, sources
        calls = [
            Call(c.op, c.operands, c.attrs, c.kernel, flat, _device(c, flat, places), line)
            for (c, _, line), flat in zip(recorder.calls, arguments, strict=True)
        ]
        self.outputs: list[Any] = [
            Result(where[0], where[1], where[2], bool(used)) if isinstance(where, tuple) else where
            for where, used in zip(recorder.results, differentiated, strict=True)
        ]
        self.grads = [Gradient(leaf, where) for leaf, where in recorder.grads]
        self.moved = [(tensor, Result(*where)) for tensor, where in recorder.moved]
        python = recorder.python
        first = next((i for i, call in enumerate(python) if apart or call.why is not None), len(python))
        self.fed, as_it_is = python[:first], python[first:]
        self.unfed = sum(step.scalars for call in as_it_is for step in call.steps)
        self.outdated = False
        left = [r for r in self.outputs if isinstance(r, Result)]
        left += [r for _, r in self.moved] + [g.left for g in self.grads if isinstance(g.left, Result)]
        results = {int(r.place) for r in left if places[r.place].kind == TEMPORARY}
        groups = _between(calls, as_it_is)
        results.update(_crossing(groups), *[call.places() for call in as_it_is])
        results.intersection_update([at for at, info in enumerate(places) if info.kind == TEMPORARY])
        main = Counter(call.device for call in calls).most_common(1)[0][0] if calls else Device("cpu")
        temporaries = {
            at: info.nbytes
            for at, info in enumerate(places)
            if at and info.kind == TEMPORARY and at not in results and info.backend is main.backend
        }
        groups = [rewrite(group, {k: temporaries[k] for k in lifetimes(group) if k in temporaries}) for group in groups]
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
        self.owners: list[tuple[Any, Any, Any]] = []
        self.allocations: list[tuple[int, int, Callable[[int, int], Any], int]] = []
        for at, info in enumerate(places):
            if info.kind == ARGUMENT:
                self.arguments.append((info.argument, at))
            elif info.kind == GRADIENT:
                self.gradients.append((info.owner, at))
            elif info.kind == STATE:
                owner = None if info.owner is None else info.owner()
                if owner is not None and id(owner) in moving:
                    self.movers.append((info.owner, at))
                else:
                    self.buffers[at] = info.buffer
                    if owner is not None:
                        self.owners.append((info.owner, info.buffer, _seen(owner)))
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
        self.modified = [at for at in recorder.modified if places[at].kind != CONSTANT]
        read = recorder.read_grads
        self.entry = [
            (leaf, had)
            for leaf, had in ((grad.leaf, _had_grad(recorder, grad.leaf)) for grad in self.grads)
            if not had or id(leaf()) in read
        ]
        self.entry += [(leaf, True) for leaf, _ in self.gradients if not any(leaf is one for one, _ in self.entry)]
        runs: list[tuple[Any, bool]] = [
            make_run(in_scratch(group, offsets), size, self.buffers, main.backend, main.index)
            if group
            else (_nothing, True)
            for group, (_, size) in zip(groups, plans, strict=True)
        ]
        self.native = all(native for _, native in runs)
        self.run: Run = runs[0][0]
        self.parts = [(run, call) for (run, _), call in zip(runs, [*as_it_is, None], strict=True)]
        self.passing = [place for place, *_ in self.allocations]
        self.passing += [grad.allocation[0] for grad in self.grads if grad.allocation is not None]
        self.passing += [place for _, place in (*self.arguments, *self.gradients, *self.movers)]
        self.node = init_node(CapturedNode(), None, ())
        recorder.held.clear()
        for info in places:
            if info.kind in (ARGUMENT, GRADIENT):
                info.buffer = None  # of the recording, and nobody's now

    def holds(self) -> bool:
        """Whether the tensors that the step uses still have the memory that it was recorded with."""
        if self.outdated or not all(call.holds() for call in self.made_of[0].python):
            return False
        for owner, buffer, seen in self.owners:
            tensor = owner()
            if tensor is None or tensor.buffer is not buffer or _seen(tensor) != seen:
                return False
        return all(owner() is not None for owner, _ in (*self.movers, *self.gradients))

    def fits(self) -> bool:
        """Whether leaves have gradients where they had them when the step was recorded."""
        for leaf, had in self.entry:
            if (leaf()._grad is not None) is not had:
                return False
        return None not in [call.owner() for call in self.fed]

    def run_step(
        self, tensors: Sequence[Tensor], numbers: Sequence[float | None], taken: Sequence[Any] = ()
    ) -> list[Any]:
        """Runs the kernels; returns the results, in the order of their places in what the step returned.

        taken: what the first methods of optimisers have already done of their Python.
        """
        buffers, sources = self.buffers, self.sources
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
            fed += [numbers[at] for at in sources.arguments]
        elif stepped:
            fed = stepped
        kept: set[int] = set()
        try:
            if len(self.parts) == 1:
                self.run(buffers, fed)
            else:
                kept = self._run_parts(buffers, fed, tensors, taken)
            if self.modified:
                change = next_sequence_number(), "a captured step"
                for place in self.modified:
                    buffers[place].modified = change
            for owner, result in self.moved:
                owner().buffer, owner().offset, owner().spec = buffers[result.place], result.offset, result.spec
            for grad in self.grads:
                if not kept or grad.left is None or id(grad.leaf()) not in kept:
                    grad.leave(buffers)
            made = []
            for output in self.outputs:
                if isinstance(output, Result):
                    node = self.node if output.differentiated else None
                    made.append(make_tensor(output.spec, buffers[output.place], output.offset, node))
                else:
                    made.append(output())
            return made
        finally:
            for place in self.passing:
                buffers[place] = None

    def _run_parts(self, buffers: list[Any], fed: Any, tensors: Any, taken: Sequence[Any]) -> set[int]:
        """Runs the parts and what is between them; returns the ids of leaves that got gradients from the latter."""
        kept: set[int] = set()
        entry: dict[int, tuple[Any, Any]] = {}  # leaves with the gradients from before the step
        for at, (run, call) in enumerate(self.parts):
            run(buffers, fed)
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
        self.outdated = True
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


def _had_grad(recorder: Recorder, leaf: Any) -> bool:
    return recorder.known[id(leaf())].grad is not None


def _device(compiled: Any, flat: Sequence[Any], places: Sequence[Any]) -> Device:
    first = next(places[a] for a in flat if type(a) is Place)
    return Device(compiled.backend.device_type, first.index)


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
