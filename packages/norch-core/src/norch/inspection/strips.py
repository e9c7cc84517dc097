"""Explanations as pictures: the storage as a strip of cells, those that the tensor shows coloured by their first index,
an arrow for the stride of each dim, and the tensor as its indices show it."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from .storage import Cell, Layout
from .svg import Drawing, text_width
from .text import described, facts, heading, inputs, label, step_title, totals

if TYPE_CHECKING:
    from .explanation import Explanation
    from .steps import Walk

COLORS = ("blue", "orange", "green", "purple", "teal", "pink", "red")
HEIGHT, SMALL, GAP = 28, 10, 26
ROW = SMALL + HEIGHT + 22
"""From a row's positions down to below its indices."""

WIDTH = 860
"""Of a row of cells, in pixels; a longer strip continues below."""

GRID = 64
"""Elements up to which a tensor of one or two dims is drawn as its indices show it too."""

COLUMNS = 105
"""Characters of a line of text."""


def explanation_drawing(found: Explanation, more: bool = True) -> Drawing:
    """The picture of an explanation. more: with what there is to say beside the strip."""
    drawing = Drawing(heading(found))
    drawing.text(0, 0, heading(found), bold=True)
    bottom = draw_layout(drawing, found.layout, 0, 14)
    for title, texts in facts(found) if more else ():
        for i, text in enumerate(texts):
            for n, line in enumerate(wrap(text, COLUMNS)):
                bottom += 18
                if not i and not n:
                    drawing.text(0, bottom, title, muted=True)
                drawing.text(90 if not n else 102, bottom, line)
    return drawing


def walk_drawing(found: Walk) -> Drawing:
    """The picture of a function's steps: each result's strip below what was called."""
    drawing = Drawing(totals(found))
    y = 0.0
    for name, layout in inputs(found):
        drawing.text(0, y, f"{name}: {described(layout.spec, layout.offset)}", bold=True)
        y = draw_layout(drawing, layout, 0, y + 14) + 28
    for number, step in enumerate(found.steps, 1):
        drawing.text(0, y, step_title(number, step), bold=True)
        about = step.kind
        if step.after is not None:
            about += f": {described(step.after.spec, step.after.offset)}"
        reason, *more = step.why.split("\n")
        for line in [about, *wrap(reason, COLUMNS), *more]:
            y += 18
            drawing.text(16, y, line, muted=line is not about, mono=line in more)
        if step.after is not None:
            y = draw_layout(drawing, step.after, 16, y + 12)
        y += 28
    drawing.text(0, y, totals(found))
    return drawing


def draw_layout(drawing: Drawing, layout: Layout, x: float, y: float) -> float:
    """Draws the strip with the strides, and the tensor itself if it is small. Returns where that ends."""
    if not layout.cells:
        return y
    width = cell_width(layout)
    for row in _rows(layout, x, width):
        for left, cell in row:
            _draw_cell(drawing, layout, cell, left, y, width)
        for (left, cell), (_, before) in zip(row[1:], row):
            if cell.position != before.position + 1:
                drawing.text(left - GAP / 2, y + SMALL + HEIGHT / 2 + 8, "···", anchor="middle", muted=True)
        y = _draw_strides(drawing, layout, {c.position: left + width / 2 for left, c in row}, x, y + ROW) + 8
    return _draw_grid(drawing, layout, x, y)


def cell_width(layout: Layout) -> float:
    """What all cells of a strip need."""
    texts = [t for c in layout.cells for t in (c.value, label(c))]
    small = [text_width(f"{c.position:,}", SMALL) + 8 for c in layout.cells]
    return max([30, *[text_width(t) + 12 for t in texts], *small])


def _rows(layout: Layout, x: float, width: float) -> list[list[tuple[float, Cell]]]:
    """The cells with their left edges, in rows that fit the page."""
    rows: list[list[tuple[float, Cell]]] = [[]]
    left, last = x, -1
    for cell in layout.cells:
        gap = GAP if cell.position != last + 1 else 0
        if rows[-1] and left + gap + width > x + WIDTH:
            rows.append([])
            left = x
        left += gap
        rows[-1].append((left, cell))
        left += width
        last = cell.position
    return rows


def _draw_cell(drawing: Drawing, layout: Layout, cell: Cell, left: float, y: float, width: float) -> None:
    middle, index = left + width / 2, label(cell)
    tip = f"storage[{cell.position}] = {cell.value}" + (f", index {index}" if index else ", not in the tensor")
    drawing.text(middle, y + SMALL, f"{cell.position:,}", anchor="middle", size=SMALL, muted=True)
    drawing.rect(left, y + SMALL + 4, width, HEIGHT, color_of(layout, cell), dashed=not cell.count, radius=0, tip=tip)
    value = y + SMALL + HEIGHT / 2 + 8.5
    drawing.text(middle, value, cell.value, anchor="middle", mono=True, muted=not cell.count)
    drawing.text(middle, y + SMALL + HEIGHT + 17, index, anchor="middle", size=SMALL + 1)


def color_of(layout: Layout, cell: Cell) -> str:
    """By the index in the first of several dims; else one colour; none outside the tensor."""
    if cell.index is None:
        return ""
    dims = [d for d, n in enumerate(layout.spec.shape) if n > 1 and layout.spec.strides[d]]
    return COLORS[cell.index[dims[0]] % len(COLORS) if len(dims) > 1 else 0]


def _draw_strides(drawing: Drawing, layout: Layout, middles: dict[int, float], x: float, y: float) -> float:
    """Below a row with the first element, an arrow from there to the next one of each dim, the shortest first."""
    spec, start = layout.spec, middles.get(layout.offset)
    if start is None:
        return y
    top, end, ends = y, start, {}
    for d, (size, stride) in enumerate(zip(spec.shape, spec.strides, strict=True)):
        if size > 1:
            ends[d] = middles.get(layout.offset + stride) if stride else None
            end = max(end, ends[d] or start)
    for d in sorted(ends, key=lambda d: (ends[d] is None, spec.strides[d], -d)):
        text, to = f"dim {d}: stride {spec.strides[d]:,}", ends[d]
        y += 18
        if to is None:
            drawing.text(x, y, text if spec.strides[d] else f"{text}, the same elements again", size=SMALL + 1)
        else:
            drawing.line([(start, top), (start, y), (to, y), (to, top)], "grey", arrow=True)
            drawing.text(end + 8, y + 3, text, size=SMALL + 1)
    return y


def _draw_grid(drawing: Drawing, layout: Layout, x: float, y: float) -> float:
    spec = layout.spec
    if not 1 <= spec.ndim <= 2 or not spec.numel or spec.numel > GRID or spec.shape[-1] > 24:
        return y
    by_position = {cell.position: cell for cell in layout.cells}
    rows, columns = spec.numel // spec.shape[-1], spec.shape[-1]
    found = [by_position.get(layout.position(n)) for n in range(spec.numel)]
    if None in found or (spec.is_contiguous and spec.ndim == 1):
        return y
    width = cell_width(layout)
    for n, cell in enumerate(found):
        assert cell is not None
        i, j = divmod(n, columns)
        color = color_of(layout, cell)
        tip = f"storage[{cell.position}]"
        drawing.rect(x + j * width, y + i * HEIGHT, width, HEIGHT, color, radius=0, tip=tip)
        middle = x + (j + 0.5) * width
        drawing.text(middle, y + (i + 0.5) * HEIGHT + 4.5, cell.value, anchor="middle", mono=True)
    return y + rows * HEIGHT + 4
