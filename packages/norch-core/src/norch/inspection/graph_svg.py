"""An autograd graph as a picture: data flows downwards, gradients up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .graph_layout import Box, placed
from .graph_nodes import GraphNode, as_bytes
from .svg import Drawing, text_width

if TYPE_CHECKING:
    from .autograd_graph import AutogradGraph
    from .graph_folding import Shown

COLORS = {"leaf": "blue", "function": "purple", "captured": "orange", "folded": "grey", "other": "grey"}
FAR = 4
"""Layers from which on a leaf is drawn again beside what uses it."""

LINE, SMALL = 16, 11


def lines_of(node: GraphNode) -> list[str]:
    """What a node's box says: its name or op, then what it made, keeps and got as a gradient."""
    lines = [_short(node.title, 44)]
    if node.kind == "folded" and not node.module:
        lines.append(_short(node.note, 44))
    elif node.outputs:
        more = f" and {len(node.outputs) - 1} more" if len(node.outputs) > 1 else ""
        lines.append(_shape(node.outputs[0]) + more)
    facts = []
    if node.saved:
        facts.append(f"keeps {as_bytes(node.saved_bytes)}")
    elif node.freed:
        facts.append("freed")
    if node.grad:
        facts.append(node.grad)
    if node.line is not None:
        facts.append(str(node.line))
    if facts:
        lines.append(_short("  ".join(facts), 44))
    return lines


def _shape(spec: object) -> str:
    return f"{tuple(spec.shape)} {spec.dtype.name}"  # type: ignore[attr-defined]


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


@dataclass
class Place:
    """A box in the picture: of a node, or of a leaf once more."""

    node: GraphNode
    box: Box
    again: bool = False


def picture(graph: AutogradGraph, shown: Shown, layout: str | None = None, in_page: bool = False) -> Drawing:
    """The drawing; each node is a group with the class `node` and the id `node-NUMBER`.

    in_page: nodes are links to what the page says of them, and what is said of all is left to it.
    """
    drawing = Drawing(f"autograd graph: {graph.summary}")
    places = _places(shown)
    routes = placed([place.box for place in places], layout)
    by_key = {place.box.key: place for place in places}
    for (start, end), points in routes.items():
        number = by_key[start].node.number
        attributes = {"class": f"edge from-{number} to-{by_key[end].node.number}"}
        with drawing.group(class_=attributes["class"]):
            d = f"M{points[0][0]:.1f} {points[0][1]:.1f}C" + " ".join([f"{x:.1f} {y:.1f}" for x, y in points[1:]])
            drawing.add(f'<path class="line" d="{d}"/>', points[0][0], points[0][1], 0, 0)
            drawing.head(points[-2], points[-1])
    for place in places:
        if in_page:
            drawing.shapes.append(f'<a href="#n{place.node.number}">')
        _node(drawing, place, place.node.number in shown.outputs)
        if in_page:
            drawing.shapes.append("</a>")
    if in_page:
        return drawing
    y = drawing.bottom + 26 if drawing.shapes else 0
    x = drawing.left if drawing.shapes else 0
    for text in (graph.summary, shown.note):
        for line in _wrapped(text, max(60, int((drawing.right - x) / 6.4))):
            drawing.text(x, y, line, size=SMALL + 1, muted=True)
            y += LINE
    return drawing


def _wrapped(text: str, width: int) -> list[str]:
    from textwrap import wrap

    return wrap(text, width)


def _places(shown: Shown) -> list[Place]:
    """Boxes in an order in which edges lead onwards. A leaf that is used far away is there again."""
    depth: dict[int, int] = {}
    for node in shown.nodes:
        depth[node.number] = 1 + max([depth[n] for n in node.edges], default=0)
    places: dict[int, Place] = {}
    first: dict[int, int] = {}
    nodes = {node.number: node for node in shown.nodes}
    order: list[Place] = []
    key = max(nodes, default=0)
    for node in shown.nodes:
        if node.kind == "leaf" and node.number not in shown.outputs:
            continue
        operands = []
        for number in dict.fromkeys(node.edges):
            leaf = nodes[number]
            if leaf.kind != "leaf":
                operands.append(places[number].box)
                continue
            known = places.get(number)
            if known is None or abs(depth[node.number] - first[number]) >= FAR:
                again = known is not None
                if again:
                    key += 1
                known = Place(leaf, _box(key if again else number, leaf), again)
                order.append(known)
                places[number], first[number] = known, depth[node.number]
            operands.append(known.box)
        place = places[node.number] = Place(node, _box(node.number, node))
        first[node.number] = depth[node.number]
        order.append(place)
        for box in operands:
            box.below.append(node.number)
    return order


def _box(key: int, node: GraphNode) -> Box:
    lines = lines_of(node)
    width = max([text_width(line, SMALL + (2 if i == 0 else 0)) for i, line in enumerate(lines)])
    return Box(key, max(48, width * 0.98 + 14), LINE * len(lines) + 8, heavy=node.kind != "leaf")


def _node(drawing: Drawing, place: Place, is_output: bool) -> None:
    node, box = place.node, place.box
    x, y = box.x - box.width / 2, box.y - box.height / 2
    names = f"node kind-{node.kind}" + (" output" if is_output else "") + (" again" if place.again else "")
    tip = "\n".join(lines_of(node))
    with drawing.group(id=f"node-{box.key}", class_=names, data_node=node.number):
        color = "green" if is_output else COLORS.get(node.kind, "")
        if any(saved.changed_by for saved in node.saved):
            color = "red"
        dashed = node.freed or place.again or node.kind == "folded"
        drawing.rect(x, y, box.width, box.height, color, dashed=dashed, radius=9 if node.kind == "leaf" else 3, tip=tip)
        for i, line in enumerate(lines_of(node)):
            drawing.text(
                box.x, y + LINE * (i + 1), line,
                anchor="middle", size=SMALL if i else SMALL + 2, mono=True, bold=i == 0, muted=i > 0,
            )  # fmt: skip
