"""The graph: a node for each recorded op.

`Tensor.node` says how a tensor came to be:

- None: it is a constant.
- a Leaf: it requires grad, and its gradient is gathered in `.grad`.
- another Node: an op computed it.
- UNTRACKED: it is a view of a tensor that was a constant when the view was made. An in-place op may have changed
  that since, so the base is asked (`resolve`).
"""

from __future__ import annotations

from contextvars import ContextVar
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import ref

from ..errors import AutogradError

if TYPE_CHECKING:
    from ..dispatch.op import Plan
    from ..tensor import Tensor

tick = count(1).__next__
"""The clock that orders nodes and in-place changes."""


_grad_mode = ContextVar("grad_mode", default=True)
is_recording = _grad_mode.get
"""Whether ops are recorded: by thread (and by asyncio task), since a context variable is read faster than a thread
local."""
set_recording = _grad_mode.set

RETAIN = -1
"""The key, among a node's hooks, of the one that `retain_grad` sets."""


class Node:
    """A recorded op.

    order: when it was recorded; the backward pass visits nodes by falling order.
    edges: for each tensor operand of the op the node that made it, or None where no gradient is wanted.
    values: the op's arguments, None for tensors that no rule needs; None once the backward pass has freed them.
    result: buffers and offsets of the results where a rule needs those, else None. Of a view (no buffer, how far behind
        its operand's first element it starts).
    hooks: called with the gradient of the result; None or a dict.
    """

    __slots__ = ("edges", "hooks", "order", "plan", "result", "values")

    order: int
    plan: Plan
    edges: tuple[Node | None, ...]
    values: tuple[Any, ...] | None
    result: tuple[tuple[Any, int], ...] | None
    hooks: dict[int, Any] | None

    def name(self) -> str:
        return f"{self.plan.op.name}_backward"

    def __repr__(self) -> str:
        return f"<{self.name()}>"

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """PyTorch's view of `edges`: (node, output index) pairs."""
        return tuple((e.edges[0], e.position) if isinstance(e, Output) else (e, 0) for e in self.edges)

    def apply(self, grad: Any) -> tuple[Tensor | None, ...]:
        """The gradients of the op's operands, one for each edge, from that of the result (a tuple for several)."""
        bound = self.plan.op.bound
        if self.plan.op.joint:
            joint = bound[0]
            assert joint is not None
            result: tuple[Tensor | None, ...] = joint(self, grad)
            return result
        return tuple(
            [rule(self, grad) if e is not None and rule else None for e, rule in zip(self.edges, bound, strict=True)]
        )

    def saved_result(self) -> Any:
        """The result, or results, as tensors on the saved memory."""
        if self.result is None:
            raise self.freed()
        outputs = self.plan.outputs
        if len(outputs) == 1:
            ((buffer, offset),) = self.result
            result = _tensor(outputs[0], buffer, offset, self)
            modified = buffer.modified
            if modified is not None and modified[0] > self.order:
                self.check_unchanged(result, "its result")
            return result
        results = []
        for i, (buffer, offset) in enumerate(self.result):
            result = _tensor(outputs[i], buffer, offset, Output(self, i))
            self.check_unchanged(result, "its result")
            results.append(result)
        return tuple(results)

    def check_unchanged(self, value: Tensor, what: str) -> None:
        modified = value.buffer.modified
        if modified is not None and modified[0] > self.order:
            raise AutogradError(
                f"backward(): {self.plan.op.name} needs {what} of shape {tuple(value.spec.shape)} for its gradient, "
                f"but {modified[1]} has changed it in place since; use an out-of-place op instead of {modified[1]}, "
                f"or give {self.plan.op.name} a clone()"
            )

    def freed(self) -> AutogradError:
        return AutogradError(
            f"backward(): what {self.plan.op.name} saved for its gradient is gone: this graph was differentiated "
            f"before; pass retain_graph=True to the earlier call"
        )

    def release(self) -> None:
        """Frees what the rules need; a second backward pass through here then fails."""
        self.values = self.result = None


class Leaf(Node):
    """The node of a tensor that a user marked with `requires_grad`. It does not keep that tensor alive."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.order = tick()
        self.edges = ()
        self.values = self.result = self.hooks = None
        self.tensor = ref(tensor)

    def name(self) -> str:
        return "accumulate_grad"

    def release(self) -> None:
        pass


class Output(Node):
    """One result of an op that has several: hands its gradient on as that result's."""

    __slots__ = ("position",)

    def __init__(self, parent: Node, position: int) -> None:
        self.order = tick()
        self.edges = (parent,)
        self.values = self.result = self.hooks = None
        self.position = position

    def name(self) -> str:
        parent = self.edges[0]
        assert parent is not None
        return parent.name()

    def release(self) -> None:
        pass


class Untracked(Node):
    __slots__ = ()


UNTRACKED: Any = Untracked()
"""The node of a view whose base was a constant when the view was made."""

_tensor_types: set[type] = set()
_tensor: Any = None


def bind(tensor: Any, types: set[type]) -> None:
    """Tells this module how to make tensors (it is loaded before their class is)."""
    global _tensor, _tensor_types
    _tensor, _tensor_types = tensor, types


def resolve(tensor: Tensor) -> Node | None:
    """The node of `tensor` as of now: a view of what an in-place op has changed gets a new one from its base's."""
    node: Node | None = tensor.node
    if node is None:
        return None
    base = tensor.base
    if base is None:
        return node
    if node is UNTRACKED:
        made: Node | None = base.node
        if made is None or type(made) is Leaf:
            return None
    else:
        modified = tensor.buffer.modified
        if modified is None or modified[0] < node.order:
            return node
        made = base.node
        if made is None:
            return node
    from ..ops.shape.strided import view_plan

    fresh = Node()
    fresh.order, fresh.edges, fresh.hooks = tick(), (made,), None
    fresh.plan, fresh.values, fresh.result = view_plan(base, tensor)
    tensor.node = fresh
    return fresh


def record(plan: Plan, args: tuple[Any, ...], outputs: tuple[Tensor, ...]) -> None:
    """Records that `plan` computed `outputs` from `args`, if that is wanted and any operand needs a gradient."""
    op = plan.op
    rules = op.rules
    if rules is None or not is_recording():
        return
    edges: list[Node | None] = []
    wanted = 0
    for at, rule in zip(op.tensors, rules, strict=True):
        edge = None
        if rule is not None:
            value = args[at]
            if type(value) in _tensor_types:
                edge = value.node
                if edge is not None and value.base is not None:
                    edge = resolve(value)
                if edge is not None:
                    wanted |= 1 << at
        edges.append(edge)
    if not wanted:
        return
    keeps, keeps_result = op.keeps[wanted]
    node = Node()
    node.order = tick()
    node.plan = plan
    node.edges = tuple(edges)
    node.hooks = None
    node.values = args if keeps is None else tuple([v if k else None for v, k in zip(args, keeps, strict=True)])
    node.result = tuple([(t.buffer, t.offset) for t in outputs]) if keeps_result else None
    if len(outputs) == 1:
        outputs[0].node = node
    else:
        for i, output in enumerate(outputs):
            if output.spec.dtype.is_floating_point:
                output.node = Output(node, i)


def record_unary(plan: Plan, input: Tensor, out: Tensor) -> None:
    """`record` for one operand and one result. The caller has seen that ops are recorded."""
    edge = input.node if input.base is None else resolve(input)
    if edge is not None:
        keeps, keeps_result = plan.op.keeps[1]
        node = Node()
        node.order = tick()
        node.plan = plan
        node.edges = (edge,)
        node.hooks = None
        node.values = (input,) if keeps is None else (None,)
        node.result = ((out.buffer, out.offset),) if keeps_result else None
        out.node = node


def record_scalar(plan: Plan, input: Tensor, other: float, out: Tensor) -> None:
    """`record_unary` for a binary op whose second operand is a scalar."""
    edge = input.node if input.base is None else resolve(input)
    if edge is not None:
        keeps, keeps_result = plan.op.keeps[1]
        node = Node()
        node.order = tick()
        node.plan = plan
        node.edges = (edge, None)
        node.hooks = None
        node.values = (input if keeps is None or keeps[0] else None, other)
        node.result = ((out.buffer, out.offset),) if keeps_result else None
        out.node = node
