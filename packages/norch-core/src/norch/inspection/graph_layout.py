"""Where the nodes of a graph are drawn: in layers, each below what it is computed from. By Graphviz where it is there.

Ours is the method of Sugiyama, Tagawa and Toda (1981): layers by the longest way, long edges through a place in every
layer between, each layer ordered by the middle of its neighbours, then moved below them as far as the order lets it.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

GAP, ROOM = 18, 42
"""Pixels between boxes of a layer, and between layers."""

MAX_PLACES = 20_000
"""Of long edges in the layers that they cross; with more they are drawn straight."""

Point = tuple[float, float]


@dataclass
class Box:
    """A node to place. key: its own; below: those that it has an edge to (`edges` of a graph turned around).

    heavy: whether others make room for it. x, y: its middle.
    """

    key: int
    width: float
    height: float
    below: list[int] = field(default_factory=list)
    heavy: bool = True
    x: float = 0
    y: float = 0


Routes = dict[tuple[int, int], list[Point]]
"""By edge the points that it goes through: ends of cubic curves with their two controls between, as SVG has them."""


def placed(boxes: Sequence[Box], way: str | None = None) -> Routes:
    """Places the boxes, which come in an order in which edges lead onwards, and returns the edges' ways."""
    program = shutil.which("dot") if way in (None, "dot") else None
    if way == "dot" and program is None:
        raise FileNotFoundError("Graphviz's dot is not on PATH: install Graphviz, or take layout='norch'")
    if program is not None and (way == "dot" or len(boxes) <= 400):
        routes = _by_graphviz(program, boxes)
        if routes is not None:
            return routes
    return _by_layers(boxes)


def _by_graphviz(program: str, boxes: Sequence[Box]) -> Routes | None:
    lines = [
        "digraph { nodesep=0.2; ranksep=0.45; node [shape=box, fixedsize=true];",
        "edge [arrowhead=none, tailport=s, headport=n];",
    ]
    for box in boxes:
        lines.append(f'{box.key} [width={box.width / 72:.3f}, height={box.height / 72:.3f}, label=""];')
        lines += [f"{box.key} -> {to};" for to in box.below]
    try:
        done = subprocess.run(
            [program, "-Tplain"], input="\n".join([*lines, "}"]), capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    by_key = {box.key: box for box in boxes}
    routes: Routes = {}
    for line in done.stdout.splitlines():
        kind, *words = line.split()
        if kind == "node":
            box = by_key[int(words[0])]
            box.x, box.y = float(words[1]) * 72, -float(words[2]) * 72
        elif kind == "edge":
            numbers = [float(word) * 72 for word in words[3 : 3 + 2 * int(words[2])]]
            routes[int(words[0]), int(words[1])] = [(x, -y) for x, y in zip(numbers[::2], numbers[1::2], strict=True)]
    return routes


def _by_layers(boxes: Sequence[Box]) -> Routes:
    by_key = {box.key: box for box in boxes}
    above: dict[int, list[int]] = {box.key: [] for box in boxes}
    for box in boxes:
        for to in box.below:
            above[to].append(box.key)
    layer: dict[int, int] = {}
    for box in boxes:
        layer[box.key] = 1 + max([layer[key] for key in above[box.key]], default=-1)
    # What comes from leaves alone stands right above what uses it.
    free: set[int] = set()
    for box in boxes:
        if len(box.below) == 1 and free.issuperset(above[box.key]):
            free.add(box.key)
    for box in reversed(boxes):
        if box.below and (box.key in free or not above[box.key]):
            layer[box.key] = min([layer[key] for key in box.below]) - 1
    lowest = min(layer.values(), default=0)
    # Long edges get a box without size in every layer between; its key is negative.
    links: dict[int, list[int]] = {box.key: [] for box in boxes}
    ways: dict[tuple[int, int], list[int]] = {}
    everything = dict(by_key)
    room = sum([layer[to] - layer[box.key] - 1 for box in boxes for to in box.below])
    for box in boxes:
        for to in box.below:
            way = [box.key]
            if room <= MAX_PLACES:
                for at in range(layer[box.key] + 1, layer[to]):
                    key = -len(everything) - 1
                    everything[key] = Box(key, 6, 0)
                    layer[key], links[key] = at, []
                    links[way[-1]].append(key)
                    way.append(key)
            links[way[-1]].append(to)
            ways[box.key, to] = [*way, to]
    rows: list[list[Box]] = [[] for _ in range(max(layer.values(), default=0) - lowest + 1)]
    for key, box in everything.items():
        rows[layer[key] - lowest].append(box)
    down = {key: [everything[to] for to in tos] for key, tos in links.items()}
    up: dict[int, list[Box]] = {key: [] for key in everything}
    for key, tos in links.items():
        for to in tos:
            up[to].append(everything[key])
    _order(rows, up, down)
    _move(rows, up, down)
    y = 0.0
    for row in rows:
        height = max([box.height for box in row], default=0)
        for box in row:
            box.y = y + height / 2
        y += height + ROOM
    return {edge: _curve([everything[key] for key in way]) for edge, way in ways.items()}


def _order(rows: list[list[Box]], up: Mapping[int, list[Box]], down: Mapping[int, list[Box]]) -> None:
    """Orders each layer by the middle of its neighbours' places, above and below in turn."""
    for row in rows:
        for i, box in enumerate(row):
            box.x = i
    for turn in range(8):
        for row in rows if turn % 2 else reversed(rows):
            near = up if turn % 2 else down
            middle = {b.key: sum([n.x for n in near[b.key]]) / len(near[b.key]) if near[b.key] else b.x for b in row}
            row.sort(key=lambda box: middle[box.key])
            for i, box in enumerate(row):
                box.x = i
    for row in rows * 2:
        for i in range(len(row) - 1):
            if len(row) < 60 and _crossings(row[i], row[i + 1], up, down) > _crossings(row[i + 1], row[i], up, down):
                row[i], row[i + 1] = row[i + 1], row[i]
                row[i].x, row[i + 1].x = i, i + 1


def _crossings(left: Box, right: Box, up: Mapping[int, list[Box]], down: Mapping[int, list[Box]]) -> int:
    """How many edges of two neighbours cross, with one left of the other."""
    return sum([a.x > b.x for near in (up, down) for a in near[left.key] for b in near[right.key]])


def _move(rows: list[list[Box]], up: Mapping[int, list[Box]], down: Mapping[int, list[Box]]) -> None:
    """Moves boxes to the middle of their neighbours, in the order that they have."""
    for row in rows:
        x = 0.0
        for box in row:
            box.x = x + box.width / 2
            x += box.width + GAP
    for turn in range(12):
        for row in rows if turn % 2 else reversed(rows):
            near = (up, down)[turn % 2 == 0] if turn < 10 else {b.key: up[b.key] + down[b.key] for b in row}
            wanted, weights = [], []
            for box in row:
                others = near[box.key]
                weight = [_pull(box, other) for other in others]
                total = sum(weight)
                wanted.append(sum([w * o.x for w, o in zip(weight, others, strict=True)]) / total if total else box.x)
                weights.append(total or 0.01)
            _shift(row, wanted, weights)


def _pull(box: Box, other: Box) -> float:
    if box.key < 0 and other.key < 0:
        return 8  # long edges are straight
    return 4 if box.heavy and other.heavy else 0.05


def _shift(row: list[Box], wanted: list[float], weights: list[float]) -> None:
    """The places nearest to those wanted, by weighted squares, in which no two boxes touch: an isotonic regression."""
    offsets, at = [], 0.0
    for i, box in enumerate(row):
        if i:
            at += (row[i - 1].width + box.width) / 2 + GAP
        offsets.append(at)
    blocks: list[list[float]] = []  # the sum of weights, that of weighted places, and how many boxes
    for want, offset, weight in zip(wanted, offsets, weights, strict=True):
        blocks.append([weight, weight * (want - offset), 1])
        while len(blocks) > 1 and blocks[-2][1] / blocks[-2][0] > blocks[-1][1] / blocks[-1][0]:
            last = blocks.pop()
            blocks[-1] = [a + b for a, b in zip(blocks[-1], last, strict=True)]
    i = 0
    for weight, total, count in blocks:
        for _ in range(int(count)):
            row[i].x = total / weight + offsets[i]
            i += 1


def _curve(way: list[Box]) -> list[Point]:
    """A way down through boxes, as the points of cubic curves."""
    points: list[Point] = [(way[0].x, way[0].y + way[0].height / 2)]
    for i, box in enumerate(way[1:], 1):
        x0, y0 = points[-1]
        y = box.y - box.height / 2
        bend = (y - y0) / 2
        points += [(x0, y0 + bend), (box.x, y - bend), (box.x, y)]
        if i < len(way) - 1 and box.height:
            points += [(box.x, y + box.height / 3), (box.x, y + 2 * box.height / 3), (box.x, y + box.height)]
    return points
