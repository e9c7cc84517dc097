"""A model's summary as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .svg import escape

if TYPE_CHECKING:
    from .layers import Layer
    from .summary import Summary

MAX_REPEATS = 4
"""Rows of one module beside each other, with shapes that differ; what comes after them is one row."""

WIDEST = 44
"""Characters of a shape."""

HEAD = ("layer (type)", "output", "parameters", "FLOPs")


def rows(found: Summary) -> list[tuple[str, ...]]:
    """The cells of the table."""
    lines: list[tuple[str, ...]] = []
    _add(lines, found.model, 0, found)
    return lines


def _add(lines: list[tuple[str, ...]], layer: Layer, depth: int, found: Summary) -> None:
    below = layer.layers if depth < found.depth else []
    title = f"{layer.name} ({layer.kind})" if layer.name else layer.kind
    if layer.calls > 1:
        title += f" x{layer.calls:,}"
    if not layer.calls and found.model.calls:
        title += ", not called"
    flops = layer.flops - sum([x.flops for x in below])
    lines.append(
        (
            "  " * depth + title,
            shape_text(layer.outputs),
            _parameters(layer, not below),
            number(flops) if flops else "--",
        )
    )
    seen: dict[int, int] = {}
    for i, other in enumerate(below):
        seen[other.module_id] = seen.get(other.module_id, 0) + 1
        if seen[other.module_id] <= MAX_REPEATS:
            _add(lines, other, depth + 1, found)
        elif seen[other.module_id] == MAX_REPEATS + 1:
            rest = [x for x in below[i:] if x.module_id == other.module_id]
            title = f"{other.name} ({other.kind}), other shapes x{sum([x.calls for x in rest]):,}"
            flops = sum([x.flops for x in rest])
            lines.append(("  " * (depth + 1) + title, "...", "(shared)", number(flops) if flops else "--"))


def _parameters(layer: Layer, whole: bool) -> str:
    total, trainable = (
        (layer.total("parameters"), layer.total("trainable")) if whole else (layer.parameters, layer.trainable)
    )
    if layer.is_shared:
        return "(shared)" if layer.parameters or layer.layers else "--"
    if not total:
        return "--"
    return f"{total:,}" + ("" if trainable == total else " frozen" if not trainable else " partly frozen")


def shape_text(value: Any) -> str:
    """ "[1, 3, 8, 8]", "([2, 4], [2, 4])"; cut in the middle where it is long."""
    if value is None:
        return "--"
    text = _shape(value)
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 3]}..."


def _shape(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join([f"{k}: {_shape(v)}" for k, v in value.items()]) + "}"
    return f"({', '.join(map(_shape, value))})" if isinstance(value, tuple) else str(value)


def number(count: float) -> str:
    """ "1.82 G"."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:,.2f} {unit}"
    return f"{count:,.0f}"


def size_text(nbytes: int) -> str:
    """ "46.76 MB"."""
    return f"{number(nbytes)}B" if nbytes >= 1000 else f"{nbytes} bytes"


def totals(found: Summary) -> list[tuple[str, str]]:
    """What stands below the table."""
    frozen = found.parameters - found.trainable
    lines = [("parameters", f"{found.parameters:,}" + (f", {found.trainable:,} of them trainable" if frozen else ""))]
    if found.model.calls:
        lines.append(("FLOPs", f"{number(found.flops)} in a forward pass, {number(found.flops / 2)} multiply-adds"))
    parts = [("parameters", found.parameter_bytes), ("buffers", found.buffer_bytes)]
    if found.model.calls:
        parts += [("input", found.input_bytes), ("activations", found.activation_bytes)]
    return [*lines, ("memory", ", ".join([f"{name} {size_text(n)}" for name, n in parts if n]) or "none")]


def summary_text(found: Summary) -> str:
    """The table and what stands below it."""
    called = bool(found.model.calls)
    columns = [i for i in range(len(HEAD)) if called or HEAD[i] not in ("output", "FLOPs")]
    table = [HEAD, *rows(found)]
    widths = [max([len(row[i]) for row in table]) for i in columns]
    lines = []
    for row in table:
        cells = [row[i].ljust(w) if i < 2 else row[i].rjust(w) for i, w in zip(columns, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    line = "-" * max(map(len, lines))
    last = [f"{title:<12}{text}" for title, text in totals(found)]
    return "\n".join([lines[0], line, *lines[1:], line, *last])


_RIGHT = ' style="text-align: right"'


def summary_html(found: Summary) -> str:
    """The same as HTML."""
    head = "".join([f"<th>{title}</th>" for title in HEAD])
    body = []
    for row in rows(found):
        indent = len(row[0]) - len(row[0].lstrip())
        cells = [
            f'<td style="text-align: left; padding-left: {0.5 + indent * 0.6:.1f}em">{escape(row[0].strip())}</td>'
        ]
        cells += [f"<td{'' if i < 2 else _RIGHT}>{escape(cell)}</td>" for i, cell in enumerate(row) if i]
        body.append(f"<tr>{''.join(cells)}</tr>")
    last = "<br>".join([f"{title}: {escape(text)}" for title, text in totals(found)])
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>\n<p>{last}</p>"
