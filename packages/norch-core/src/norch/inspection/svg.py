"""Pictures as SVG: a drawing of boxes, texts, lines and arrows, readable on a light and on a dark page.

Text and lines have the page's own colour (`currentColor`), fills are of middle brightness and half transparent. A file,
which has no page around it, asks what the reader prefers (`prefers-color-scheme`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape as _escape
from math import hypot
from pathlib import Path
from unicodedata import east_asian_width

COLORS = {
    "blue": "#2f7fd6", "orange": "#e08a1e", "green": "#2fa05a", "red": "#d9473f", "purple": "#8f5fd0",
    "teal": "#1f9ea3", "pink": "#d1569b", "grey": "#8a8f98",
}  # fmt: skip
"""Colours by name, each with enough contrast to a white and to a dark page."""

SIZE = 13
"""Of text, in pixels."""

STYLE = f"""\
.norch {{ font: {SIZE}px system-ui, sans-serif; }}
.norch text {{ fill: currentColor; }}
.norch .mono {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }}
.norch .bold {{ font-weight: 600; }}
.norch .muted {{ opacity: .68; }}
.norch .box, .norch .line {{ fill: none; stroke: currentColor; stroke-opacity: .45; }}
.norch .head {{ fill: currentColor; fill-opacity: .6; }}
.norch .dashed {{ stroke-dasharray: 4 3; }}
""" + "".join(
    f".norch .box.{name} {{ fill: {color}; fill-opacity: .3; stroke: {color}; stroke-opacity: 1; }}\n"
    f".norch .line.{name} {{ stroke: {color}; stroke-opacity: 1; }}\n"
    f".norch .head.{name} {{ fill: {color}; fill-opacity: 1; }}\n"
    for name, color in COLORS.items()
)
"""The style of every drawing, for pages that hold many to give once."""

_FILE_STYLE = """\
.norch { color: #1f2328; background: #ffffff; }
@media (prefers-color-scheme: dark) { .norch { color: #e6edf3; background: #0d1117; } }
"""

_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def escape(text: object) -> str:
    """`text` for the inside of an element or an attribute; characters that XML cannot hold become question marks."""
    return _escape(_NO_XML.sub("?", str(text)))


def text_width(text: str, size: float = SIZE, mono: bool = True) -> float:
    """About how wide `text` is, in the fixed-width font or in the proportional one."""
    return sum([2 if east_asian_width(c) in "WF" else 1 for c in text]) * size * (0.602 if mono else 0.55)


class Drawing:
    """Shapes on a page that grows with them. `title` says what the picture shows, to those who cannot see it.

    Coordinates are pixels, y downwards. `color` is a name of `COLORS`; `tip` shows when the mouse rests on a shape.
    """

    margin = 8

    def __init__(self, title: str = "") -> None:
        self.title = title
        self.shapes: list[str] = []
        self.left = self.top = float("inf")
        self.right = self.bottom = float("-inf")

    def rect(
        self, x: float, y: float, width: float, height: float, color: str = "",
        *, dashed: bool = False, radius: float = 3, tip: object = "",
    ) -> None:  # fmt: skip
        """A box, its upper left corner at (x, y)."""
        kind = _classes("box", color, dashed=dashed)
        shape = f'<rect {kind} x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}"'
        self.add(f"{shape}/>" if not tip else f"{shape}>{_tip(tip)}</rect>", x, y, width, height)

    def text(
        self, x: float, y: float, text: object,
        *, anchor: str = "start", size: float = SIZE, mono: bool = False, bold: bool = False, muted: bool = False,
        tip: object = "",
    ) -> None:  # fmt: skip
        """A line of text on the base line y. anchor: which of its points is at x, "start", "middle" or "end"."""
        kind = _classes("", mono=mono, bold=bold, muted=muted)
        look = "".join(
            [f' text-anchor="{anchor}"' if anchor != "start" else "", f' font-size="{size:g}"' if size != SIZE else ""]
        )
        shown = escape(text)
        width = text_width(str(text), size, mono)
        self.add(
            f'<text {kind} x="{x:g}" y="{y:g}"{look} xml:space="preserve">{_tip(tip)}{shown}</text>',
            x - {"start": 0, "middle": width / 2, "end": width}[anchor], y - size, width, size * 1.25,
        )  # fmt: skip

    def line(
        self, points: Sequence[tuple[float, float]], color: str = "",
        *, dashed: bool = False, arrow: bool = False, tip: object = "",
    ) -> None:  # fmt: skip
        """A line through points, with the head of an arrow at its end if wanted."""
        d = "M" + "L".join([f"{x:g} {y:g}" for x, y in points])
        xs, ys = [x for x, _ in points], [y for _, y in points]
        shape = f'<path {_classes("line", color, dashed=dashed)} d="{d}"'
        self.add(
            f"{shape}/>" if not tip else f"{shape}>{_tip(tip)}</path>",
            min(xs), min(ys), max(xs) - min(xs), max(ys) - min(ys),
        )  # fmt: skip
        if arrow and len(points) > 1:
            self.head(points[-2], points[-1], color)

    def head(self, start: tuple[float, float], end: tuple[float, float], color: str = "", size: float = 7) -> None:
        """The head of an arrow that comes from `start` and ends at `end`."""
        (x0, y0), (x, y) = start, end
        length = hypot(x - x0, y - y0) or 1
        dx, dy = (x - x0) / length * size, (y - y0) / length * size
        corners = [(x, y), (x - dx - dy / 2, y - dy + dx / 2), (x - dx + dy / 2, y - dy - dx / 2)]
        d = "M" + "L".join([f"{a:.4g} {b:.4g}" for a, b in corners]) + "Z"
        self.add(f'<path {_classes("head", color)} d="{d}"/>', x, y, 0, 0)

    def add(self, markup: str, x: float, y: float, width: float, height: float) -> None:
        """Markup of any kind, which takes up this room."""
        self.shapes.append(markup)
        self.left, self.right = min(self.left, x), max(self.right, x + width)
        self.top, self.bottom = min(self.top, y), max(self.bottom, y + height)

    @contextmanager
    def group(self, **attributes: object) -> Iterator[None]:
        """What is drawn within is one element with these attributes (`class_` stands for `class`, `_` for `-`)."""
        named = [(name.rstrip("_").replace("_", "-"), value) for name, value in attributes.items()]
        self.shapes.append("<g" + "".join([f' {name}="{escape(value)}"' for name, value in named]) + ">")
        yield
        self.shapes.append("</g>")

    def svg(self, standalone: bool = False, style: bool = True) -> str:
        """The picture as text. standalone: as a file of its own. style: with `STYLE`, which the page else has."""
        if not self.shapes:
            self.left = self.top = self.right = self.bottom = 0
        x, y = self.left - self.margin, self.top - self.margin
        width, height = self.right - x + self.margin, self.bottom - y + self.margin
        css = (STYLE if style else "") + (_FILE_STYLE if standalone else "")
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="norch" role="img" aria-label="{escape(self.title)}" '
            f'viewBox="{x:g} {y:g} {width:g} {height:g}" width="{width:g}" height="{height:g}" '
            'style="max-width: 100%; height: auto">',
            f"<title>{escape(self.title)}</title>" if self.title and standalone else "",  # in a page it would be a tip
            f"<style>\n{css}</style>" if css else "",
            *self.shapes,
            "</svg>\n",
        ]
        return "\n".join([part for part in parts if part])

    def save(self, path: object) -> None:
        """Writes the picture to a file."""
        Path(str(path)).write_text(self.svg(standalone=True), encoding="utf-8")


class Drawn:
    """What is shown as text, in notebooks as a picture, and saved as one."""

    def drawing(self) -> Drawing:
        """The picture, to add to or to put into a larger one."""
        raise NotImplementedError

    def svg(self) -> str:
        """The picture as the text of an SVG file."""
        return self.drawing().svg(standalone=True)

    def save(self, path: object) -> None:
        """Writes the picture as an SVG file."""
        self.drawing().save(path)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return self.drawing().svg()


def _classes(kind: str, color: str = "", **more: bool) -> str:
    if color and color not in COLORS:
        raise ValueError(f"no such colour: {color!r}; there are {', '.join(COLORS)}")
    return f'class="{" ".join([name for name in (kind, color, *[k for k, on in more.items() if on]) if name])}"'


def _tip(tip: object) -> str:
    return f"<title>{escape(tip)}</title>" if tip else ""
