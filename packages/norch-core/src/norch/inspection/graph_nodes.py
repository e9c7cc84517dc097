"""What there is to say of each node of an autograd graph. Nothing here keeps the graph or a tensor of it alive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..autograd.function import FunctionNode
from ..autograd.graph import RETAIN, Leaf, Node, Output, resolve
from ..dispatch.op import Op
from ..spec import Spec
from ..tensor_base import TensorBase
from .derivatives import Rule, rules_of, rules_of_function

if TYPE_CHECKING:
    from ..source_lines import Line
    from ..tensor import Tensor


@dataclass(frozen=True)
class Saved:
    """A tensor that a node keeps until the backward pass.

    role: what it is to the op: a parameter's name, "result", or "saved_tensors[0]" of a custom function. storage: the
    number of the memory that it lies in, `storage_bytes` the size of all of that, which stays alive with it.
    source: the name or number of what it is, where that is known. changed_by: what changed it in place since and where,
    so that a backward pass will raise.
    """

    role: str
    spec: Spec
    storage: int
    storage_bytes: int
    source: str = ""
    changed_by: str = ""

    @property
    def nbytes(self) -> int:
        return self.spec.nbytes


@dataclass
class GraphNode:
    """A node: an op that was recorded, or a leaf.

    number: its place in the order of recording, from 1. kind: "op", "function" (a custom Function), "captured", "leaf",
    "folded" (several, that are shown as one) or "other". names: of the tensors that it made, where they are known.
    outputs: what it made. operands: for each operand its name, and the number of the node that made it and which of its
    results it is; None where no gradient is wanted.
    attributes: the op's other arguments. saved: what it keeps; freed: whether a backward pass has let go of that, and
        freed_by: where in the program it was called.
    grad_norm: the 2-norm of the gradient, None where it is not there: `grad_note` says why. grad_value: of one element,
        the gradient itself.
    line: where in the program it was made. module: the name of the module that it belongs to.
    """

    number: int
    kind: str
    op: str
    outputs: tuple[Spec, ...]
    operands: list[tuple[str, int | None, int]] = field(default_factory=list)
    operand_specs: list[Spec | None] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)
    saved: list[Saved] = field(default_factory=list)
    freed: bool = False
    freed_by: Line | None = None
    names: list[str] = field(default_factory=list)
    grad_norm: float | None = None
    grad_value: float | None = None
    grad_note: str = ""
    hooks: int = 0
    line: Line | None = None
    module: str = ""
    rules: Callable[[], list[Rule]] = list
    note: str = ""
    folded: list[GraphNode] = field(default_factory=list)

    @property
    def edges(self) -> list[int]:
        """The numbers of the nodes that its gradients go to."""
        return [number for _, number, _ in self.operands if number is not None]

    @property
    def name(self) -> str:
        """That of the tensor, or "" """
        return ", ".join(self.names[:3])

    @property
    def title(self) -> str:
        if self.kind == "folded":
            return f"{self.op}: {self.note}" if self.module else self.op
        if self.kind == "leaf":
            return self.name or self.op
        numbers = [f" {self.attributes[name]:g}" for name, _, _ in self.operands if name in self.attributes]
        made = self.op + "".join(numbers[:1])
        return f"{self.name} = {made}" if self.names else made

    @property
    def shape(self) -> str:
        return " ".join([str(tuple(spec.shape)) for spec in self.outputs])

    @property
    def grad(self) -> str:
        """The gradient, as far as it is told: "" where it is not there."""
        if self.grad_value is not None:
            return f"grad {self.grad_value:.4g}"
        return "" if self.grad_norm is None else f"|grad| {self.grad_norm:.4g}"

    @property
    def saved_bytes(self) -> int:
        """Of the memory that it keeps, each storage once."""
        return sum({s.storage: s.storage_bytes for s in self.saved}.values())


class Walk:
    """The nodes below `outputs`, oldest first, as `nodes`; `of` gives for a node of the autograd graph its number.

    storages: by id of a buffer its number. leaf_storages: those of leaves, which are alive anyway.
    """

    def __init__(self, outputs: Sequence[Tensor], names: dict[int, list[str]], modules: Callable[[int], str]) -> None:
        self.names, self.module_of = names, modules
        self.storages: dict[int, int] = {}
        self.leaf_storages: set[int] = set()
        self.found = self._reachable([resolve(t) for t in outputs])
        self.of = {id(node): i + 1 for i, node in enumerate(self.found)}
        self.gradients: list[tuple[GraphNode, Tensor]] = []
        self.nodes = [self._described(node, i + 1) for i, node in enumerate(self.found)]
        del self.found, self.hooks

    def _reachable(self, starts: list[Node | None]) -> list[Node]:
        seen: dict[int, Node] = {}
        self.hooks: dict[int, list[dict[int, Any]]] = {}
        stack = [node for node in starts if node is not None]
        while stack:
            node = stack.pop()
            of_op = whole(node)
            if of_op is not node and node.hooks:
                own = self.hooks.setdefault(id(of_op), [])
                if not any(node.hooks is hooks for hooks in own):
                    own.append(node.hooks)
            if id(of_op) not in seen:
                seen[id(of_op)] = of_op
                stack += [edge for edge in of_op.edges if edge is not None]
        # Leaves come right before the first op that uses them.
        first: dict[int, float] = {id(n): n.sequence_number for n in seen.values()}
        for node in sorted(seen.values(), key=lambda n: -n.sequence_number):
            for edge in node.edges:
                if edge is not None and type(edge) is Leaf:
                    first[id(edge)] = node.sequence_number - 0.5
        return sorted(seen.values(), key=lambda n: (first[id(n)], type(n) is not Leaf, n.sequence_number))

    # --- One node -----------------------------------------------------------------------------------------------------

    def _described(self, node: Node, number: int) -> GraphNode:
        if type(node) is Leaf:
            return self._leaf(node, number)
        made = GraphNode(number, "op", node.title(), ())
        made.line = node.line
        made.module = self.module_of(node.sequence_number)
        made.names = self.names.get(id(node), [])
        every = [hooks for hooks in (node.hooks, *self.hooks.get(id(node), ())) if hooks]
        kept = next((hooks[RETAIN] for hooks in every if RETAIN in hooks), None)
        made.hooks = sum([len(hooks) - (RETAIN in hooks) for hooks in every])
        if isinstance(node, FunctionNode):
            self._function(node, made)
        elif node.plan is not None:
            self._op(node, made)
        else:
            self._other(node, made)
        self._gradient(kept, made)
        return made

    def _leaf(self, node: Leaf, number: int) -> GraphNode:
        tensor = node.tensor()
        made = GraphNode(number, "leaf", "leaf", () if tensor is None else (tensor.spec,))
        made.names = self.names.get(id(node), [])
        made.hooks = len(node.hooks or ())
        if tensor is None:
            made.op, made.grad_note = "a leaf that is gone", "its tensor is gone, and its gradient with it"
            return made
        self.leaf_storages.add(self._storage(tensor.buffer))
        if tensor._grad is None:
            made.grad_note = "no gradient yet"
        else:
            self.gradients.append((made, tensor._grad))
        return made

    def _op(self, node: Node, made: GraphNode) -> None:
        plan = node.plan
        op: Op = plan.op
        made.outputs = tuple(plan.outputs)
        if op.variadic:
            names = [f"{op.params[op.tensors[0]]}[{i}]" for i in range(len(node.edges))]
        else:
            names = [op.params[i] for i in op.tensors]
        made.operands = self._operands(node, names)
        made.operand_specs = [s if type(s) is Spec else None for s in plan.operands]
        made.rules = lambda: rules_of(op)
        made.freed = node.saved_inputs is None and op.saves_tensors
        if made.freed and node.saved_outputs:
            made.freed_by = node.saved_outputs[0][1]
        arguments = node.saved_inputs or plan.inputs
        for i, value in enumerate(arguments):
            if (i not in op.tensors and i < len(op.params)) or type(value) in (int, float, bool):
                made.attributes[op.params[i]] = value
        for i, value in enumerate(node.saved_inputs or ()):
            for role, tensor in _tensors(op.params[i] if i < len(op.params) else "saved", value):
                self._save(made, node.sequence_number, role, tensor)
        for i, entry in enumerate(node.saved_outputs or ()):
            if entry is not None and entry[0] is not None:
                role = "result" if len(plan.outputs) == 1 else f"result {i}"
                self._keep(made, node.sequence_number, role, plan.outputs[i], entry[0], f"#{made.number}")

    def _function(self, node: FunctionNode, made: GraphNode) -> None:
        function, context = node.function, node.context
        made.kind, made.outputs = "function", node.specs
        made.freed, made.freed_by = context._freed, context._freed_by
        made.operands = self._operands(node, [f"argument {i}" for i in range(len(node.edges))])
        made.operand_specs = list(node.inputs)
        made.rules = lambda: rules_of_function(function)
        for i, value in enumerate(context._saved):
            if value is not None:
                self._save(made, context._saved_at, f"saved_tensors[{i}]", value)
        for name, thing in vars(context).items():
            for role, tensor in _tensors(f"ctx.{name}", thing) if not name.startswith("_") else ():
                self._save(made, None, role, tensor)

    def _other(self, node: Any, made: GraphNode) -> None:
        """A node of a captured step, or one that is not known."""
        made.operands = self._operands(node, [f"end {i}" for i in range(len(node.edges))])
        if made.op != "captured":
            made.kind, made.note = "other", f"a node of {type(node).__module__}: what it computes is not known here"
            return
        made.kind = "captured"
        inside, memory = getattr(node, "graph", None), getattr(node, "memory", None)
        buffers = [part.buffer for part in memory or () if part.buffer is not None]
        made.note = "a captured step that was replayed: its ops are kernels of a program, and have no graph"
        if inside is not None:
            buffers = inside.saved
            made.note = f"a captured step that was recorded: {counted(len(inside.inside), 'node')} inside, not shown"
        for buffer in {id(buffer): buffer for buffer in buffers}.values():
            self._keep(made, None, "memory", _bytes_spec(buffer), buffer, "")
        made.freed_by = getattr(node, "freed_by", None)
        made.freed = not buffers and (inside is not None or memory is None)

    def _operands(self, node: Node, names: Sequence[str]) -> list[tuple[str, int | None, int]]:
        found: list[tuple[str, int | None, int]] = []
        for i, edge in enumerate(node.edges):
            name = names[i] if i < len(names) else f"operand {i}"
            if edge is None:
                found.append((name, None, 0))
            else:
                found.append((name, self.of[id(whole(edge))], edge.position if type(edge) is Output else 0))
        return found

    # --- What it keeps ------------------------------------------------------------------------------------------------

    def _save(self, made: GraphNode, since: int | None, role: str, tensor: Tensor) -> None:
        source, node = "", tensor.node
        if node is not None and id(whole(node)) in self.of:
            number = self.of[id(whole(node))]
            source = ", ".join(self.names.get(id(whole(node)), [])[:1]) or f"#{number}"
        self._keep(made, since, role, tensor.spec, tensor.buffer, source)

    def _keep(self, made: GraphNode, since: int | None, role: str, spec: Any, buffer: Any, source: str) -> None:
        modified = getattr(buffer, "modified", None)
        changed = ""
        if since is not None and modified is not None and modified[0] > since:
            changed = modified[1] + (f" at {modified[2]}" if modified[2] is not None else "")
        nbytes = getattr(buffer, "nbytes", spec.nbytes)
        made.saved.append(Saved(role, spec, self._storage(buffer), nbytes, source, changed))

    def _storage(self, buffer: Any) -> int:
        return self.storages.setdefault(id(buffer), len(self.storages) + 1)

    def _gradient(self, kept: Any, made: GraphNode) -> None:
        tensor = None if kept is None else kept.tensor()
        if kept is None:
            made.grad_note = "not kept: call retain_grad() on the tensor before backward()"
        elif tensor is None:
            made.grad_note = "its tensor is gone, and its gradient with it"
        elif tensor._grad is None:
            made.grad_note = "no gradient yet"
        else:
            self.gradients.append((made, tensor._grad))


def as_bytes(count: int) -> str:
    """A size for people: 640 B, 2.1 kB, 34 MB."""
    size, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):  # noqa: B007
        if size < 999.5:
            break
        size /= 1000
    return f"{count} B" if unit == "B" else f"{size:.3g} {unit}"


def counted(count: int, one: str, several: str = "") -> str:
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def whole(node: Node) -> Node:
    """The node of an op for that of one of its results, and what is outside of a captured step for its way in."""
    while type(node) is Output or hasattr(node, "real"):
        node = node.edges[0]  # type: ignore[assignment]
    return node


def _tensors(role: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, TensorBase):
        return [(role, value)]
    if isinstance(value, list | tuple):
        return [found for i, v in enumerate(value) for found in _tensors(f"{role}[{i}]", v)]
    return []


def _bytes_spec(buffer: Any) -> Spec:
    from ..device import CPU
    from ..dtype import uint8

    return Spec((buffer.nbytes,), (1,), uint8, CPU)
