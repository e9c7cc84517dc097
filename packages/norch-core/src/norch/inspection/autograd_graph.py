"""`norch.graph`: the autograd graph of a tensor, as text, a picture or a page."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..autograd.graph import resolve
from ..autograd.lines import record_lines
from ..autograd.mode import no_grad
from ..dtype import float32, float64
from ..errors import AutogradError
from ..linalg import vector_norm
from ..ops import stack
from ..tensor_base import TensorBase
from .graph_folding import folded
from .graph_names import (
    Calls,
    guess_modules,
    modules_of_caller,
    modules_of_leaves,
    of_caller,
    of_parameters,
)
from .graph_nodes import GraphNode, Walk, as_bytes, counted, whole
from .svg import escape

if TYPE_CHECKING:
    from ..tensor import Tensor


def graph(output: Any, params: Any = None) -> AutogradGraph:
    """The graph by which a backward pass from `output` gets to the leaves: ops, shapes, what they keep, gradients.

    output: a tensor, several, or a function without arguments that returns them. The function is called once, and what
    it calls is watched: nodes then have their source lines and the modules that made them.
    params: names for leaves: a module, a dict of tensors, or pairs as `model.named_parameters()` gives them. Without it
    the modules and tensors among the caller's variables give names.

    Returns an `AutogradGraph`: `print` shows it in a terminal, a notebook draws it, `save("graph.html")` writes a page
    to click in. It keeps neither the graph nor a tensor alive. Raises AutogradError where no tensor requires grad, and
    TypeError for what is no tensor.
    """
    frame = sys._getframe(1)
    calls = Calls()
    if callable(output) and not isinstance(output, TensorBase):
        modules = [("", params)] if hasattr(params, "named_modules") else modules_of_caller(frame)
        with calls.watching(modules), record_lines():
            output = output()
    outputs = _outputs(output)
    names = of_caller(frame)
    if params is not None:
        names.update(of_parameters(params))
    return AutogradGraph(outputs, names, calls)


def _outputs(output: Any) -> list[Tensor]:
    outputs = list(output) if isinstance(output, list | tuple) else [output]
    for tensor in outputs:
        if not isinstance(tensor, TensorBase):
            raise TypeError(f"graph(): expected a tensor, tensors or a function that returns them, got {type(tensor)}")
    wanted: Any = [t for t in outputs if resolve(t) is not None]
    if not wanted:
        shapes = ", ".join([str(tuple(t.spec.shape)) for t in outputs])
        raise AutogradError(
            f"graph(): a tensor of shape {shapes} does not require grad: no operand of the ops that made it has "
            "requires_grad=True, or they ran under no_grad()"
        )
    return list(wanted)


class AutogradGraph:
    """What `graph` found.

    nodes: oldest first; `outputs` the numbers of those that were asked for. saved_bytes: of all memory that the graph
    keeps until its backward pass, each storage once; `leaf_bytes` of it is that of leaves, which is there anyway.

    `len`, iteration and `graph[7]` or `graph["fc1.weight"]` give nodes. `limit` is how many nodes are shown: where
    there are more, modules, then long chains, then the oldest nodes are shown as one each. None shows all.
    """

    def __init__(self, outputs: Sequence[Tensor], names: dict[int, list[str]], calls: Calls) -> None:
        walk = Walk(outputs, names, calls.module_of)
        self.nodes: list[GraphNode] = walk.nodes
        self.outputs = list(dict.fromkeys([walk.of[id(whole(resolve(t)))] for t in outputs]))  # type: ignore[arg-type]
        saved = {s.storage: s.storage_bytes for node in self.nodes for s in node.saved}
        self.saved_bytes = sum(saved.values())
        self.leaf_bytes = sum([n for storage, n in saved.items() if storage in walk.leaf_storages])
        modules_of_leaves(self.nodes)
        self.modules_are_known = bool(calls.spans)
        if not self.modules_are_known:
            guess_modules(self.nodes)
        fill_norms(walk.gradients)

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[GraphNode]:
        return iter(self.nodes)

    def __getitem__(self, key: int | str) -> GraphNode:
        """The node of a number, or of a tensor's name."""
        if isinstance(key, int):
            if not 1 <= key <= len(self.nodes):
                raise IndexError(f"no node {key}: they are 1 to {len(self.nodes)}")
            return self.nodes[key - 1]
        for node in self.nodes:
            if key in node.names:
                return node
        raise KeyError(key)

    @property
    def op_counts(self) -> dict[str, int]:
        """How many nodes each op has; leaves are left out."""
        return dict(Counter([node.op for node in self.nodes if node.kind != "leaf"]).most_common())

    @property
    def summary(self) -> str:
        """One line about all of it."""
        leaves = sum([node.kind == "leaf" for node in self.nodes])
        parts = [f"{counted(len(self.nodes) - leaves, 'op')}, {counted(leaves, 'leaf', 'leaves')}"]
        freed = sum([node.freed for node in self.nodes])
        if self.saved_bytes:
            of_leaves = f", {as_bytes(self.leaf_bytes)} of it in leaves" if self.leaf_bytes else ""
            parts.append(f"{as_bytes(self.saved_bytes)} kept for the backward pass{of_leaves}")
        elif not freed:
            parts.append("nothing kept for the backward pass")
        if freed:
            lines = list(dict.fromkeys([str(node.freed_by) for node in self.nodes if node.freed_by is not None]))
            where = f" at {', '.join(lines[:3])}" if lines else ""
            parts.append(f"freed: a backward pass{where} has let go of what {counted(freed, 'op')} kept")
        return "; ".join(parts)

    def __repr__(self) -> str:
        return f"<AutogradGraph: {self.summary}>"

    def __str__(self) -> str:
        return self.text()

    def text(self, limit: int | None = 200) -> str:
        """For a terminal: the graph from its output down."""
        from .graph_text import as_text

        return as_text(self, folded(self, limit))

    def dot(self, limit: int | None = 1000) -> str:
        """In Graphviz's language."""
        from .graph_dot import as_dot

        return as_dot(self, folded(self, limit))

    def svg(self, limit: int | None = 300, layout: str | None = None) -> str:
        """A picture. layout: "dot" to have Graphviz place the nodes, "norch" not to; by default, where it is installed.

        Raises FileNotFoundError where "dot" is asked for and not there.
        """
        from .graph_svg import picture

        return picture(self, folded(self, limit), layout).svg(standalone=True)

    def html(self, limit: int | None = 1000, layout: str | None = None) -> str:
        """A page that needs nothing else: the picture, and for each node its derivative, its line and what it keeps."""
        from .graph_page import page

        return page(self, folded(self, limit), layout)

    def save(self, path: Any, **options: Any) -> None:
        """Writes `.html`, `.svg`, `.dot` (or `.gv`) or `.txt`, by the name's ending, with that method's options."""
        path = Path(path)
        ways = {
            ".html": self.html,
            ".htm": self.html,
            ".svg": self.svg,
            ".dot": self.dot,
            ".gv": self.dot,
            ".txt": self.text,
        }
        way = ways.get(path.suffix.lower())
        if way is None:
            raise ValueError(f"save(): {path.name} ends in none of {', '.join(ways)}")
        path.write_text(way(**options), encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.svg()

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self.html())}" style="width: 100%; height: 600px; border: 0"></iframe>'


def fill_norms(gradients: list[tuple[GraphNode, Tensor]]) -> None:
    """Computes the norms, a transfer a device."""
    by_device: dict[Any, list[tuple[GraphNode, Tensor, Tensor]]] = {}
    with no_grad():
        for node, grad in gradients:
            if grad.spec.device.type == "meta":
                node.grad_note = "no values on the meta device"
                continue
            values = grad.detach().to(float64 if grad.spec.dtype is float64 else float32)
            norm = values.reshape(()) if grad.spec.numel == 1 else vector_norm(values)
            by_device.setdefault((norm.spec.device, norm.spec.dtype), []).append((node, grad, norm))
        for pairs in by_device.values():
            norms = stack([norm for *_, norm in pairs]).tolist()
            for (node, grad, _), norm in zip(pairs, norms, strict=True):
                node.grad_norm = abs(norm)
                node.grad_value = norm if grad.spec.numel == 1 else None
