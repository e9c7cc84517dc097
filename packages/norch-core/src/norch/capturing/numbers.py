"""Numbers of work that a backend has recorded by itself: learning rates, step counts, offsets of draws.

While it is recorded nothing runs, so what Python counts is put back afterwards. Before each replay optimisers and
schedules run their Python, whose steps give numbers and make no kernel calls, and generators move on.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import get_ident
from typing import Any, NamedTuple

from .. import switches
from ..autograd.graph import is_recording, set_recording
from ..backend.contract import Recorded, feeders
from ..errors import CaptureError
from ..ops.generator import chosen_generator, default_generator
from ..ops.optimizer.driver import make_step, watchers
from ..source_lines import here
from .recorder import keyed_kernels

_GRAPH = "norch.cuda.graph()"


class Step(NamedTuple):
    """A step of an optimiser: its tensors' memory, and which of the recorded calls it made."""

    op: Any
    attrs: Any
    buffers: list[Any]
    calls: range


class Method(NamedTuple):
    """A call of an optimiser's or a schedule's method, with the steps that it made and the gradients that it saw."""

    function: Any
    owner: Any
    args: Any
    kwargs: Any
    name: str
    steps: list[Step]
    grads: list[tuple[Any, Any]]


class Numbers:
    """What a recording is made in. `feed` gives the numbers of the next replay. Raises CaptureError for numbers that
    change and cannot be fed, with the line."""

    def __init__(self, recorded: Recorded) -> None:
        self.recorded = recorded
        self.methods: list[Method] = []
        self.draws: list[tuple[int, int]] = []
        """Which of the recorded calls draw, and which of the draws they get."""
        self.count = 0
        """How many numbers a replay draws."""

    def __enter__(self) -> Numbers:
        if switches.noting is not None:
            raise CaptureError(f"{_GRAPH}: cannot be recorded in a step that norch.capture records")
        self.thread = get_ident()
        self.generator = chosen_generator.get() or default_generator
        self.start = self.generator._state()
        switches.noting = self._note
        return self

    def __exit__(self, kind: Any, *error: object) -> None:
        switches.noting = None
        seed, offset = self.generator._state()
        self.generator._begin(*self.start)
        if kind is None:
            self._check(seed, offset)

    def _check(self, seed: int, offset: int) -> None:
        self.count = offset - self.start[1]
        keyed, fed = keyed_kernels(), {at for method in self.methods for step in method.steps for at in step.calls}
        for at, (op, numbers, is_fed) in enumerate(self.recorded()):
            if not is_fed:
                raise CaptureError(f"{_GRAPH}: {op} cannot be given other numbers in replays")
            if op in keyed:
                place = int(numbers[-1]) - self.start[1]
                if seed != self.start[0] or numbers[-2] != seed or not 0 <= place < self.count:
                    raise CaptureError(
                        f"{_GRAPH}: {op} draws from another generator, or from one that was seeded meanwhile"
                    )
                self.draws.append((at, place))
            elif at not in fed:
                raise CaptureError(f"{_GRAPH}: {op}_() is called by no optimiser, and its numbers would never change")
        if len({place for _, place in self.draws}) != self.count:
            raise CaptureError(f"{_GRAPH}: random numbers were drawn that replays would not draw")

    def _note(self, method: Any, owner: Any, args: Any, kwargs: Any) -> Any:
        """Calls a `replayed` method while its kernels are recorded."""
        name = f"{type(owner).__name__}.{method.__name__}()"
        if get_ident() != self.thread or self.thread in watchers:
            return method(owner, *args, **kwargs)
        if any(callable(x) and not isinstance(x, switches.Replayed) for x in (*args, *kwargs.values())):
            raise CaptureError(f"{_GRAPH}: {name} runs a closure ({here()})")
        steps: list[Step] = []
        grads: list[tuple[Any, Any]] = []

        def step(op: Any, attrs: Any, lists: Any, scalars: Any, one: Any) -> None:
            before = len(self.recorded())
            make_step(op, attrs, lists, scalars, one)
            made = range(before, len(self.recorded()))
            if lists[0] and (not made or any(self.recorded()[at][0] != op.kernel for at in made)):
                raise CaptureError(f"{_GRAPH}: {op.name} is made of tensor ops, not of its kernel ({here()})")
            steps.append(Step(op, attrs, _buffers(lists), made))
            grads.extend((param, param._grad) for param in lists[0] if param._grad is not None)

        before = _Kept(owner, *args, *kwargs.values())
        watchers[self.thread] = step
        try:
            out = method(owner, *args, **kwargs)
        finally:
            del watchers[self.thread]
            is_same = before.restore()
        if not is_same:
            raise CaptureError(f"{_GRAPH}: {name} makes its state while it is recorded; run the step before ({here()})")
        self.methods.append(Method(method, owner, args, kwargs, name, steps, grads))
        return out

    def feed(self) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """The position of each recorded call that gets other numbers, and those."""
        found: list[tuple[int, tuple[Any, ...]]] = []
        for method in self.methods:
            for (op, attrs, lists, scalars, _), step in zip(taken := _steps_of(method), method.steps, strict=False):
                if op is not step.op or attrs != step.attrs or _buffers(lists) != step.buffers:
                    raise CaptureError(f"{_GRAPH}: {method.name} now makes another step than was recorded")
                found += [(at, scalars) for at in step.calls]
            if len(taken) != len(method.steps):
                raise CaptureError(f"{_GRAPH}: {method.name} now makes {len(taken)} steps, not {len(method.steps)}")
        if self.count:
            drawn = [self.generator.next() for _ in range(self.count)]
            recorded = self.recorded()
            found += [(at, (*recorded[at][1][:-2], *drawn[place])) for at, place in self.draws]
        return iter(found)


def _buffers(lists: Any) -> list[Any]:
    return [t.buffer for tensors in lists for t in tensors]


def _steps_of(method: Method) -> list[Any]:
    """The steps that a method makes now, which are not made. It sees the recorded gradients, which a replay fills even
    where they have been set to None since."""
    taken: list[Any] = []
    thread, before = get_ident(), is_recording()
    now = [(param, param._grad) for param, _ in method.grads]
    watchers[thread] = lambda *step: taken.append(step)
    set_recording(False)
    try:
        for param, grad in method.grads:
            param._grad = grad
        method.function(method.owner, *method.args, **method.kwargs)
    finally:
        for param, grad in now:
            param._grad = grad
        del watchers[thread]
        set_recording(before)
    return taken


class _Kept:
    """What objects and the dicts and lists in them hold."""

    def __init__(self, *objects: Any) -> None:
        self.kept: list[tuple[Any, Any]] = []
        self.seen: set[int] = set()
        for thing in objects:
            if isinstance(thing, switches.Replayed):
                self._keep(vars(thing))

    def _keep(self, thing: Any) -> None:
        if id(thing) in self.seen:
            return
        self.seen.add(id(thing))
        if type(thing) is list:
            self.kept.append((thing, list(thing)))
            values: Any = thing
        elif isinstance(thing, dict):
            self.kept.append((thing, dict(thing)))
            values = thing.values()
        else:
            return
        for value in values:
            self._keep(value)

    def restore(self) -> bool:
        """Puts it back; whether nothing was there but other values."""
        is_same = True
        for thing, kept in self.kept:
            is_same &= len(thing) == len(kept)
            if type(thing) is list:
                thing[:] = kept
            else:
                thing.clear()
                thing.update(kept)
        return is_same


feeders[:] = [Numbers]
