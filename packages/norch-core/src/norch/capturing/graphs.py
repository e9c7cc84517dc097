"""Graphs of captured steps: what a step returns without having differentiated it, and the backward pass through that.

The results of such a step hang on one node, whose edges are the leaves and the arguments that the step's own graph ends
at. A backward pass that gets there runs a pass of its own through the step's graph, to these ends. It is recorded as
the step is (`backwards`), and replayed where the step was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

from ..autograd.function import FunctionNode
from ..autograd.graph import Leaf, Node, Output, gone, init_node, next_sequence_number, resolve
from ..autograd.passes import BackwardPass, leading_to
from ..errors import AutogradError
from ..observing import NODE, observable
from ..tensor_base import TensorBase, make_tensor
from .places import ARGUMENT, CONSTANT, STATE, TEMPORARY
from .recorder import Recorder
from .results import is_differentiated

if TYPE_CHECKING:
    from ..source_lines import Line
    from ..tensor import Tensor
    from .backwards import Backwards
    from .forwards import ForwardProgram


class Entrance(Node):
    """While a step runs, the node of an argument that requires grad and is no leaf: the step's graph ends there."""

    __slots__ = ("real", "recorder")

    def __init__(self, real: Node, recorder: Recorder | None) -> None:
        init_node(self, None, (real,))
        self.real, self.recorder = real, recorder

    def title(self) -> str:
        return self.real.title()

    def name(self) -> str:
        return self.real.name()

    def run_backward(self, backward: BackwardPass, grad: Any) -> None:
        """The step itself differentiates what its argument was made of."""
        if self.recorder is not None:
            self.recorder.refuse("the step differentiates the graph of an argument")
        backward.add(self.real, grad)


@contextmanager
def entered(tensors: Sequence[Tensor], recorder: Recorder | None) -> Iterator[dict[int, Entrance]]:
    """Within this context the graphs of `tensors` begin with them. Gives the entrances, by position."""
    found: dict[int, Entrance] = {}
    for position, tensor in enumerate(tensors):
        node = resolve(tensor)
        if node is not None and type(node) is not Leaf and type(node) is not Entrance:
            tensor.node = found[position] = Entrance(node, recorder)
    try:
        yield found
    finally:
        for position, entrance in found.items():
            if tensors[position].node is entrance:
                tensors[position].node = entrance.real
            entrance.recorder = None


class End(NamedTuple):
    """Where a step's graph ends: at a leaf (the tensor, weakly) or at the argument at `position`."""

    leaf: Any
    position: int


class StepGraph:
    """The graph that one run of a step has made.

    inner: the nodes of the results that are part of it. inside: all of its nodes. nodes: where it ends, `ends` what
    these are.
    saved: the buffers that it holds, `tensors` the tensors, `holders` what holds those.
    problem: why it cannot be replayed, or None.
    """

    def __init__(
        self,
        results: Sequence[Tensor],
        entrances: dict[int, Entrance],
        start: int,
        was_there: Callable[[Any], bool],
    ) -> None:
        self.inner: list[Any] = [resolve(t) for t in results]
        self.saved: list[Any] = []
        self.tensors: list[Any] = []
        self.holders: list[Any] = []
        self.inside: list[Node] = []
        self.problem: str | None = None
        positions = {entrance: position for position, entrance in entrances.items()}
        found: dict[Node, tuple[int, int]] = {}
        seen, stack = set(self.inner), list(self.inner)
        while stack:
            node = stack.pop()
            if type(node) is Leaf or node in positions or node.sequence_number < start:
                continue
            self.inside.append(node)
            self._note(node)
            for at, edge in enumerate(node.edges):
                if edge is None:
                    continue
                if type(edge) is Leaf or edge in positions:
                    # In the order in which hooks would be called: after the oldest op that uses it.
                    found[edge] = min(found.get(edge, (node.sequence_number, -at)), (node.sequence_number, -at))
                elif edge.sequence_number < start:
                    self.problem = "a result is part of a graph that began before the step, and not with an argument"
                if edge not in seen:
                    seen.add(edge)
                    stack.append(edge)
        self.nodes = sorted(found, key=lambda node: found[node], reverse=True)
        self.ends = []
        for node in self.nodes:
            tensor = node.tensor() if type(node) is Leaf else None
            if type(node) is Leaf and (tensor is None or not was_there(tensor)):
                self.problem = "a result is part of a graph with a leaf that the step makes"
                tensor = None
            self.ends.append(End(None if tensor is None else ref(tensor), positions.get(node, -1)))

    def _note(self, node: Node) -> None:
        kept: list[Any] = [node.saved_inputs]
        self.holders += [node.saved_inputs, node.saved_outputs]
        for entry in node.saved_outputs or ():
            if entry is not None and entry[0] is not None:
                self.saved.append(entry[0])
        if isinstance(node, FunctionNode):
            kept.append(node.context.__dict__)
            self.holders.append(node.context)
        while kept:
            thing = kept.pop()
            if isinstance(thing, TensorBase):
                self.tensors.append(thing)
                self.saved.append(thing.buffer)
                if thing.base is not None:
                    self.tensors.append(thing.base)
            elif isinstance(thing, dict | list | tuple):
                self.holders.append(thing)
                kept += thing.values() if isinstance(thing, dict) else thing

    def described(self) -> Any:
        return [(None if end.leaf is None else id(end.leaf()), end.position) for end in self.ends], len(self.inner)

    def date_back(self, start: int, before: float) -> None:
        """Makes what has happened since `start` as old as if it had happened right before `before`."""
        span = next_sequence_number() - start

        def earlier(number: float) -> float:
            return before - 1 + (number - start) / span if number > start else number

        for node in self.inside:
            node.sequence_number = earlier(node.sequence_number)  # type: ignore[assignment]
            if isinstance(node, FunctionNode):
                node.context._saved_at = earlier(node.context._saved_at)  # type: ignore[assignment]
        for buffer in self.saved:
            if buffer.modified is not None:
                buffer.modified = earlier(buffer.modified[0]), *buffer.modified[1:]

    def let_go(self) -> None:
        self.saved, self.tensors, self.holders = [], [], []


class InnerPass(BackwardPass):
    """The part of a backward pass that is inside of a captured step. `ends` are given to the pass outside."""

    __slots__ = ("ends",)

    def __init__(self, outer: BackwardPass, ends: Sequence[Node]) -> None:
        super().__init__(None if outer.targets is None else {}, outer.retain, outer.create)
        self.ends = frozenset(ends)

    def add(self, node: Node, value: Any) -> None:
        if node in self.ends:
            pending = self.pending
            pending[node] = pending[node] + value if node in pending else value
        else:
            super().add(node, value)


def run_inside(
    outer: BackwardPass,
    inner: Sequence[Node],
    nodes: Sequence[Node],
    needed: Sequence[bool] | None,
    grads: Sequence[Any],
    carried: Sequence[Any],
) -> list[Any]:
    """The gradients at the ends `nodes`, None where none got there (or it went to `.grad`).

    grads: of the results whose nodes are `inner`, None where there is none. carried: what the ends have already, empty
    where none has anything.
    """
    inside = InnerPass(outer, nodes)
    starts = [(node, grad) for node, grad in zip(inner, grads, strict=True) if grad is not None]
    if needed is not None:
        wanted = dict.fromkeys(node for node, want in zip(nodes, needed, strict=True) if want)
        inside.needed = leading_to([node for node, _ in starts], wanted)
    for node, value in zip(nodes, carried, strict=False):
        if value is not None:
            inside.pending[node] = value
    inside.run(starts)
    return [inside.pending.get(node) for node in nodes]


class GraphNode(Node):
    """The node of the results of one run of a captured step.

    tensors, numbers: what the step was called with. output_count: how many results are part of its graph.
    graph: that graph, where the run has made it, and `recorder` what was noted of the run.
    program, memory: of a replayed run, with what it keeps for its backward pass (None once that is freed).
    opened: whether its edges are the nodes of its graph. fed: the numbers that a replayed run drew.
    results: see `ForwardProgram.again`. freed_by: the call that freed it.
    """

    __slots__ = (
        "backwards", "ends", "fed", "freed_by", "graph", "memory", "numbers", "opened", "output_count", "program",
        "recorder", "results", "tensors",
    )  # fmt: skip

    output_count: int
    edges: tuple[Any, ...]
    graph: StepGraph | None
    recorder: Recorder | None
    program: ForwardProgram | None
    memory: list[Any] | None
    fed: Sequence[float]
    numbers: Sequence[float | None]
    results: Sequence[Any]
    freed_by: Line | None

    def __init__(self, backwards: Backwards, ends: Sequence[End], tensors: Sequence[Tensor], count: int) -> None:
        init_node(self, None, tuple([resolve(tensors[at]) if leaf is None else leaf().node for leaf, at in ends]))
        self.backwards, self.ends, self.tensors, self.output_count = backwards, ends, tensors, count
        self.graph = self.recorder = self.program = self.memory = None
        self.opened = False
        self.freed_by = None
        self.fed = self.numbers = self.results = ()

    def title(self) -> str:
        return "captured"

    @observable(NODE, hands_over=True)
    def run_backward(self, backward: BackwardPass, grad: Any) -> None:
        grads = grad if type(grad) is list else [grad]
        del grad
        if backward.create and not self.opened:
            self._open(backward)
        if self.opened:
            for node, value in zip(self.edges, grads, strict=True):
                if node is not None and value is not None and (backward.needed is None or node in backward.needed):
                    backward.add(node, value)
            return
        needed = None
        if backward.needed is not None:
            needed = tuple([edge in backward.needed for edge in self.edges])
        pending = backward.pending
        carried: Sequence[Any] = ()
        if pending:
            carried = [pending.get(edge) for edge in self.edges]
            if needed is not None:
                carried = [value if want else None for value, want in zip(carried, needed, strict=True)]
            if all(value is None for value in carried):
                carried = ()
        values = self.backwards.run(self, backward, grads, needed, carried)
        for edge, value in zip(self.edges, values, strict=True):
            if value is None:
                continue
            if edge in pending:
                pending[edge] = value
            else:
                backward.add(edge, value)
        if not backward.retain:
            self.free(backward.line)

    def _open(self, backward: BackwardPass) -> None:
        """Puts the step's graph in the place of this node's edges: what is made of it now refers to its nodes."""
        graph = self.graph
        if graph is None:
            start = next_sequence_number()
            graph = self.graph = self.backwards.graph_of(self)
            graph.date_back(start, self.sequence_number)
        real: dict[Any, Any] = dict(zip(graph.nodes, self.edges, strict=True))
        for node in graph.inside:
            node.edges = tuple([real.get(edge, edge) for edge in node.edges])
        ends, self.edges, self.opened = self.edges, tuple(graph.inner), True
        if backward.needed is not None:
            backward.needed |= leading_to(self.edges, dict.fromkeys(e for e in ends if e in backward.needed))
        if backward.counts_uses:
            uses: dict[Any, int] = backward.uses  # type: ignore[attr-defined]
            stack: list[Any] = [self]
            while stack:
                for edge in stack.pop().edges:
                    if edge in uses:
                        uses[edge] += 1
                    elif edge is not None and (backward.needed is None or edge in backward.needed):
                        uses[edge] = 1
                        stack.append(edge)
            for edge in ends:
                if edge in uses:
                    uses[edge] -= 1

    def free(self, line: Line | None = None) -> None:
        """Lets go of what is kept for a backward pass. A graph that keeps nothing can be read any number of times."""
        if self.graph is not None:
            self.graph.let_go()
        if self.memory is not None and any(m.buffer is not None for m in self.memory):
            self.memory, self.tensors, self.results = None, (), ()
            self.freed_by = line

    def freed(self) -> AutogradError:
        return gone("a captured step", ("freed by", self.freed_by))


class Memory:
    """A buffer of a step as an argument of its backward pass, from byte `offset` on."""

    __slots__ = ("__weakref__", "buffer", "node", "offset", "spec")

    def __init__(self, buffer: Any, offset: int = 0, spec: Any = None) -> None:
        self.buffer, self.offset, self.spec, self.node = buffer, offset, spec, None


def attach(node: GraphNode, graph: StepGraph, live: Sequence[Tensor]) -> None:
    """Makes `node` that of the results `live`, in the place of their graph."""
    node.graph = graph
    for end in graph.nodes:
        end.edges = ()  # a pass through the step's graph looks no further
    for position, tensor in enumerate(live):
        tensor.node = node if len(live) == 1 else Output(node, position)


def is_live(tensor: Any, recorder: Recorder) -> bool:
    """Whether a result is part of a graph that the step has made and not differentiated."""
    node = resolve(tensor)
    if node is None or recorder.was_there(tensor):
        return False
    return type(node) is not Leaf and is_differentiated(tensor, recorder.start) is False


def with_bases(made: Sequence[Any], was_there: Callable[[Any], bool]) -> list[Any]:
    """The results and, behind them, what several of them are views of: ops in place on one change the others."""
    found = list({id(t): t for t in made}.values())
    bases = [t.base for t in found if t.base is not None and not was_there(t.base)]
    for base in bases:
        if all(base is not t for t in found) and sum(base is b for b in bases) > 1:
            found.append(base)
    return found


def saved_places(graph: StepGraph, recorder: Recorder) -> list[int]:
    """The places of memory that the step's graph holds and that another run of the step has elsewhere."""
    moved = {id(tensor()) for tensor, _ in recorder.moved}
    found = set()
    for buffer in graph.saved:
        for number in recorder.places_of(buffer):
            info = recorder.places[number]
            owner = None if info.owner is None else info.owner()
            if info.kind in (TEMPORARY, ARGUMENT, CONSTANT) or (info.kind == STATE and id(owner) in moved):
                found.add(number)
    return sorted(found)


def saved_state(graph: StepGraph, recorder: Recorder) -> list[Any]:
    """Buffers that the graph holds and that were there before, such as weights: they must not change meanwhile."""
    found = {}
    for buffer in graph.saved:
        number = recorder.numbers.get(id(buffer))
        if number is not None and recorder.places[number].kind == STATE:
            found[number] = buffer
    return list(found.values())


def remade(tensor: Any) -> Any:
    """A tensor like `tensor` on memory of its own, which is nothing else's."""
    spec = tensor.spec
    backend = spec.device.backend
    buffer = backend.allocate(spec.nbytes, spec.device.index)
    backend.copy(buffer, 0, tensor.buffer, tensor.offset * spec.dtype.itemsize, spec.nbytes)
    return make_tensor(spec, buffer)
