"""An autograd graph as one HTML page, which loads nothing: graph_page.html, filled in.

All that it can show is there without JavaScript, and printed: an article for each node. The script shows one at a time.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .derivatives import Rule
from .graph_nodes import GraphNode, Saved, as_bytes
from .graph_svg import picture
from .svg import STYLE, escape

if TYPE_CHECKING:
    from .autograd_graph import AutogradGraph
    from .graph_folding import Shown

KINDS = {
    "op": "op", "function": "custom function", "captured": "captured step", "leaf": "leaf", "folded": "several nodes",
    "other": "node",
}  # fmt: skip


def page(graph: AutogradGraph, shown: Shown, layout: str | None = None) -> str:
    articles = Articles(shown)
    parts = {
        "title": f"autograd graph: {graph.summary}",
        "summary": graph.summary,
        "note": shown.note,
        "style": STYLE,
        "picture": picture(graph, shown, layout, in_page=True)
        .svg(style=False)
        .replace('role="img"', 'role="group"', 1),
        "articles": "\n".join([articles.of(node) for node in reversed(shown.nodes)]),
        "rules": "\n".join(articles.rules),
        "first": f"n{shown.outputs[0]}",
    }
    text = Path(__file__).with_name("graph_page.html").read_text(encoding="utf-8")
    before, *pieces = text.split("<!--norch ")
    done = [before]
    for piece in pieces:
        name, _, rest = piece.partition("-->")
        value = parts[name]
        done += [value if name in ("style", "picture", "articles", "rules") else escape(value), rest]
    return "".join(done)


class Articles:
    """What the page says of each node, and of each derivative once."""

    def __init__(self, shown: Shown) -> None:
        self.nodes = {node.number: node for node in shown.nodes}
        self.users: dict[int, list[int]] = {}
        self.keepers: dict[int, list[int]] = {}
        self.rules: list[str] = []
        self.known: dict[tuple[Any, ...], str] = {}
        for node in shown.nodes:
            for number in dict.fromkeys(node.edges):
                self.users.setdefault(number, []).append(node.number)
            for saved in node.saved:
                keepers = self.keepers.setdefault(saved.storage, [])
                if node.number not in keepers:
                    keepers.append(node.number)

    def of(self, node: GraphNode) -> str:
        words = [node.op, *node.names, node.module, str(node.line or ""), node.kind, f"#{node.number}"]
        words += [str(tuple(spec.shape)) for spec in node.outputs]
        rule = self._rule(node)
        parts = [
            f'<article id="n{node.number}" data-rule="{rule}" data-find="{escape(" ".join(words).lower())}">',
            f"<h2>{escape(node.title)} <small>{KINDS[node.kind]} #{node.number}</small></h2>",
            self._line(node),
            _list(self._facts(node)),
            self._operands(node),
            self._used(node),
            self._kept(node),
            f'<p class="rule-link"><a href="#{rule}">its derivative</a></p>' if rule else "",
            self._folded(node),
        ]
        return "\n".join([*[part for part in parts if part], "</article>"])

    def _line(self, node: GraphNode) -> str:
        if node.line is None:
            return ""
        where = f"{escape(node.line)} in {escape(node.line.function)}"
        text = node.line.text()
        return f'<p title="{escape(node.line.filename)}">{where}</p>' + (
            f'<pre class="line-of-program">{escape(text)}</pre>' if text else ""
        )

    def _facts(self, node: GraphNode) -> list[tuple[str, str]]:
        facts = []
        if node.outputs:
            facts.append(("makes" if node.kind != "leaf" else "is", "<br>".join([_spec(s) for s in node.outputs])))
        if node.note:
            facts.append(("is", escape(node.note)))
        if node.names[1:] or (node.names and node.kind != "leaf"):
            facts.append(("called", escape(", ".join(node.names))))
        if node.module and node.kind != "folded":
            facts.append(("module", escape(node.module)))
        for name, value in node.attributes.items():
            if value is not None:
                facts.append((escape(name), f"<code>{escape(repr(value)[:200])}</code>"))
        gradient = escape(node.grad_note) if node.grad_norm is None else f"2-norm {node.grad_norm:.6g}"
        if node.grad_value is not None:
            gradient = f"{node.grad_value:.6g}"
        if gradient and node.kind != "folded":
            facts.append(("gradient", gradient))
        if node.hooks:
            facts.append(("hooks", str(node.hooks)))
        return facts

    def _operands(self, node: GraphNode) -> str:
        rows = []
        for i, (name, number, position) in enumerate(node.operands):
            spec = node.operand_specs[i] if i < len(node.operand_specs) else None
            if number is None and spec is None:
                continue
            source = "no gradient wanted" if number is None else self._link(number)
            if position:
                source += f", result {position}"
            rows.append([escape(name), _spec(spec) if spec is not None else "", source])
        return _table("Operands", ["", "shape", "made by"], rows)

    def _used(self, node: GraphNode) -> str:
        users = self.users.get(node.number, ())
        return f"<h3>Used by</h3><p>{', '.join([self._link(n) for n in users])}</p>" if users else ""

    def _kept(self, node: GraphNode) -> str:
        if node.freed and not node.saved:
            where = f" at {escape(node.freed_by)}" if node.freed_by is not None else ""
            return f"<h3>Keeps alive</h3><p>Nothing any more: a backward pass{where} has let go of it.</p>"
        if not node.saved or node.kind == "folded":
            nothing = "Nothing: its derivative needs no values."
            if node.kind == "folded":
                nothing = f"{as_bytes(node.saved_bytes)} in all." if node.saved else ""
            return f"<h3>Keeps alive</h3><p>{nothing}</p>" if nothing and node.kind != "leaf" else ""
        rows = [
            [escape(s.role), _spec(s.spec), as_bytes(s.nbytes).replace(" ", "&nbsp;"), self._memory(node, s)]
            for s in node.saved
        ]
        return _table(f"Keeps alive {as_bytes(node.saved_bytes)}", ["", "shape", "size", "which is"], rows)

    def _memory(self, node: GraphNode, saved: Saved) -> str:
        parts = []
        if saved.source == f"#{node.number}":
            parts.append("its result")
        elif saved.source:
            parts.append(escape(saved.source) if saved.source[0] != "#" else self._link(int(saved.source[1:])))
        if saved.storage_bytes > saved.nbytes:
            parts.append(f"in memory of {as_bytes(saved.storage_bytes)}")
        others = [n for n in self.keepers[saved.storage] if n != node.number]
        if others:
            more = f" and {len(others) - 3} more" if len(others) > 3 else ""
            parts.append(f"kept by {', '.join([self._link(n) for n in others[:3]])}{more} too")
        if saved.changed_by:
            parts.append(f'<b class="spoiled">changed by {escape(saved.changed_by)} since: backward() will raise</b>')
        return "; ".join(parts)

    def _folded(self, node: GraphNode) -> str:
        if not node.folded:
            return ""
        counts: dict[str, int] = {}
        for inner in node.folded:
            counts[inner.op] = counts.get(inner.op, 0) + 1
        rows = [[escape(op), f"{count:,}"] for op, count in sorted(counts.items(), key=lambda pair: -pair[1])]
        return _table("Consists of", ["", "nodes"], rows)

    def _rule(self, node: GraphNode) -> str:
        """The id of the article about its derivative."""
        rules = node.rules()
        if not rules:
            return ""
        key = (node.op, *rules)
        if key not in self.known:
            self.known[key] = name = f"rule-{len(self.known) + 1}"
            self.rules.append(_derivative(name, node.op, rules))
        return self.known[key]

    def _link(self, number: int) -> str:
        node = self.nodes.get(number)
        title = node.name or node.op if node is not None else ""
        return f'<a href="#n{number}">{escape(title)} #{number}</a>' if node is not None else f"#{number}"


def _derivative(name: str, op: str, rules: list[Rule]) -> str:
    parts = [f'<article class="rule" id="{name}"><h3>Derivative of {escape(op)}</h3>']
    for rule in rules:
        parts.append(f"<p>for {escape(rule.operand)} <small>({escape(rule.where)})</small></p>")
        parts.append(f"<pre>{escape(rule.source)}</pre>")
    return "\n".join([*parts, "</article>"])


def _spec(spec: Any) -> str:
    return f"<code>{escape(tuple(spec.shape))}</code> {escape(spec.dtype.name)}, {escape(spec.device)}"


def _list(facts: list[tuple[str, str]]) -> str:
    return f"<dl>{''.join([f'<dt>{name}</dt><dd>{value}</dd>' for name, value in facts])}</dl>" if facts else ""


def _table(title: str, heads: list[str], rows: list[list[str]]) -> str:
    if not rows:
        return ""
    head = "".join([f"<th>{h}</th>" for h in heads])
    body = "".join([f"<tr>{''.join([f'<td>{cell}</td>' for cell in row])}</tr>" for row in rows])
    return f"<h3>{title}</h3><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
