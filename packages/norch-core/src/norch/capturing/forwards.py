"""The forward pass of a captured step whose results are part of a graph: a program that keeps what backward reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .. import switches
from ..amp.state import state as autocast
from ..autograd.graph import Output, change, is_recording, next_sequence_number, resolve, set_recording
from ..errors import AutogradError
from ..source_lines import table
from ..tensor_base import TensorBase, make_tensor
from .dependence import depend_on_changes
from .graphs import GraphNode, Memory, StepGraph, entered, saved_places, saved_state, with_bases
from .program import Program
from .recorder import Recorder
from .returned import Apart, Known

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..tensor import Tensor
    from .backwards import Backwards

NOTHING = Memory(None)


class Live:
    """What is known of a recorded run whose results are part of a graph.

    live: the positions of those results. bases: what results are views of: (result, whether of a result, which).
    places: of memory that its graph holds and that another run has elsewhere. state: buffers that it holds and that
    were there before. can_run_again: whether another run, later, would make the same graph.
    """

    def __init__(
        self,
        graph: StepGraph,
        made: Sequence[Any],
        live: list[int],
        tensors: Sequence[Tensor],
        recorder: Recorder,
        known: Known,
    ) -> None:
        self.known = known
        self.ends, self.described, self.live = graph.ends, graph.described(), live
        self.places, self.state = saved_places(graph, recorder), saved_state(graph, recorder)
        results = [recorder.results[i] for i in live]
        seen = {int(where[0]) for where in results if isinstance(where, tuple)}
        self.can_run_again = not depend_on_changes(recorder, seen.union(self.places))
        self.bases: list[tuple[int, bool, int]] = []
        for i in live:
            base = made[i].base
            if base is None:
                continue
            own = next((j for j, t in enumerate(made) if t is base), None)
            given = next((j for j, t in enumerate(tensors) if t is base or t.base is base), None)
            if own is not None or given is not None:
                self.bases.append((i, True, own) if own is not None else (i, False, given or 0))


class ForwardProgram(Program):
    """A step's program; the results of each run hang on a node of their own."""

    def __init__(
        self,
        recorder: Recorder,
        arguments: Sequence[tuple[Any, ...]],
        sources: Any,
        differentiated: Sequence[bool | None],
        rewrite: Any,
        found: Live,
        backwards: Backwards,
        again: Callable[..., StepGraph],
        recording: Any,
        pinned: Sequence[tuple[int, int, int]],
    ) -> None:
        self.backwards, self.found, self.run_again = backwards, found, again
        places = found.places
        read = backwards.read(places)
        numbers = [int(used is True) - 1 for used in differentiated]
        for k, i in enumerate(found.live):
            numbers[i] = 1 + k
        super().__init__(recorder, arguments, sources, numbers, rewrite, recording, pinned, saved=read)
        self.keeps = [place if place in read else 0 for place in places]
        self.kept = frozenset(read)
        moving = {place for _, place in self.movers}
        seen_outside = {r.place for r in self.outputs if hasattr(r, "place")} | set(self.given) | moving
        self.checked = [i for i, place in enumerate(self.keeps) if place in seen_outside]
        self.changes_state = bool(recorder.modified or recorder.moved)
        self.fingerprint = switches.fingerprint
        self.cast = autocast.active

    def nodes(self, tensors: Sequence[Tensor], numbers: Sequence[float | None], fed: Sequence[float]) -> Sequence[Any]:
        node = GraphNode(self.backwards, self.found.ends, tensors, len(self.found.live))
        buffers = self.buffers
        node.memory = [Memory(buffers[place]) if place else NOTHING for place in self.keeps]
        node.program, node.fed, node.numbers = self, fed, numbers or self.made_of[0].given
        if node.output_count == 1:
            return (*self.differentiated, node)
        return (*self.differentiated, *[Output(node, i) for i in range(node.output_count)])

    def run_step(
        self, tensors: Sequence[Tensor], numbers: Sequence[float | None], taken: Sequence[Any] = ()
    ) -> list[Any]:
        made = super().run_step(tensors, numbers, taken)
        for i, own, j in self.found.bases:
            whole = made[j] if own else tensors[j]
            made[i].base = whole if whole.base is None else whole.base
        if self.changes_state:
            node = made[self.found.live[0]].node
            node = node if type(node) is GraphNode else node.edges[0]
            node.results = [(made[i].spec, made[i].buffer, made[i].offset) for i in self.found.live]
        return made

    def check_saved(self, node: GraphNode) -> None:
        """Raises AutogradError where memory that backward reads was changed in place since."""
        assert node.memory is not None
        for buffer in (*[node.memory[i].buffer for i in self.checked], *self.found.state):
            modified = buffer.modified
            if modified is not None and modified[0] > node.sequence_number:
                raise AutogradError(
                    f"backward(): a captured step needs a tensor for its gradient that {modified[1]} has changed in "
                    "place since; use an out-of-place op, or give the step a clone()" + table(change(modified))
                )

    def again(self, node: GraphNode) -> StepGraph:
        """The graph of `node`, from running the step once more, eagerly: for a backward pass that was not recorded."""
        if switches.fingerprint != self.fingerprint:
            raise AutogradError(
                "backward(): the modes of modules have changed since the captured step ran, and this backward pass "
                "must run it again; call backward() before"
            )
        for tensor in node.tensors:
            modified = tensor.buffer.modified
            if modified is not None and modified[0] > node.sequence_number:
                raise AutogradError(
                    f"backward(): {modified[1]} has changed an argument of a captured step in place since, and this "
                    "backward pass must run it again; give the step a clone()" + table(change(modified))
                )
        start = next_sequence_number()
        with _as_before(self, node), entered(node.tensors, None) as entrances:
            out = self.run_again(node.tensors, node.numbers)
            given = {id(t) for t in node.tensors}
            made = with_bases(
                [t for t in Apart(out, self.found.known).leaves if isinstance(t, TensorBase)],
                lambda t: id(t) in given or not _is_new(t, start),
            )
            made = [t for t in made if id(t) not in given and _is_new(t, start)]
            graph = StepGraph(made, entrances, start, lambda tensor: True)
        if graph.problem or graph.described() != self.found.described or not _same(made, node):
            raise AutogradError(
                "backward(): this backward pass must run a captured step again, and the step did something else now"
            )
        return graph


def _is_new(tensor: Any, start: int) -> bool:
    node = resolve(tensor)
    return node is not None and node.sequence_number > start


def _same(made: Sequence[Any], node: GraphNode) -> bool:
    """Whether results are those of the run before, where that kept them and nothing has changed them."""
    for tensor, (spec, buffer, offset) in zip(made, node.results, strict=False):
        if buffer.modified is None or buffer.modified[0] < node.sequence_number:
            values = [t.detach().cpu().double().numpy().tobytes() for t in (tensor, make_tensor(spec, buffer, offset))]
            if values[0] != values[1]:
                return False
    return True


@contextmanager
def _as_before(program: ForwardProgram, node: GraphNode) -> Iterator[None]:
    """Within this context modes and generators are as they were when the step ran; what it changes is put back."""
    recording, cast, cache = is_recording(), autocast.active, autocast.cache
    states = [(generator, generator._state()) for generator, _ in program.sources.draws]
    kept = []
    owners: list[Any] = [owner for owner, *_ in (*program.owners, *program.movers)]
    for owner in owners:
        tensor = owner()
        if tensor is not None and program.changes_state:
            copy = make_tensor(tensor.spec, tensor.buffer, tensor.offset).clone()
            kept.append((tensor, tensor.buffer, tensor.offset, tensor.spec, tensor.buffer.modified, copy))
    set_recording(True)
    autocast.active, autocast.cache = program.cast, None
    at = 0
    for generator, count in program.sources.draws:
        generator._begin(int(node.fed[at]), int(node.fed[at + 1]))
        at += 1 + count
    try:
        yield
    finally:
        for generator, state in states:
            generator._begin(*state)
        autocast.active, autocast.cache = cast, cache
        set_recording(False)
        for tensor, buffer, offset, spec, modified, copy in kept:
            if buffer.modified is not modified:
                make_tensor(spec, buffer, offset).copy_(copy)
                buffer.modified = modified
            tensor.buffer, tensor.offset, tensor.spec = buffer, offset, spec
        set_recording(recording)
