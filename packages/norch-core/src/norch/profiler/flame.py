"""A flame view as one page: what was called within what, as wide as it took; a click zooms in."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .trace import frames_of

if TYPE_CHECKING:
    from .event_list import EventList


def write_page(events: EventList, path: Path) -> None:
    times = events.times
    root: dict[str, Any] = {"n": "all", "c": {}, "t": [0.0, 0.0, 0], "k": 0}
    for event in events:
        node = root
        for frame in frames_of(event):
            node = node["c"].setdefault(frame, {"n": frame, "c": {}, "t": [0.0, 0.0, 0], "k": 0})
        node["t"][0] += event.self_cpu_time_total
        node["t"][1] += event.self_device_time_total
        node["t"][2] += event.allocated
        node["k"] += 1
        if event.line is not None and "s" not in node:
            node["l"], node["s"] = str(event.line), event.line.text()
        node["b"] = int(event.is_backward)
    device = None if times.device_type is None else times.device_type.upper()
    metrics = [["host time", 0]] + ([[f"{device} time", 1]] if device else [])
    metrics += [["bytes allocated", 2]] if times.with_memory else []
    table = events.key_averages().table(sort_by="self_cpu_time_total", row_limit=40)
    data = json.dumps({"root": _listed(root), "metrics": metrics}).replace("<", "\\u003c")
    page = _PAGE.replace("{table}", escape(table)).replace("{data}", data)
    path.write_text(page, encoding="utf-8")


def _listed(node: dict[str, Any]) -> dict[str, Any]:
    """The tree with lists of children, and what each took with them."""
    stack, order = [node], []
    while stack:
        order.append(found := stack.pop())
        stack += found["c"].values()
    for found in reversed(order):
        found["c"] = list(found["c"].values())
        found["u"] = [own + sum(child["u"][i] for child in found["c"]) for i, own in enumerate(found["t"])]
    return node


_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>norch profile</title>
<style>
:root { color-scheme: light dark; --page: #ffffff; --text: #1f2328; --muted: #59636e; --line: #d1d9e0; }
@media (prefers-color-scheme: dark) {
  :root { --page: #0d1117; --text: #e6edf3; --muted: #9198a1; --line: #3d444d; }
}
body { margin: 16px; font: 14px system-ui, sans-serif; color: var(--text); background: var(--page); }
header { display: flex; gap: 12px; align-items: center; flex-wrap: wrap; margin-bottom: 8px; }
h1 { font-size: 18px; margin: 0; }
button, input, select { font: inherit; color: inherit; background: var(--page); border: 1px solid var(--line);
  border-radius: 4px; padding: 3px 8px; }
#flame { position: relative; }
.frame { position: absolute; height: 20px; line-height: 20px; box-sizing: border-box; overflow: hidden;
  white-space: nowrap; text-overflow: ellipsis; padding: 0; font-size: 12px; cursor: pointer; border-radius: 2px;
  border: 1px solid var(--page); color: #1f2328; text-align: left; }
.frame.wide { padding: 0 4px; }
.frame:hover, .frame:focus { outline: 2px solid #2f7fd6; z-index: 1; }
.frame.faded { opacity: .45; }
.frame.hit { outline: 2px solid #d9473f; }
#about { min-height: 4.2em; margin: 8px 0; padding-top: 6px; border-top: 1px solid var(--line); }
#about code, pre { font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 12px; }
.muted { color: var(--muted); }
pre { overflow-x: auto; }
.swatch { display: inline-block; width: 12px; height: 12px; border-radius: 2px; vertical-align: -1px; }
</style>
<header>
  <h1>norch profile</h1>
  <select id="metric" aria-label="what widths mean"></select>
  <button id="reset">whole</button>
  <input id="find" type="search" placeholder="find an op or a line" aria-label="find">
  <span class="muted"><span class="swatch" style="background:#f2b05e"></span> forward
    <span class="swatch" style="background:#8fb8ea"></span> backward
    <span class="swatch" style="background:#c9cfd6"></span> line, part</span>
</header>
<noscript class="muted">The flame view needs JavaScript, the table does not.</noscript>
<div id="flame"></div>
<div id="about" aria-live="polite"></div>
<pre>{table}</pre>
<script id="data" type="application/json">{data}</script>
<script>
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const flame = document.getElementById("flame"), about = document.getElementById("about");
const metric = document.getElementById("metric"), find = document.getElementById("find");
for (const [name, at] of data.metrics) metric.add(new Option(name, at));
(function parents(node) { for (const child of node.c) { child.p = node; parents(child); } })(data.root);
let zoomed = data.root;
const height = 21;

function text(value, at) {
  if (at === 2) {
    for (const [unit, size] of [["GB", 2 ** 30], ["MB", 2 ** 20], ["KB", 1024]])
      if (value >= size) return (value / size).toFixed(2) + " " + unit;
    return value + " B";
  }
  return value >= 1e6 ? (value / 1e6).toFixed(2) + " s" : value >= 1e3 ? (value / 1e3).toFixed(2) + " ms"
    : value.toFixed(1) + " us";
}

function colour(node) {
  if (!node.k) return "#c9cfd6";
  let hash = 0;
  for (const c of node.n) hash = (hash * 31 + c.charCodeAt(0)) % 997;
  return node.b ? `hsl(213 ${60 + hash % 20}% ${72 + hash % 9}%)` : `hsl(${28 + hash % 18} 85% ${64 + hash % 10}%)`;
}

function describe(node) {
  const at = Number(metric.value), all = data.root.u[at] || 1;
  about.textContent = "";
  const line = document.createElement("div"), name = document.createElement("b");
  name.textContent = node.n;
  line.append(name, ` ${text(node.u[at], at)} (${(100 * node.u[at] / all).toFixed(1)} %)`);
  if (node.k) line.append(`, of it ${text(node.t[at], at)} its own, in ${node.k.toLocaleString()} calls`);
  about.append(line);
  if (node.l) {
    const code = document.createElement("code");
    code.textContent = `${node.l}  ${node.s}`;
    about.append(code);
  }
}

function draw() {
  const at = Number(metric.value), wanted = find.value.trim().toLowerCase();
  flame.textContent = "";
  let deepest = 0;
  function box(node, left, width, depth, faded) {
    if (width < 0.05) return;
    deepest = Math.max(deepest, depth);
    const frame = document.createElement("button");
    frame.className = "frame" + (faded ? " faded" : "");
    if (wanted && (node.n + " " + (node.s || "")).toLowerCase().includes(wanted)) frame.classList.add("hit");
    frame.style = `left:${left}%;width:${width}%;top:${depth * height}px;background:${colour(node)}`;
    if (width > 2) { frame.textContent = node.n; frame.classList.add("wide"); }
    frame.title = node.n;
    frame.onclick = () => { zoomed = node; draw(); describe(node); };
    frame.onmouseenter = frame.onfocus = () => describe(node);
    flame.append(frame);
    let next = left;
    const children = faded ? [] : [...node.c].sort((a, b) => b.u[at] - a.u[at]);
    for (const child of children) {
      const part = node.u[at] ? width * child.u[at] / node.u[at] : 0;
      box(child, next, part, depth + 1, false);
      next += part;
    }
  }
  const around = [];
  for (let node = zoomed.p; node; node = node.p) around.unshift(node);
  around.forEach((node, depth) => box(node, 0, 100, depth, true));
  box(zoomed, 0, 100, around.length, false);
  flame.style.height = (deepest + 1) * height + "px";
}

metric.onchange = () => { draw(); describe(zoomed); };
find.oninput = draw;
document.getElementById("reset").onclick = () => { zoomed = data.root; draw(); describe(zoomed); };
document.onkeydown = event => { if (event.key === "Escape") { zoomed = data.root; draw(); describe(zoomed); } };
draw();
describe(zoomed);
</script>
</html>
"""
