"""An autograd graph in the language of Graphviz."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .graph_svg import lines_of

if TYPE_CHECKING:
    from .autograd_graph import AutogradGraph
    from .graph_folding import Shown

STYLES = {
    "leaf": 'style="rounded,filled", fillcolor="#2f7fd64d"',
    "function": 'style=filled, fillcolor="#8f5fd04d"',
    "captured": 'style=filled, fillcolor="#e08a1e4d"',
    "folded": 'style="filled,dashed", fillcolor="#8a8f984d"',
}


def as_dot(graph: AutogradGraph, shown: Shown) -> str:
    """Data flow downwards, as in the pictures; gradients go up."""
    label = _quoted(graph.summary + (f"\n{shown.note}" if shown.note else ""))
    lines = [
        "digraph autograd {",
        f'  graph [label={label}, labelloc=t, fontname="sans-serif", bgcolor=transparent];',
        '  node [shape=box, fontname="sans-serif", fontsize=11];',
    ]
    for node in shown.nodes:
        style = STYLES.get(node.kind, "")
        outline = ", penwidth=2" if node.number in shown.outputs else ""
        text = _quoted("\n".join(lines_of(node)))
        lines.append(f"  n{node.number} [label={text}{', ' + style if style else ''}{outline}];")
        for name, number, position in node.operands:
            if number is not None:
                at = f", taillabel={_quoted(str(position))}" if position else ""
                lines.append(f"  n{number} -> n{node.number} [tooltip={_quoted(name)}{at}];")
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'
