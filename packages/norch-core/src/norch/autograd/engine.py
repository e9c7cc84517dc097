"""The backward pass: a loop over a heap of nodes, youngest first. No recursion, each node once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from ..errors import AutogradError, DTypeError, ShapeError
from ..spec import span
from ..tensor_base import TakenOver, make_tensor
from .accumulate import ALONE_BUFFER, accumulate, leaf_lock, shared_ops
from .graph import Leaf, Node, is_recording, resolve, set_recording

if TYPE_CHECKING:
    from ..tensor import Tensor


_SEQUENCES = (tuple, list)  # `tuple | list` is built at each use


def backward(
    tensors: Tensor | Sequence[Tensor],
    grad_tensors: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:
    """Adds the gradients of `tensors` to the `.grad` of the leaves that they depend on (or of `inputs` only).

    grad_tensors: the gradient of each tensor, of its shape; may be left out for tensors of one element.
    retain_graph: keep what the graph saved, so that it can be differentiated again. Default: `create_graph`.
    create_graph: record the backward pass, so that its results can be differentiated.

    Raises AutogradError where a tensor does not require grad, is no scalar and has no gradient given, where the graph
    was freed before, or where a saved tensor was changed in place.
    """
    if inputs is None:
        if grad_tensors is None and not isinstance(tensors, _SEQUENCES):
            starts = [_start(tensors, None, "backward")]  # type: ignore[arg-type]
        else:
            starts = _starts(tensors, grad_tensors, "backward")
        BackwardPass(None, bool(create_graph if retain_graph is None else retain_graph), create_graph).run(starts)
        return
    wanted = _as_list(inputs)
    found = grad(tensors, wanted, grad_tensors, retain_graph, create_graph, allow_unused=True)
    for tensor, value in zip(wanted, found, strict=True):
        if value is not None:
            accumulate(tensor, value, create_graph)


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """The gradients of `outputs` with respect to `inputs`, without touching any `.grad`.

    only_inputs and is_grads_batched are PyTorch's: the first says what is so anyway, the second must be False.
    Raises AutogradError as `backward` does, and for an input that the outputs do not depend on, unless `allow_unused`
    (its gradient is then None) or `materialize_grads` (then zeros).
    """
    if is_grads_batched:
        raise NotImplementedError("grad(): there is no is_grads_batched; call grad for each of the grad_outputs")
    ins = _as_list(inputs)
    starts = _starts(outputs, grad_outputs, "grad")
    targets: dict[Node, Tensor | None] = {}
    nodes = []
    for tensor in ins:
        node = resolve(tensor)
        if node is None:
            raise AutogradError("grad(): an input does not require grad; mark it with requires_grad_()")
        nodes.append(node)
        targets[node] = None
    BackwardPass(targets, bool(create_graph if retain_graph is None else retain_graph), create_graph).run(starts)
    found = [targets[node] for node in nodes]
    if not create_graph:  # they are the caller's, to be changed in place, which repeated elements cannot be
        found = [g.clone() if g is not None and g.spec.overlaps else g for g in found]
    if materialize_grads:
        found = [t.new_zeros(t.shape) if g is None else g for g, t in zip(found, ins, strict=True)]
    elif not allow_unused and any(g is None for g in found):
        at = next(i for i, g in enumerate(found) if g is None)
        raise AutogradError(
            f"grad(): the outputs do not depend on input {at}; pass allow_unused=True to get None for it"
        )
    return tuple(found)


def _as_list(tensors: Any) -> list[Tensor]:
    return list(tensors) if isinstance(tensors, _SEQUENCES) else [tensors]


def _starts(outputs: Any, grads: Any, caller: str) -> list[tuple[Node, Tensor]]:
    """Where a backward pass begins: the node of each output, and its gradient."""
    if not isinstance(outputs, _SEQUENCES):
        return [_start(outputs, grads[0] if isinstance(grads, _SEQUENCES) and len(grads) == 1 else grads, caller)]
    given = [None] * len(outputs) if grads is None else _as_list(grads)
    if len(given) != len(outputs):
        raise AutogradError(f"{caller}(): {len(outputs)} tensors but {len(given)} gradients")
    return [_start(tensor, seed, caller) for tensor, seed in zip(outputs, given, strict=True)]


def _start(tensor: Tensor, seed: Any, caller: str) -> tuple[Node, Tensor]:
    node = tensor.node if tensor.base is None else resolve(tensor)
    if node is None:
        raise AutogradError(
            f"{caller}(): a tensor of shape {tuple(tensor.shape)} does not require grad: no operand of the ops "
            "that made it has requires_grad=True, or they ran under no_grad()"
        )
    spec = tensor.spec
    if seed is None:
        if spec.numel != 1:
            raise AutogradError(
                f"{caller}(): a gradient can be made up only for a scalar, not for shape {tuple(spec.shape)}; "
                "reduce it (sum, mean) or pass the gradient"
            )
        return node, shared_ops["fill"](spec if spec.is_contiguous else spec.like(), 1)
    if isinstance(seed, _SEQUENCES):
        raise AutogradError(f"{caller}(): 1 tensors but {len(seed)} gradients")
    if seed.spec.shape != spec.shape:
        raise ShapeError(
            f"{caller}(): gradient of shape {tuple(seed.shape)} for a tensor of shape {tuple(tensor.shape)}"
        )
    if not seed.spec.dtype.is_floating_point:
        raise DTypeError(f"{caller}(): gradient of dtype {seed.dtype} for a tensor of dtype {tensor.dtype}")
    return node, seed


class BackwardPass:
    """One backward pass: which nodes have a gradient and wait for their turn.

    targets: gradients go into this dict and no `.grad`. needed: the nodes that lead to a target, None for all.
    retain: nodes keep what they saved. create: the pass is recorded.
    """

    __slots__ = ("ahead", "create", "heap", "needed", "pending", "retain", "targets")

    def __init__(self, targets: dict[Node, Tensor | None] | None, retain: bool, create: bool) -> None:
        self.targets, self.retain, self.create = targets, retain, create
        self.needed: set[Node] | None = None
        self.pending: dict[Node, Any] = {}
        self.heap: list[tuple[int, Node]] = []
        self.ahead: Node | None = None
        """One of the pending nodes, which is not in the heap: in a chain there is no other."""

    def run(self, starts: list[tuple[Node, Tensor]]) -> None:
        """Visits nodes in descending order of their sequence numbers, from `starts`, which are emptied."""
        pending, heap, targets = self.pending, self.heap, self.targets
        before = is_recording()
        set_recording(self.create)
        try:
            for start, seed in starts:
                self.add(start, seed)
            starts.clear()
            seed = None  # type: ignore[assignment]  # or something would still hold it
            if targets is not None:
                self.needed = _leading_to(list(pending), targets)
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
                    continue
                if node in targets:
                    targets[node] = pending[node]
                if self.needed.isdisjoint(node.edges):  # type: ignore[union-attr]
                    del pending[node]
                else:
                    node.run_backward(self, pending.pop(node))
        finally:
            set_recording(before)

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
        if held.spec is not first or held.node is not None or node.saved_outputs is None:
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


def _leading_to(roots: list[Node], targets: dict[Node, Any]) -> set[Node]:
    """The targets below `roots`, and the nodes from which one can be reached."""
    seen = set(roots)
    stack = list(roots)
    while stack:
        for edge in stack.pop().edges:
            if edge is not None and edge not in seen:
                seen.add(edge)
                stack.append(edge)
    leading: set[Node] = set()
    for node in sorted(seen, key=lambda n: n.sequence_number):
        if node in targets or any(e in leading for e in node.edges):
            leading.add(node)
    return leading


def call_hooks(hooks: dict[int, Any], value: Tensor) -> Tensor:
    for hook in list(hooks.values()):
        changed = hook(value)
        if changed is not None:
            value = changed
    return value
