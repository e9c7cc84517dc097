"""Python that runs in replays: methods of optimisers, schedulers and scalers that a step calls.

Where such a method does nothing but steps of norch's optimisers, it runs before the program (`feed`): what numbers it
would give to kernels become numbers of the program. Otherwise it runs as it is (`run`), between two parts.
"""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

from ..autograd.graph import is_recording, set_recording
from ..errors import CaptureError
from ..func.trees import flatten, unflatten
from ..ops.optimizer.driver import make_step, watchers
from ..switches import Replayed
from ..tensor_base import TensorBase, make_tensor
from .signatures import modes

if TYPE_CHECKING:
    from .recorder import Recorder

_PLAIN = (int, float, bool, str, bytes, type(None))


class Misfit(Exception):
    """A method does other steps than it did when it was recorded."""


class Step(NamedTuple):
    """A step of an optimiser, as norch.ops.optimizer knows it. buffers: those of parameters and states."""

    op: Any
    attrs: Any
    buffers: list[Any]
    params: int
    scalars: int


class PythonCall:
    """A call of a `replayed` method in a step.

    begin, end: which kernel calls of the recording it made. grads: leaves (weakly) whose gradient was not the one from
    before the step, with what it was. why: why it cannot be fed, if it cannot.
    """

    def __init__(self, recorder: Recorder, method: Any, owner: Any, args: Any, kwargs: Any) -> None:
        self.method, self.owner = method, ref(owner)
        self.name, self.line = f"{type(owner).__name__}.{method.__name__}()", recorder.line()
        self.steps: list[Step] = []
        self.own = is_own(method, owner, args)
        self.why: str | None = None if self.own else "its Python is not norch's alone"
        self.begin = self.end = len(recorder.calls)
        self.grads = recorder.changed_grads()
        self.recording = is_recording()
        leaves, self.structure = flatten((args, kwargs))
        self.arguments = [self._described(recorder, leaf) for leaf in leaves]
        self.constant: tuple[Any, Any] | None = (args, kwargs) if all(type(x) in _PLAIN for x in leaves) else None
        """The arguments, where they are the same in each run."""
        # In a replay:
        self.quick: Any = None
        """What does the same in less time, where nothing but numbers has changed: see norch.optim.replay."""
        self.was_quick = False
        self.stand_ins: list[tuple[Any, Any]] = []
        for leaf, where in self.grads:
            spec = where[2] if isinstance(where, tuple) else None if where is None else where().spec
            self.stand_ins.append((leaf, None if spec is None else make_tensor(spec, None)))
        self.taken: list[Any] = []
        self.error: Exception | None = None

    def _described(self, recorder: Recorder, leaf: Any) -> Any:
        if isinstance(leaf, TensorBase):
            if id(leaf) in recorder.positions:
                return "argument", [id(t()) for t in recorder.arguments].index(id(leaf))
            return "tensor", recorder._where(leaf)  # type: ignore[arg-type]
        if type(leaf) in _PLAIN:
            return "value", leaf
        if callable(leaf) and not isinstance(leaf, Replayed) and not hasattr(leaf, "state_dict"):
            recorder.refuse(f"{self.name} runs a closure")
        try:
            return "object", ref(leaf)
        except TypeError:
            self.why = self.why or f"it gets a {type(leaf).__name__}"
            return "value", leaf

    def described(self) -> Any:
        """What must be the same in two recordings."""
        steps = [(s.op, s.attrs, [id(b) for b in s.buffers], s.params, s.scalars) for s in self.steps]
        grads = sorted((id(leaf()), _role(where)) for leaf, where in self.grads)
        arguments = [(kind, _role(x) if kind == "tensor" else x) for kind, x in self.arguments]
        return self.method, id(self.owner()), self.begin, self.end, steps, grads, arguments

    def holds(self) -> bool:
        """Whether the objects that it is called with are still there."""
        owner = self.owner()
        objects = [x() for kind, x in self.arguments if kind == "object"]
        return owner is not None and None not in objects and is_own(self.method, owner, objects) is self.own

    def others(self, seen: set[int]) -> list[tuple[Any, Any]]:
        """Parameters (weakly) whose gradients the method looks at and that are none of `seen`, with what those are."""
        optimizers = [self.owner(), *(x() for kind, x in self.arguments if kind == "object")]
        groups = [group for optimizer in optimizers for group in getattr(optimizer, "param_groups", ())]
        params = [param for group in groups for param in group["params"] if id(param) not in seen]
        grads = [None if param._grad is None else (param._grad.spec, param._grad.offset) for param in params]
        return [(ref(param), grad) for param, grad in zip(params, grads, strict=True)]

    # --- In replays ---------------------------------------------------------------------------------------------------

    def feed(self, numbers: list[float]) -> None:
        """Calls the method and appends what it gives to kernels, which are not called, to `numbers`.

        Raises Misfit where it makes other steps than in the recording, or raises.
        """
        self.was_quick = self.quick is not None and self.quick.give(numbers)
        if self.was_quick:
            return
        changed = None
        for leaf, stand_in in self.stand_ins:
            tensor = leaf()
            if (tensor._grad is None) is not (stand_in is None):
                if changed is None:
                    changed = []
                changed.append((tensor, tensor._grad))
                tensor._grad = stand_in
        taken, thread = self.taken, get_ident()
        taken.clear()
        watchers[thread] = self._take
        try:
            if self.constant is not None:
                self.method(self.owner(), *self.constant[0], **self.constant[1])
            else:
                args, kwargs = self._arguments(None, ())
                self.method(self.owner(), *args, **kwargs)
        except Exception as error:
            self.error = error
            raise Misfit from None
        finally:
            del watchers[thread]
            if changed is not None:
                for tensor, grad in changed:
                    tensor._grad = grad
        if len(taken) != len(self.steps):
            raise Misfit
        for (op, attrs, lists, scalars, _), step in zip(taken, self.steps):
            if (
                op is not step.op
                or attrs != step.attrs
                or len(lists[-1]) != step.params
                or [t.buffer for tensors in lists[:-1] for t in tensors] != step.buffers
            ):
                raise Misfit
            numbers += scalars
        # Kept until all methods fit: what was taken has to be made later where one does not.

    def _take(self, *step: Any) -> None:
        self.taken.append(step)

    def taken_steps(self) -> Any:
        """What `feed` took: leaves (weakly) by the ids of gradients that the method saw, steps, and what it raised.

        Or a function that makes the steps.
        """
        if self.was_quick:
            return self.quick.redo
        leaves = {}
        for leaf, stand_in in self.stand_ins:
            leaves[id(stand_in)] = leaves[id(leaf()._grad)] = leaf
        return leaves, list(self.taken), self.error

    def run_taken(self, taken: Any, buffers: list[Any]) -> None:
        """Makes steps that `feed` has taken, and raises what it raised."""
        self._give_grads(buffers)
        if callable(taken):
            taken()
            return
        leaves, steps, error = taken
        for op, attrs, lists, scalars, one in steps:
            grads = [leaves[id(g)]()._grad if id(g) in leaves else g for g in lists[-1]]
            make_step(op, attrs, (*lists[:-1], grads), scalars, one)
        if error is not None:
            raise error

    def run(self, buffers: list[Any], tensors: Any) -> list[Any]:
        """Calls the method as it is; returns the leaves that have another gradient after it."""
        given = self._give_grads(buffers)
        args, kwargs = self._arguments(buffers, tensors)
        before = is_recording()
        set_recording(self.recording)
        try:
            self.method(self.owner(), *args, **kwargs)
        finally:
            set_recording(before)
        return [leaf for leaf, grad in given if leaf._grad is not grad]

    def _give_grads(self, buffers: list[Any]) -> list[tuple[Any, Any]]:
        given = []
        for weak, where in self.grads:
            leaf = weak()
            leaf._grad = None if where is None else _tensor(where, buffers)
            given.append((leaf, leaf._grad))
        return given

    def _arguments(self, buffers: Any, tensors: Any) -> Any:
        leaves = []
        for kind, x in self.arguments:
            if kind == "argument":
                x = tensors[x]
            elif kind == "tensor":
                x = _tensor(x, buffers)
            elif kind == "object":
                x = x()
            leaves.append(x)
        return unflatten(self.structure, leaves)

    def places(self) -> list[int]:
        """Those that must be there when it is run as it is."""
        found = [where for _, where in self.grads] + [x for kind, x in self.arguments if kind == "tensor"]
        return [int(where[0]) for where in found if isinstance(where, tuple)]


def is_own(method: Any, owner: Any, args: Any) -> bool:
    """Whether a method's Python is norch's alone: no subclass's, no hooks."""
    if not method.__module__.startswith("norch."):
        return False
    for thing in (owner, *args):
        if isinstance(thing, Replayed):
            if not type(thing).__module__.startswith("norch."):
                return False
            hooked: Any = getattr(thing, "_has_step_hooks", None)
            if hooked is not None and hooked():
                return False
    return True


def _tensor(where: Any, buffers: list[Any]) -> Any:
    if isinstance(where, tuple):
        place, offset, spec = where
        return make_tensor(spec, buffers[place], offset)
    return where()


def _role(where: Any) -> Any:
    if isinstance(where, tuple):
        return int(where[0]), where[1], id(where[2])
    return -1 if where is None else id(where())


# --- In recordings ----------------------------------------------------------------------------------------------------


def note(recorder: Recorder, method: Any, owner: Any, args: Any, kwargs: Any) -> Any:
    """Calls a `replayed` method, and notes what it did."""
    recorder.check_states()
    call = PythonCall(recorder, method, owner, args, kwargs)
    if recorder.refusal is not None:
        return method(owner, *args, **kwargs)
    places, held = len(recorder.places), len(recorder.held)
    before, draws = _memory(recorder), [g._state() for g, *_ in recorder.generators]
    thread = get_ident()

    def step(op: Any, attrs: Any, lists: Any, scalars: Any, one: Any) -> None:
        buffers = [t.buffer for tensors in lists[:-1] for t in tensors]
        call.steps.append(Step(op, attrs, buffers, len(lists[-1]), len(scalars)))
        recorder.stepping = op, len(scalars)
        try:
            make_step(op, attrs, lists, scalars, one)
        finally:
            recorder.stepping = None

    recorder.inside = call
    watchers[thread] = step
    try:
        out = method(owner, *args, **kwargs)
    finally:
        del watchers[thread]
        recorder.inside = None
    call.end = len(recorder.calls)
    if out is not None:
        recorder.refuse(f"{call.name} returns something")
    if any(old != new for old, new in zip(before, _memory(recorder), strict=True) if old and new):
        recorder.refuse(f"{call.name} gives tensors other memory or gradients")
    if [g._state() for g, *_ in recorder.generators] != draws:
        recorder.refuse(f"{call.name} draws random numbers")
    if call.why is not None:
        if modes()[1:] != recorder.modes[1:]:
            recorder.refuse(f"{call.name}, which runs as it is, is called in a mode that the step has entered")
        if recorder.fullgraph and recorder.refusal is None:
            raise CaptureError(f"capture(): {call.name} is no part of a program: {call.why} ({call.line})")
        del recorder.calls[call.begin :], recorder.places[places:], recorder.held[held:]
        recorder.numbers = {key: place for key, place in recorder.numbers.items() if place < places}
        recorder.scalars = {at: source for at, source in recorder.scalars.items() if at < call.begin}
        call.end, call.steps = call.begin, []
        recorder.take_host_random()
    elif call.steps and call.constant == ((), {}) and hasattr(owner, "_step_replay"):
        quick = owner._step_replay({id(leaf()) for leaf, _ in call.grads}, _ask)
        if quick is not None and quick.steps() == [(step.attrs, step.scalars) for step in call.steps]:
            call.quick = quick
    recorder.python.append(call)
    recorder.states = recorder.states_now()
    return out


def _ask(function: Any) -> list[tuple[Any, tuple[float, ...]]]:
    """Calls a function; returns attributes and numbers of the optimisers' steps that it would have made."""
    asked: list[tuple[Any, tuple[float, ...]]] = []
    thread = get_ident()
    before = watchers.get(thread)
    watchers[thread] = lambda op, attrs, lists, scalars, one: asked.append((attrs, scalars))
    try:
        function()
    finally:
        if before is None:
            del watchers[thread]
        else:
            watchers[thread] = before
    return asked


def _memory(recorder: Recorder) -> Any:
    """Where the tensors are that were there before the step, and their gradients."""
    tensors = [seen.tensor() for seen in recorder.before]
    return [t if t is None else (id(t.buffer), t.offset, id(t.spec), id(t._grad)) for t in tensors]


def state_of(value: Any) -> Any:
    """What can be compared of a Replayed: numbers and the like by value, in dicts and lists too; others as such."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, dict):
        return kind, [(k if type(k) in _PLAIN else id(k), state_of(v)) for k, v in value.items()]
    if kind in (list, tuple):
        return kind, [state_of(v) for v in value]
    return id(value)
