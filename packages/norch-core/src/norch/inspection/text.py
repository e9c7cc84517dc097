"""Explanations as text, for a terminal."""

from __future__ import annotations

from textwrap import shorten, wrap
from typing import TYPE_CHECKING

from ..spec import Spec
from .storage import MANY, Cell, Layout, index_formula

if TYPE_CHECKING:
    from .explanation import Explanation, Sharing
    from .steps import Step, Walk

WIDTH = 100
"""Columns of text; a longer strip continues below."""

INDENT = 13

MAX_NAMED = 8
"""Tensors on the same storage that are listed; the others are counted."""


def described(spec: Spec, offset: int) -> str:
    """Shape, strides and offset."""
    return f"shape {_tuple(spec.shape)}, strides {_tuple(spec.strides)}, offset {offset:,}"


def _tuple(values: tuple[int, ...]) -> str:
    return str(tuple(values))


def label(cell: Cell) -> str:
    """The index of an element: "1,0"; "0,0 x3" where two more have it too; "()" where there are no dims."""
    if cell.index is None:
        return ""
    times = "" if cell.count == 1 else f" x{cell.count}" if cell.count <= MANY else " x many"
    return (",".join(map(str, cell.index)) or "()") + times


def strip(layout: Layout, name: str) -> list[str]:
    """Lines with positions, values (those that the tensor shows in brackets) and indices."""
    columns: list[tuple[str, str, str]] = []
    last = -1
    for cell in layout.cells:
        if cell.position != last + 1:
            columns.append(("...", "...", "..."))
        last = cell.position
        value = f"[{cell.value}]" if cell.count else f" {cell.value} "
        columns.append((f"{cell.position:,}", value, label(cell)))
    titles = ("position", "storage", name if len(name) < INDENT else "index")
    lines: list[str] = []
    while columns:
        row: list[tuple[str, str, str]] = []
        used = INDENT
        while columns and (not row or used + max(map(len, columns[0])) + 2 <= WIDTH):
            used += max(map(len, columns[0])) + 2
            row.append(columns.pop(0))
        if lines:
            lines.append("")
        for i, title in enumerate(titles):
            cells = [column[i].center(max(map(len, column))) for column in row]
            lines.append(f"{title:<{INDENT}}{'  '.join(cells)}".rstrip())
    return lines


def heading(found: Explanation) -> str:
    """The first line: what the tensor is."""
    layout, spec = found.layout, found.layout.spec
    return f"{found.name or 'a tensor'}: {spec.dtype.name} on {spec.device}, {described(spec, layout.offset)}"


def facts(found: Explanation) -> list[tuple[str, list[str]]]:
    """What there is to say beside the strip, by title."""
    layout, spec = found.layout, found.layout.spec
    index, position = index_formula(spec, layout.offset)
    return [
        ("element", [f"{found.name or 't'}{index} is at position {position}"] if spec.numel else []),
        ("storage", [storage_line(found)]),
        ("shared with", sharing_lines(found)),
        ("dims", [dims_line(found)]),
        ("copies", [f"{c.call}: {c.why}" for c in found.calls if c.copies]),
        ("raises", [f"{c.call}: {c.why}" for c in found.calls if c.error]),
        ("no copy", [*[f"{c.call}: {c.why}" for c in found.calls if not c.copies and not c.error], ALWAYS]),
    ]


def explanation_text(found: Explanation) -> str:
    """What `print` shows."""
    lines = [heading(found), ""]
    if found.layout.cells:
        lines += [*strip(found.layout, found.name or "t"), ""]
    for title, texts in facts(found):
        for i, text in enumerate(texts):
            start = f"{'' if i else title:<{INDENT}}"
            lines += wrap(text, WIDTH, initial_indent=start, subsequent_indent=" " * (INDENT + 2))
    return "\n".join(lines)


ALWAYS = "transpose, permute, slices, expand, squeeze, unsqueeze, unfold: a view, always"


def storage_line(found: Explanation) -> str:
    """How much of the storage the tensor shows."""
    layout, spec = found.layout, found.layout.spec
    text = f"{count(layout.size, 'element')}, {count(found.nbytes, 'byte')}"
    if not spec.numel:
        return f"{text}; the tensor has no elements"
    if layout.is_overlapping:
        return f"{text}; {count(spec.numel, 'index', 'indices')} show some of them more than once"
    return f"{text}; the tensor shows " + ("all of them" if spec.numel == layout.size else f"{spec.numel:,} of them")


def count(number: int, one: str, many: str = "") -> str:
    """ "1 element", "2 elements"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def sharing_lines(found: Explanation) -> list[str]:
    """The other tensors on the storage, those beyond a few only counted."""
    lines = [_sharing(s, found) for s in found.sharing[:MAX_NAMED]]
    more = len(found.sharing) - MAX_NAMED
    return [*lines, f"and {count(more, 'other')}"] if more > 0 else lines or ["no other tensor"]


def _sharing(other: Sharing, found: Explanation) -> str:
    spec = found.layout.spec
    relation = {"base": ", of which this is a view", "view of it": ", a view of this"}.get(other.relation, "")
    dtype = "" if other.dtype == spec.dtype.name else f" {other.dtype}"
    name = other.name or "a tensor without a name"
    return f"{name}:{dtype} shape {other.shape}, strides {other.strides}, offset {other.offset:,}{relation}"


def dims_line(found: Explanation) -> str:
    """Which dims merge, and which do not."""
    if not found.dims:
        return "none to merge: at most one has more than one element"
    return "; ".join(
        [f"{a} and {b} {'merge' if p.merges else 'do not merge'}: {p.why}" for p in found.dims for a, b in (p.dims,)]
    )


# --- Steps ----------------------------------------------------------------------------------------------------------


def inputs(found: Walk) -> list[tuple[str, Layout]]:
    """What the steps were given that none of them made, and has a name."""
    seen: dict[str, Layout] = {}
    for step in found.steps:
        for name, layout in step.before:
            if name:
                seen.setdefault(name, layout)
    return list(seen.items())


def step_title(number: int, step: Step) -> str:
    """ "2  x.T.reshape(6)"."""
    return f"{number:<3}{shorten(step.call, 70, placeholder='...')}"


def walk_text(found: Walk) -> str:
    """What `print` shows of a function's steps."""
    lines = [
        f"   {name}: {layout.spec.dtype.name}, {described(layout.spec, layout.offset)}"
        for name, layout in inputs(found)
    ]
    start = " " * INDENT
    for number, step in enumerate(found.steps, 1):
        lines += ["", step_title(number, step)]
        text = f"   {step.kind:<{INDENT - 3}}"
        if step.after is not None and step.kind != "in place":
            lines.append(f"{text}{described(step.after.spec, step.after.offset)}")
            text = start
        reason, *more = step.why.split("\n")  # an error's message may draw shapes below its first line
        lines += wrap(reason, WIDTH, initial_indent=text, subsequent_indent=start)
        lines += [f"{start}{line}" for line in more]
    if found.left_out:
        lines += ["", f"and {count(found.left_out, 'step')} more"]
    return "\n".join([*lines, "", totals(found)] if found.steps else ["no op of norch was called"])


def totals(found: Walk) -> str:
    """ "2 steps: 1 view, 1 copy; 24 bytes of new results"."""
    found_kinds = ["error" if step.kind == "raises" else step.kind for step in found.steps]
    kinds = list(dict.fromkeys(found_kinds))
    many = {"view": "views", "copy": "copies", "error": "errors"}
    numbers = [(k, found_kinds.count(k)) for k in kinds]
    parts = ", ".join([f"{n} {many.get(k, k) if n > 1 else k}" for k, n in numbers])
    nbytes = sum(step.nbytes for step in found.steps)
    return f"{count(len(found.steps), 'step')}: {parts}; {count(nbytes, 'byte')} of new results"
