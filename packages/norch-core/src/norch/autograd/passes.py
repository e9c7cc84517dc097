"""The pass itself: a loop over a heap of nodes, youngest first. No recursion, each node once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from ..spec import span
from ..tensor_base import TakenOver, make_tensor
from . import graph
from .accumulate import ALONE_BUFFER, leaf_lock
from .graph import Leaf, Node, is_recording, set_recording
from .hooks import call_hooks

if TYPE_CHECKING:
    from ..tensor import Tensor


watcher: Callable[[list[tuple[Node, Tensor]]], Callable[[], None]] | None = None
"""While norch.memory records: called with what a pass starts from; what it returns is called after the pass."""


class BackwardPass:
    """One backward pass: which nodes have a gradient and wait for their turn.

    targets: gradients go into this dict and no `.grad`. needed: the nodes that lead to a target, None for all.
    retain: nodes keep what they saved. create: the pass is recorded. callbacks: see `queue_callback`. line: the call,
    which nodes that are freed will name.
    """

    __slots__ = ("ahead", "callbacks", "create", "heap", "line", "needed", "pending", "retain", "targets")

    counts_uses = False

    def __init__(self, targets: dict[Node, Tensor | None] | None, retain: bool, create: bool) -> None:
        self.targets, self.retain, self.create = targets, retain, create
        self.callbacks: list[Callable[[], Any]] | None = None
        line = graph.line_of_change
        self.line = line and line()
        self.needed: set[Node] | None = None
        self.pending: dict[Node, Any] = {}
        self.heap: list[tuple[int, Node]] = []
        self.ahead: Node | None = None
        """One of the pending nodes, which is not in the heap: in a chain there is no other."""

    def run(self, starts: list[tuple[Node, Tensor]]) -> None:
        """Visits nodes in descending order of their sequence numbers, from `starts`, which are emptied."""
        pending, heap, targets = self.pending, self.heap, self.targets
        before = is_recording()
        after = None if watcher is None else watcher(starts)
        set_recording(self.create)
        try:
            if targets is not None and self.needed is None:
                self.needed = leading_to([node for node, _ in starts], targets)
            needed = self.needed
            for start, seed in starts:
                if needed is None or start in needed:
                    self.add(start, seed)
            starts.clear()
            seed = None  # type: ignore[assignment]  # or something would still hold it
            finish = None
            if self.counts_uses:
                finish = self.finish
                finish(self)
            while heap or self.ahead is not None:
                node = self.ahead
                if node is None or (heap and heap[0][0] < -node.sequence_number):
                    node = heappop(heap)[1]
                else:
                    self.ahead = None
                if node.hooks and type(pending[node]) is not list:
                    pending[node] = call_hooks(node.hooks, pending.pop(node))
                if targets is None:
                    node.run_backward(self, pending.pop(node))
                else:
                    if node in targets:
                        targets[node] = pending[node]
                    if needed.isdisjoint(node.edges):  # type: ignore[union-attr]
                        del pending[node]
                    else:
                        node.run_backward(self, pending.pop(node))
                if finish is not None:
                    finish(node)
            if self.callbacks is not None:
                for callback in self.callbacks:
                    callback()
        finally:
            set_recording(before)
            if after is not None:
                after()

    def finish(self, node: Any) -> None:
        """Where uses are counted: notes that `node`, or the pass itself, has fed its edges."""

    def add(self, node: Node, value: Any) -> None:
        """Adds to the gradient of what `node` made."""
        pending = self.pending
        if node in pending:
            pending[node] = pending[node] + value
            return
        pending[node] = value
        if self.ahead is None:
            self.ahead = node
        else:
            heappush(self.heap, (-node.sequence_number, node))

    def add_part(self, node: Node, position: int, value: Tensor) -> None:
        """`add` for one output of a node that has several: its gradient is the list of theirs."""
        if node not in self.pending:
            self.add(node, [None] * node.output_count)
        parts = self.pending[node]
        parts[position] = value if parts[position] is None else parts[position] + value

    def add_through_view(self, node: Node, edge: Node, value: Tensor) -> bool:
        """Adds the gradient of a view to what its base has so far, in place: no zeros around it, no sum of both.

        False where the base has none yet, or one that something else holds or that lies in memory in another way.
        """
        if self.create:
            return False
        pending = self.pending
        first = node.plan.operands[0]
        if edge in pending:
            if sys.getrefcount(pending[edge]) > ALONE_BUFFER:
                return False
            held = pending[edge]
            if type(held) is list or held.base is not None or held.spec is not first:
                return False
            if sys.getrefcount(held.buffer) > ALONE_BUFFER:
                return False
        elif self.targets is None and type(edge) is Leaf and edge.hooks is None:
            owner = edge.tensor()
            held = None if owner is None else owner._grad  # `accumulate` would add to it in place too, whoever holds it
            if held is None:
                return False
        else:
            return False
        out = node.plan.out
        if held.spec is not first or held.node is not None or node.saved_inputs is None:
            return False
        if node.saved_outputs is None:  # a copy on another device
            return False
        if out.overlaps or value.spec.dtype is not out.dtype or value.spec.shape != out.shape:
            return False
        shift = node.saved_outputs[0][1]
        # `as_strided` may show what its operand does not.
        if node.plan.op.name == "as_strided" and not 0 <= shift <= span(held.spec.shape, held.spec.strides) - span(
            out.shape, out.strides
        ):
            return False
        try:
            with leaf_lock:
                make_tensor(out, held.buffer, held.offset + shift).add_(value)
        except TakenOver:
            return False
        return True


def leading_to(roots: Iterable[Node], targets: dict[Node, Any]) -> set[Node]:
    """The targets below `roots`, and the nodes from which one can be reached.

    Of nodes that are older than every target none is looked at: their edges lead to older ones yet.
    """
    oldest = min((node.sequence_number for node in targets), default=0)
    seen = {root for root in roots if targets and root.sequence_number >= oldest}
    stack = list(seen)
    while stack:
        for edge in stack.pop().edges:
            if edge is not None and edge.sequence_number >= oldest and edge not in seen:
                seen.add(edge)
                stack.append(edge)
    leading: set[Node] = set()
    for node in sorted(seen, key=lambda n: n.sequence_number):
        if node in targets or any(e in leading for e in node.edges):
            leading.add(node)
    return leading


_LAST_FIRST = frozenset({"linear", "linear_activation"})
"""The ops whose leaves have their turns in the opposite order of the operands: PyTorch's `addmm` has the bias first."""


class CountingPass(BackwardPass):
    """A pass that counts, before it begins, how often each node will be fed.

    A leaf is older than any op, so in the order of the heap it would come last. Here it comes right after the op that
    uses up its count. edges: what the pass itself feeds, the nodes it starts from. uses: how often each node is yet to
    be fed, with a gradient or None. into_grad: the targets that are leaves go into their `.grad` nevertheless.
    """

    __slots__ = ("counts_uses", "edges", "into_grad", "uses")

    plan = None

    def __init__(self, targets: Any, retain: bool, create: bool, into_grad: bool) -> None:
        super().__init__(targets, retain, create)
        self.into_grad = into_grad

    def run(self, starts: list[tuple[Node, Tensor]]) -> None:
        self.edges = tuple(node for node, _ in starts)
        if self.targets is not None:
            self.needed = leading_to(self.edges, self.targets)
        self.counts_uses = self._count()
        super().run(starts)

    def add(self, node: Node, value: Any) -> None:
        if type(node) is not Leaf or not self.counts_uses or node in self.pending:
            super().add(node, value)
        else:
            self.pending[node] = value

    def _count(self) -> bool:
        """Fills `uses`. False where no leaf below has hooks, and there is nothing to count."""
        self.uses = uses = dict[Any, int]()
        needed, found = self.needed, False
        stack: list[Any] = [self]
        while stack:
            for edge in stack.pop().edges:
                if edge in uses:
                    uses[edge] += 1
                elif edge is not None and (needed is None or edge in needed):
                    uses[edge] = 1
                    if edge.edges:
                        stack.append(edge)
                    elif edge.hooks is not None and type(edge) is Leaf:
                        found = True
        return found

    def finish(self, node: Any) -> None:
        """Gives those leaves their turn that `node` was the last to feed.

        So nodes are finished that got no gradient from anything, since they will feed nothing.
        """
        uses, pending = self.uses, self.pending
        stack = [node]
        while stack:
            node = stack.pop()
            edges = node.edges
            if node.plan is not None and node.plan.op.name in _LAST_FIRST:
                edges = edges[::-1]
            for edge in edges:
                left = uses.get(edge)
                if left is None:
                    continue
                if left > 1:
                    uses[edge] = left - 1
                    continue
                del uses[edge]
                if type(edge) is Leaf:
                    if edge.hooks is not None or edge in pending:
                        self._visit(edge)
                elif edge not in pending:
                    stack.append(edge)

    def _visit(self, leaf: Leaf) -> None:
        pending, targets = self.pending, self.targets
        if targets is not None and leaf not in targets:
            pending.pop(leaf, None)
            return
        if leaf.hooks and leaf in pending:
            pending[leaf] = call_hooks(leaf.hooks, pending.pop(leaf))
        if targets is None or self.into_grad:
            leaf.run_backward(self, pending.pop(leaf, None))
        else:
            targets[leaf] = pending.pop(leaf, None)
