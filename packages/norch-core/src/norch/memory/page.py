"""Pages of their own that show who holds memory: they need nothing else, and can be read without JavaScript."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ..inspection.svg import COLORS, STYLE, escape
from .drawing import COLOR_OF, HEIGHT, WIDTH, recording_drawing, snapshot_drawing, time_text
from .holders import OWNERS
from .texts import size_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .recording import Recording
    from .snapshots import Snapshot

MAX_BLOCKS = 4000
"""That a page knows by name: the largest."""

ROWS = 25

_PAGE = """\
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 14px system-ui, sans-serif; margin: 1.5rem auto; max-width: 62rem; padding: 0 1rem;
  color: #1f2328; background: #fff; }}
@media (prefers-color-scheme: dark) {{ body {{ color: #e6edf3; background: #0d1117; }} }}
table {{ border-collapse: collapse; width: 100%; font-size: 13px; }}
td, th {{ text-align: left; padding: .2rem .6rem .2rem 0; border-bottom: 1px solid rgb(128 128 128 / .25); }}
td.n, th.n {{ text-align: right; white-space: nowrap; }}
td code {{ font-size: 12px; overflow-wrap: anywhere; }}
.dot {{ display: inline-block; width: .7em; height: .7em; margin-right: .4em; border-radius: 2px; }}
#now {{ font-weight: 600; min-height: 1.4em; }}
{style}</style></head><body>
{body}
</body></html>
"""

_SCRIPT = """\
<script>
const blocks = __BLOCKS__, owners = __OWNERS__, length = __LENGTH__, rows = __ROWS__;
const svg = document.querySelector("svg"), now = document.getElementById("now");
const table = document.querySelector("#there tbody");
const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
line.setAttribute("class", "line"); line.id = "cursor"; svg.appendChild(line);
function size(n) {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (n < 1024 || unit === "GiB") return n.toFixed(unit === "B" ? 0 : 2) + " " + unit;
    n /= 1024;
  }
}
function cell(text, kind) {
  const td = document.createElement("td");
  if (kind) td.className = kind;
  td.textContent = text;
  return td;
}
function show(time) {
  const there = blocks.filter(b => b[1] <= time && (b[2] === null || b[2] > time));
  now.textContent = "after " + (time * 1000).toFixed(2) + " ms: "
    + size(there.reduce((sum, b) => sum + b[0], 0)) + " in " + there.length + " blocks";
  table.replaceChildren(...there.slice(0, rows).map(b => {
    const row = document.createElement("tr"), owner = document.createElement("td");
    const dot = document.createElement("span");
    dot.className = "dot"; dot.style.background = owners[b[3]][1];
    owner.append(dot, owners[b[3]][0]);
    row.append(cell(size(b[0]), "n"), owner, cell(b[4]));
    return row;
  }));
}
svg.addEventListener("pointermove", event => {
  const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
  const x = Math.min(Math.max(at.x, 0), __WIDTH__);
  line.setAttribute("d", "M" + x + " 0V__HEIGHT__");
  show(x / __WIDTH__ * length);
});
</script>
"""


def recording_page(recording: Recording, device: str | None = None) -> str:
    """The picture, and what there was at the peak, or at the time that the mouse points at."""
    devices = recording.devices()
    device = device or (devices[0] if devices else "")
    nbytes, when = recording.peak(device)
    there = recording.at(when, device)
    known = sorted(recording.of(device), key=lambda b: -b.nbytes)[:MAX_BLOCKS]
    left_out = len(recording.of(device)) - len(known)
    note = f"<p>{left_out:,} smaller blocks are in the picture and not in the list.</p>" if left_out else ""
    values = {
        "BLOCKS": [[b.nbytes, b.made, b.freed, b.rank, b.title.replace("  ", " · ")] for b in known],
        "OWNERS": [[name, COLORS[COLOR_OF[name]]] for name in OWNERS],
        "LENGTH": recording.seconds, "ROWS": ROWS, "WIDTH": WIDTH, "HEIGHT": HEIGHT,
    }  # fmt: skip
    script = _SCRIPT
    for name, value in values.items():
        script = script.replace(f"__{name}__", json.dumps(value).replace("<", "\\u003c"))
    head = f'<p id="now">at the peak, after {time_text(when)}: {size_text(nbytes)} in {len(there):,} blocks</p>'
    table = _table([(b.nbytes, b.owner, b.title) for b in there[:ROWS]])
    return _page(
        f"Memory on {device}", recording_drawing(recording, device).svg(style=False) + head + table + note + script
    )


def snapshot_page(snapshot: Snapshot) -> str:
    """The picture, and a table of the largest blocks."""
    table = _table([(h.nbytes, h.owner, str(h)) for h in snapshot.holdings[: 4 * ROWS]])
    return _page("Who holds the memory", snapshot_drawing(snapshot).svg(style=False) + table)


def _page(title: str, body: str) -> str:
    return _PAGE.format(title=escape(title), style=STYLE, body=f"<h1>{escape(title)}</h1>\n{body}")


def _table(rows: Iterable[tuple[int, str, str]]) -> str:
    lines = ['<table id="there"><thead><tr><th class="n">bytes</th><th>owner</th><th>what</th></tr></thead><tbody>']
    for nbytes, owner, what in rows:
        what = what.replace("  ", " · ")
        dot = f'<span class="dot" style="background: {COLORS[COLOR_OF[owner]]}"></span>'
        lines.append(
            f'<tr><td class="n">{size_text(nbytes)}</td><td>{dot}{escape(owner)}</td><td>{escape(what)}</td></tr>'
        )
    return "\n".join([*lines, "</tbody></table>"])
