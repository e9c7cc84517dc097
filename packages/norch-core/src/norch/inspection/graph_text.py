"""An autograd graph for a terminal: from its output down, a line a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .graph_nodes import GraphNode, as_bytes

if TYPE_CHECKING:
    from .autograd_graph import AutogradGraph
    from .graph_folding import Shown


def as_text(graph: AutogradGraph, shown: Shown) -> str:
    """What an op came from stands below it: the longest way at the same depth, others and leaves a step to the right.

    A node stands below the last of those that use it, in the others' place there is an arrow to its number.
    """
    nodes = {node.number: node for node in shown.nodes}
    users = dict.fromkeys(nodes, 0)
    depth: dict[int, int] = {}
    for node in shown.nodes:
        for number in set(node.edges):
            users[number] += 1
        depth[node.number] = 1 + max([depth[n] for n in node.edges], default=0)
    rows: list[tuple[str, GraphNode | None, str]] = []
    written: set[int] = set()
    stack: list[tuple[int, str, str]] = [(number, "", "* ") for number in reversed(shown.outputs)]
    while stack:
        number, margin, mark = stack.pop()
        node = nodes[number]
        if number in written:
            rows.append((margin + mark, None, f"-> {_called(node)}, above"))
            continue
        written.add(number)
        rows.append((margin + mark, node, ""))
        below = dict.fromkeys(node.edges)
        for edge in below:
            users[edge] -= 1
        ready = [edge for edge in below if users[edge] == 0 and edge not in written]
        ops = sorted([e for e in ready if nodes[e].kind != "leaf"], key=lambda e: depth[e])
        inner = margin + "| "
        for edge in below:
            if edge not in ops:
                leaf = nodes[edge]
                if users[edge] == 0 and edge not in written:
                    written.add(edge)
                    rows.append((f"{inner}- ", leaf, ""))
                else:
                    where = "above" if edge in written else "below"
                    rows.append((f"{inner}- ", None, f"-> {_called(leaf)}, {where}"))
        if ops:
            stack.append((ops[-1], margin, "* "))
            stack += [(edge, inner, "* ") for edge in reversed(ops[:-1])]
    lines = [graph.summary, *([shown.note] if shown.note else []), ""]
    return "\n".join(lines + _table(rows))


def _called(node: GraphNode) -> str:
    return f"{node.names[0]} (#{node.number})" if node.names else f"{node.op} (#{node.number})"


def _table(rows: list[tuple[str, GraphNode | None, str]]) -> list[str]:
    """Columns: the tree, then of each node its shape, what it keeps, its gradient and its line."""
    cells = []
    for mark, node, text in rows:
        if node is None:
            cells.append([mark + text, "", "", "", ""])
        else:
            cells.append(
                [f"{mark}{node.title} #{node.number}", _shape(node), _keeps(node), _grad(node), str(node.line or "")]
            )
    limits = (60, 34, 34, 24, 40)
    widths = [min(limit, max([len(row[i]) for row in cells], default=0)) for i, limit in enumerate(limits)]
    return ["  ".join([c.ljust(w) for c, w in zip(row, widths, strict=True) if w]).rstrip() for row in cells]


def _shape(node: GraphNode) -> str:
    more = f" and {len(node.outputs) - 1} more" if len(node.outputs) > 1 else ""
    return "".join([f"{tuple(s.shape)} {s.dtype.name}" for s in node.outputs[:1]]) + more


def _keeps(node: GraphNode) -> str:
    if node.freed and not node.saved:
        return "freed"
    if not node.saved:
        return ""
    if node.kind == "folded":
        return f"keeps {as_bytes(node.saved_bytes)}"
    names = list(dict.fromkeys([s.role for s in node.saved]))
    roles = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    spoiled = "".join([f" (changed by {s.changed_by})" for s in node.saved if s.changed_by][:1])
    return f"keeps {roles}: {as_bytes(node.saved_bytes)}{spoiled}"


def _grad(node: GraphNode) -> str:
    return node.grad or (node.grad_note if node.kind == "leaf" and node.outputs else "")
