"""The graph: a node for each recorded op.

`Tensor.node` says how a tensor came to be:

- None: it is a constant.
- a Leaf: it requires grad, and its gradient is gathered in `.grad`.
- another Node: an op computed it.
- UNTRACKED: it is a view of a tensor that was a constant when the view was made. An in-place op may have changed
  that since, so the base is asked (`resolve`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from importlib import import_module
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import ref

from .. import shown
from ..errors import AutogradError
from ..observing import NODE, observable
from ..source_lines import Line, table
from ..submodules import late_submodules
from ..tensor_base import TensorBase, make_tensor
from .accumulate import ALONE, accumulate, shared_ops, unbroadcast
from .hooks import HooksOfLeaf, RemovableHandle, hooks_of
from .rules import ALL

if TYPE_CHECKING:
    from ..dispatch.plan import Plan
    from ..tensor import Tensor
    from .passes import BackwardPass

next_sequence_number = count(1).__next__
"""The clock that orders nodes and in-place changes."""


_grad_mode = ContextVar("grad_mode", default=True)
is_recording = _grad_mode.get
"""Whether ops are recorded: by thread (and by asyncio task), since a context variable is read faster than a thread
local."""
set_recording = _grad_mode.set

RETAIN = -1
"""The key, among a node's hooks, of the one that `retain_grad` sets."""

anomaly_check: Callable[[Node, int, Tensor], None] | None = None
"""Called with a node, the position of an operand and its gradient; None unless anomaly mode is on, or detect_nan."""


line_of_change: Callable[[], Line | None] | None = None
"""What tells the line that changes a tensor in place, or None where that is not noted."""

rebase: Callable[[Tensor, Node | None], None]
"""Makes a node how a changed tensor, and what it is a view of, came to be: `tensor.rebasing`'s."""


class Node:
    """A recorded op.

    sequence_number: when it was recorded; the backward pass visits nodes in descending order.
    edges: for each tensor operand of the op the node that made it, or None where no gradient is wanted.
    saved_inputs: the op's arguments, None for tensors that no rule needs; None once the backward pass has freed them.
    saved_outputs: buffers and offsets of the outputs where a rule needs those, else None. Of a view (no buffer, how far
        behind its operand's first element it starts). Of a freed node None, or no buffer and the line that freed it.
    line: where the program recorded it, or None where that was not noted (see `record_lines`).
    hooks: called with the gradient of the result; None or a dict.
    packs: whether hooks of `norch.autograd.saving` have what it saves.
    """

    __slots__ = ("edges", "hooks", "plan", "saved_inputs", "saved_outputs", "sequence_number")

    sequence_number: int
    plan: Plan
    edges: tuple[Node | None, ...]
    saved_inputs: tuple[Any, ...] | None
    saved_outputs: Sequence[Any] | None
    hooks: dict[int, Any] | None
    kind_of_hooks: type[dict[int, Any]] = dict
    line: Line | None = None
    packs = False

    def title(self) -> str:
        """What made it: the op's name."""
        return self.plan.op.name

    def name(self) -> str:
        """What the graph calls it: the op's name and "_backward"; in the place of PyTorch as that does,
        "MulBackward0"."""
        title = self.title()
        if shown.root == "norch":
            return f"{title}_backward"
        return "".join([part[:1].upper() + part[1:] for part in title.split("_")]) + "Backward0"

    def __repr__(self) -> str:
        return f"<{self.name()}>"

    def __dir__(self) -> list[str]:
        return import_module("norch.autograd.saved_names").listed(self, super().__dir__())  # type: ignore[no-any-return]

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """PyTorch's view of `edges`: (node, output index) pairs."""
        return tuple((e.edges[0], e.position) if isinstance(e, Output) else (e, 0) for e in self.edges)

    @property
    def output_count(self) -> int:
        """How many outputs the op has."""
        return len(self.plan.outputs)

    def register_prehook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls `hook(grads)` with the gradients of the op's results, before those of its operands are computed.

        A tuple that it returns replaces them.
        """
        return import_module("norch.autograd.node_hooks").before(self, hook)  # type: ignore[no-any-return]

    def register_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls `hook(grads, grads_of_results)` with the gradients of the op's operands, None for those without one.

        A tuple that it returns is handed on in their place.
        """
        return import_module("norch.autograd.node_hooks").after(self, hook)  # type: ignore[no-any-return]

    @observable(NODE, hands_over=True)
    def run_backward(self, backward: BackwardPass, grad: Any) -> None:
        """Hands each edge that wants one the gradient of its operand; `grad` is that of the output, a list of several.

        A node that is read again, as `retain_graph` asks, keeps what it saved; one that saved no tensor always does.
        """
        plan = self.plan
        op, needed, to_leaves = plan.op, backward.needed, backward.targets is None
        bound, operands = op.bound, plan.operands
        if type(grad) is list:
            grad = tuple(grad)
        joint = list(bound[0](self, grad, needed)) if op.joint else None  # type: ignore[misc]
        for i, edge in enumerate(self.edges):
            if edge is None or (needed is not None and edge not in needed):
                continue
            if joint is None:
                if op.kind == "view" and backward.add_through_view(self, edge, grad):
                    continue
                value = bound[i](self, grad)  # type: ignore[misc]
            else:
                value, joint[i] = joint[i], None
            if value is None:
                continue
            if anomaly_check is not None:
                anomaly_check(self, i, value)
            spec = operands[i]
            if value.spec is not spec:
                value = unbroadcast(value, spec)
            if type(edge) is Leaf and to_leaves and edge.hooks is None:
                owner = edge.tensor()
                if owner is not None:
                    accumulate(owner, value, backward.create, ALONE)
            else:
                backward.add(edge, value)
            value = None
        if not backward.retain and op.saves_tensors:
            self.free(backward.line)

    def free(self, line: Line | None = None) -> None:
        """Lets go of saved tensors. A node that has none, such as that of `x * 2`, can be read any number of times."""
        if self.saved_outputs is None:
            for value in self.saved_inputs or ():
                if isinstance(value, TensorBase):
                    break
            else:
                return
        self.saved_inputs = None
        self.saved_outputs = None if line is None else ((None, line),)

    def saved_result(self, at: int | None = None) -> Any:
        """The saved output `at`; for None the only one, or a tuple of several."""
        saved, specs = self.saved_outputs, self.plan.outputs
        if saved is None or self.saved_inputs is None:
            raise self.freed()
        if at is None:
            if len(specs) > 1:
                return tuple([self.saved_result(i) for i in range(len(specs))])
            at = 0
        buffer, offset = saved[at]
        result = make_tensor(specs[at], buffer, offset, self if len(specs) == 1 else Output(self, at))
        modified = buffer.modified
        if modified is not None and modified[0] > self.sequence_number:
            self.check_unchanged(result, "its result")
        return result

    def check_unchanged(self, value: Tensor, what: str) -> None:
        """Raises AutogradError where `value`, which was saved as `what`, has been changed in place since."""
        modified = value.buffer.modified
        if modified is not None and modified[0] > self.sequence_number:
            name = self.plan.op.name
            raise AutogradError(
                f"backward(): {name} needs {what} of shape {tuple(value.spec.shape)} for its gradient, but "
                f"{modified[1]} has changed it in place since; use an out-of-place op instead of {modified[1]}, or "
                f"give {name} a clone()" + table((f"saved by {name}", self.line), change(modified))
            )

    def freed(self) -> AutogradError:
        """The error of a second backward pass, which finds nothing saved."""
        name, freed = self.plan.op.name, self.saved_outputs
        return gone(name, (f"saved by {name}", self.line), ("freed by", None if freed is None else freed[0][1]))


node_class: Callable[[], Any] = Node
"""What makes the node of a recorded op: see norch.autograd.lines."""


def changed_by(name: str) -> tuple[int, str, Line | None]:
    """What `buffer.modified` is after an op has changed it in place now."""
    line = line_of_change
    return next_sequence_number(), name, line and line()


def mark_modified(tensor: Tensor, op: str) -> None:
    """Notes that `op` has changed the tensor's memory in place."""
    line = line_of_change
    tensor.buffer.modified = (next_sequence_number(), op, line and line())


def change(modified: tuple[int, str, Line | None]) -> tuple[str, Line | None]:
    """The row of an error that says what changed a tensor in place; `modified` is that of its buffer."""
    return f"changed by {modified[1]}", modified[2]


def gone(name: str, *rows: tuple[str, Line | None]) -> AutogradError:
    """What is raised where a graph is differentiated again that was freed."""
    return AutogradError(
        f"backward(): what {name} saved for its gradient is gone: this graph was differentiated before; pass "
        "retain_graph=True to the earlier call, or detach() what is not to be differentiated again" + table(*rows)
    )


BUILD_NODE = """\
out.node = node = _Node()
node.sequence_number = _next_sequence_number()
node.plan = plan
node.edges = {edges}
node.hooks = None
node.saved_inputs = {saved_inputs}
node.saved_outputs = {saved_outputs}
"""
"""How the call paths of `norch.dispatch.codegen` build a node: what `new_node` does, without its call."""


def new_node(plan: Any, edges: tuple[Node | None, ...], saved_inputs: Any = None, saved_outputs: Any = None) -> Node:
    """A node that is recorded now."""
    node: Node = init_node(node_class(), plan, edges, saved_inputs, saved_outputs)
    return node


def init_node(
    node: Any, plan: Any, edges: tuple[Node | None, ...], saved_inputs: Any = None, outputs: Any = None
) -> Any:
    node.sequence_number = next_sequence_number()
    node.plan, node.edges, node.hooks = plan, edges, None
    node.saved_inputs, node.saved_outputs = saved_inputs, outputs
    return node


class Leaf(Node):
    """The node of a tensor that a user marked with `requires_grad`. It does not keep that tensor alive.

    uses, growth: see `norch.autograd.growth`.
    """

    __slots__ = ("growth", "tensor", "uses")

    growth: Any
    uses: int
    hooks: HooksOfLeaf | None
    kind_of_hooks = HooksOfLeaf

    def __init__(self, tensor: Tensor) -> None:
        init_node(self, None, ())
        self.tensor, self.growth, self.uses = ref(tensor), None, 0

    def title(self) -> str:
        return "accumulate_grad"

    def name(self) -> str:
        return "accumulate_grad" if shown.root == "norch" else "AccumulateGrad"

    @property
    def variable(self) -> Tensor | None:
        """The tensor whose node this is, as PyTorch's AccumulateGrad has it; None once it is gone."""
        return self.tensor()

    def register_prehook(self, hook: Callable[[tuple[Tensor, ...]], tuple[Tensor, ...] | None]) -> RemovableHandle:
        """Calls `hook((grad,))` before the gradient is added to `.grad`; a tuple that it returns replaces it."""
        return RemovableHandle(hooks_of(self).before, hook)

    def register_hook(self, hook: Callable[[tuple[()], tuple[Tensor | None]], None]) -> RemovableHandle:
        """Calls `hook((), (grad,))` after the gradient was added to `.grad` and its other hooks were called."""
        return RemovableHandle(hooks_of(self).done, hook)

    @observable(NODE, hands_over=True)
    def run_backward(self, backward: BackwardPass, grad: Any) -> None:
        """Adds `grad` to the tensor's `.grad`, and calls the hooks. It is None where nothing gave one, after all."""
        owner, hooks = self.tensor(), self.hooks
        if owner is None:
            return
        if hooks is None:
            accumulate(owner, grad, backward.create, ALONE)
            return
        given = None
        if grad is not None:
            for hook in list(hooks.before.values()):
                (grad,) = hook((grad,)) or (grad,)
            if hooks.done:
                given = grad
            accumulate(owner, grad, backward.create, ALONE + (given is not None))
        for hook in list(hooks.after.values()):
            hook(owner)
        for hook in list(hooks.done.values()):
            hook((), (given,))


Leaf.__name__ = Leaf.__qualname__ = "AccumulateGrad"  # PyTorch's name, by which what walks graphs knows a leaf


class Output(Node):
    """One result of an op that has several: hands its gradient on as that result's."""

    __slots__ = ("position",)

    def __init__(self, parent: Node, position: int) -> None:
        init_node(self, None, (parent,))
        self.position = position

    def title(self) -> str:
        parent = self.edges[0]
        assert parent is not None
        return parent.title()

    def name(self) -> str:
        parent = self.edges[0]
        assert parent is not None
        return parent.name()

    @property
    def line(self) -> Line | None:  # type: ignore[override]
        parent = self.edges[0]
        return None if parent is None else parent.line

    def run_backward(self, backward: BackwardPass, grad: Any) -> None:
        parent = self.edges[0]
        assert parent is not None
        backward.add_part(parent, self.position, grad)


class Untracked(Node):
    __slots__ = ()


UNTRACKED: Any = Untracked()
"""The node of a view whose base was a constant when the view was made."""


def resolve(tensor: Tensor) -> Node | None:
    """The node of `tensor` as of now: a view of what an in-place op has changed gets a new one from its base's."""
    node: Node | None = tensor.node
    if node is None:
        return None
    base = tensor.base
    if base is None:
        return node
    if node is UNTRACKED:
        source: Node | None = base.node
        if source is None or type(source) is Leaf:
            return None
    else:
        modified = tensor.buffer.modified
        if modified is None or modified[0] < node.sequence_number:
            return node
        source = base.node
        if source is None:
            return node
    fresh = view_node(base, tensor, source)
    move_retained(node, fresh)
    tensor.node = fresh
    return fresh


def move_retained(old: Node | None, new: Node) -> None:
    """`retain_grad` is about the tensor as it is now, not as it was before an in-place op."""
    hooks = getattr(old, "hooks", None)
    if hooks and RETAIN in hooks and old is not new:
        new.hooks = {**(new.hooks or {}), RETAIN: hooks.pop(RETAIN)}


def view_node(base: Tensor, view: Tensor, source: Node) -> Node:
    """A node by which `view` is a view of `base`, whose node is `source`."""
    shape, strides, shift = tuple(view.spec.shape), view.spec.strides, view.offset - base.offset
    plan = shared_ops["as_strided"].plans[base.spec, shape, strides]
    return new_node(plan, (source,), (None, shape, strides, shift), ((None, shift),))


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
            if isinstance(value, TensorBase):
                edge = resolve(value)  # type: ignore[arg-type]
                if edge is not None:
                    wanted |= 1 << at
        edges.append(edge)
    if not wanted:
        return
    saved, which = op.saves[wanted]
    inputs = args if saved is None else tuple([v if k else None for v, k in zip(args, saved, strict=True)])
    kept = [(t.buffer, t.offset) if i or which == ALL else None for i, t in enumerate(outputs)] if which else None
    node = new_node(plan, tuple(edges), inputs, kept)
    if len(outputs) == 1:
        outputs[0].node = node
    else:
        for i, output in enumerate(outputs):
            if output.spec.dtype.is_floating_point:
                output.node = Output(node, i)


_LATER = {
    "GradientEdge": "edges",
    "get_gradient_edge": "edges",
    "disable_saved_tensors_hooks": "saving",
    "increment_version": "versions",
    "register_multi_grad_hook": "multi_grad",
    "save_on_cpu": "saving",
    "saved_tensors_hooks": "saving",
}
_submodule = late_submodules(__name__)


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(f"norch.autograd.{_LATER[name]}"), name)
    return _submodule(name)
