"""The backward pass: a loop over a heap of nodes, youngest first. No recursion, each node once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from ..errors import AutogradError, DTypeError, ShapeError
from .graph import Leaf, Node, Output, is_recording, resolve, set_recording

if TYPE_CHECKING:
    from ..spec import Spec
    from ..tensor import Tensor


_SEQUENCES = (tuple, list)  # `tuple | list` is made anew at each call
_fill: Any = None
_sum: Any = None
_tensor: Any = None
anomaly_check: Any = None
"""Called with the name of an op, the position of an operand and its gradient; None unless anomaly mode is on."""


def bind(fill: Any, total: Any, tensor: Any) -> None:
    """Tells this module how to fill a tensor of a spec, sum one and make one (it is loaded before any op is)."""
    global _fill, _sum, _tensor
    _fill, _sum, _tensor = fill, total, tensor


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
        run(starts, None, bool(create_graph if retain_graph is None else retain_graph), create_graph)
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
    allow_unused: bool | None = None,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """The gradients of `outputs` with respect to `inputs`, without touching any `.grad`.

    Raises AutogradError as `backward` does, and for an input that the outputs do not depend on, unless `allow_unused`
    (its gradient is then None) or `materialize_grads` (then zeros).
    """
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
    run(starts, targets, bool(create_graph if retain_graph is None else retain_graph), create_graph)
    found = [targets[node] for node in nodes]
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
        return node, _fill(spec if spec.is_contiguous else spec.like(), 1)
    if isinstance(seed, _SEQUENCES):
        raise AutogradError(f"{caller}(): 1 tensors but {len(seed)} gradients")
    if seed.spec.shape != spec.shape:
        raise ShapeError(
            f"{caller}(): gradient of shape {tuple(seed.shape)} for a tensor of shape {tuple(tensor.shape)}"
        )
    if not seed.spec.dtype.is_floating_point:
        raise DTypeError(f"{caller}(): gradient of dtype {seed.dtype} for a tensor of dtype {tensor.dtype}")
    return node, seed


def run(
    starts: list[tuple[Node, Tensor]],
    targets: dict[Node, Tensor | None] | None,
    retain: bool,
    create: bool,
) -> None:
    """One backward pass: into the leaves' `.grad`, or, given `targets`, into that dict only."""
    pending: dict[Node, Any] = {}
    heap: list[tuple[int, Node]] = []
    ahead: Node | None = None  # one of the pending nodes, which is not in the heap: in a chain there is no other
    before = is_recording()
    set_recording(create)
    try:
        for start, seed in starts:
            _add(pending, heap, start, seed)
        starts.clear()
        seed = None  # type: ignore[assignment]
        needed = None if targets is None else _leading_to(list(pending), targets)
        while heap or ahead is not None:
            if ahead is None or (heap and heap[0][0] < -ahead.order):
                node = heappop(heap)[1]
            else:
                node, ahead = ahead, None
            total = pending.pop(node)
            if node.hooks and type(total) is not list:
                total = call_hooks(node.hooks, total)
            if targets is not None and node in targets:
                targets[node] = total
            if needed is not None and node not in needed:
                continue
            if type(node) is Leaf:
                owner = node.tensor()
                if targets is None and owner is not None:
                    accumulate(owner, total, create)
                    if node.hooks is not None:
                        for hook in list(owner.__dict__.get("_after_grad", {}).values()):
                            hook(owner)
                continue
            if type(node) is Output:
                parent = node.edges[0]
                assert parent is not None
                _add_part(pending, heap, parent, node.position, total)
                continue
            if type(total) is list:
                total = tuple(total)
            if type(node) is not Node:
                for edge, value in zip(node.edges, node.apply(total), strict=True):
                    if edge is not None and value is not None and (needed is None or edge in needed):
                        if anomaly_check is not None:
                            anomaly_check(node.name().removesuffix("_backward"), node.edges.index(edge), value)
                        _add(pending, heap, edge, value)
                if not retain:
                    node.release()
            else:
                plan = node.plan
                op, to_leaves = plan.op, targets is None
                joint = list(op.bound[0](node, total)) if op.joint else None  # type: ignore[misc]
                for i, edge in enumerate(node.edges):
                    if edge is None or (needed is not None and edge not in needed):
                        continue
                    if joint is None:
                        if op.kind == "view" and not create and _add_through(node, pending, edge, total, to_leaves):
                            continue
                        value = op.bound[i](node, total)  # type: ignore[misc]
                    else:
                        value, joint[i] = joint[i], None
                    if value is None:
                        continue
                    if anomaly_check is not None:
                        anomaly_check(op.name, i, value)
                    spec = plan.inputs[op.tensors[i]]
                    if value.spec is not spec:
                        value = conform(value, spec)
                    if type(edge) is Leaf and targets is None and edge.hooks is None:
                        owner = edge.tensor()
                        if owner is not None:
                            accumulate(owner, value, create)
                    elif edge in pending:
                        pending[edge] = pending[edge] + value
                    else:
                        pending[edge] = value
                        if ahead is None:
                            ahead = edge
                        else:
                            heappush(heap, (-edge.order, edge))
                if not retain:
                    node.values = node.result = None
            value = total = None  # or `accumulate` would find that something holds them
    finally:
        set_recording(before)


def _add_through(node: Node, pending: dict[Node, Any], edge: Node, value: Tensor, to_leaves: bool) -> bool:
    """Adds the gradient of a view to what its base has so far, in place: no zeros around it, no sum of both.

    False where the base has none yet, or one that something else holds or that lies in memory in another way.
    """
    plan = node.plan
    if edge in pending:
        if sys.getrefcount(pending[edge]) > _ALONE:
            return False
        held = pending[edge]
        if type(held) is list or held.base is not None or sys.getrefcount(held.buffer) > _ALONE:
            return False
    elif to_leaves and type(edge) is Leaf and edge.hooks is None:
        owner = edge.tensor()
        held = None if owner is None else owner._grad  # `accumulate` would add to it in place too, whoever holds it
        if held is None:
            return False
    else:
        return False
    out = plan.out
    if held.spec is not plan.inputs[0] or held.node is not None or node.result is None:
        return False
    if out.overlaps or value.spec.dtype is not out.dtype or value.spec.shape != out.shape:
        return False
    _tensor(out, held.buffer, held.offset + node.result[0][1]).add_(value)
    return True


def _add(pending: dict[Node, Any], heap: list[tuple[int, Node]], node: Node, value: Tensor) -> None:
    seen = pending.get(node)
    if seen is None:
        pending[node] = value
        heappush(heap, (-node.order, node))
    else:
        pending[node] = seen + value


def _add_part(pending: dict[Node, Any], heap: list[tuple[int, Node]], node: Node, at: int, value: Tensor) -> None:
    parts = pending.get(node)
    if parts is None:
        outputs = len(node.plan.outputs) if hasattr(node, "plan") else node.outputs  # type: ignore[attr-defined]
        parts = pending[node] = [None] * outputs
        heappush(heap, (-node.order, node))
    parts[at] = value if parts[at] is None else parts[at] + value


def _leading_to(roots: list[Node], targets: dict[Node, Any]) -> set[Node]:
    """The nodes below `roots` from which a target can be reached, targets excluded unless another lies below them."""
    seen = set(roots)
    stack = list(roots)
    while stack:
        for edge in stack.pop().edges:
            if edge is not None and edge not in seen:
                seen.add(edge)
                stack.append(edge)
    leading: set[Node] = set()
    for node in sorted(seen, key=lambda n: n.order):
        if node in targets or any(e in leading for e in node.edges):
            leading.add(node)
    return leading


def conform(value: Tensor, spec: Spec) -> Tensor:
    """A gradient brought to the shape and dtype of its operand: summed over the dims that were broadcast."""
    shape = value.spec.shape
    if shape != spec.shape:
        lead = len(shape) - len(spec.shape)
        if shape[lead:] == spec.shape:
            value = _sum(value, tuple(range(lead)))
        else:
            value = _sum(value, tuple([i for i, n in enumerate(shape) if i < lead or n != spec.shape[i - lead]]), True)
            if lead:
                value = value.reshape(spec.shape)
    if value.spec.dtype is not spec.dtype or value.spec.device is not spec.device:
        value = value.to(spec.device, spec.dtype)
    return value


def call_hooks(hooks: dict[int, Any], value: Tensor) -> Tensor:
    for hook in list(hooks.values()):
        changed = hook(value)
        if changed is not None:
            value = changed
    return value


def _references(value: Any) -> int:
    return sys.getrefcount(value)


def _of_one_variable() -> int:
    variable = object()
    return _references(variable)


# What sys.getrefcount says of a buffer that one tensor alone holds, and, one call down, of a tensor that one variable
# alone holds; the latter differs between versions of Python.
_ALONE, _ALONE_TENSOR = 2, _of_one_variable()


def accumulate(tensor: Tensor, value: Tensor, create: bool) -> None:
    """Adds `value` to `tensor.grad`; takes it over without a copy where nothing else holds its memory."""
    old = tensor._grad
    if old is not None:
        if create:
            tensor._grad = old + value
        else:
            old.add_(value)
        return
    if not create:
        spec = value.spec
        if (
            sys.getrefcount(value) > _ALONE_TENSOR
            or sys.getrefcount(value.buffer) > _ALONE
            or value.buffer.nbytes != spec.nbytes
            or spec.overlaps
        ):
            value = value.detach().clone()
        elif value.node is not None or value.base is not None:
            value = value.detach()
    tensor._grad = value
