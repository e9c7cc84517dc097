"""What norch.graph draws and writes: text, Graphviz's language, SVG. The page is tried in tests/test_graph_page.py."""

from __future__ import annotations

import os
import re
import stat
import sys
from xml.etree import ElementTree

import pytest

import norch

SVG = "{http://www.w3.org/2000/svg}"


def residual(blocks=3):
    """A chain with edges that skip an op, and leaves."""
    x = norch.ones(2, 4)
    weights = [norch.ones(4, 4, requires_grad=True) for _ in range(blocks)]
    for weight in weights:
        x = (x @ weight).relu() + x
    loss = x.sum()
    return norch.graph(loss)


def long_chain(length=10_000):
    x = norch.ones(3, requires_grad=True)
    y = x
    for i in range(length):
        y = y * 1.5 if i % 2 else y + 1
    return norch.graph(y)


def by_modules(blocks):
    """Named as the parameters of a model with two layers a block."""
    params = {f"block.{i}.fc{j}.weight": norch.ones(2, 2, requires_grad=True) for i in range(blocks) for j in (1, 2)}
    x = norch.ones(1, 2)
    for weight in params.values():
        x = (x @ weight).tanh()
    return norch.graph(x.sum(), params=params)


# --- Text -------------------------------------------------------------------------------------------------------------


def test_text_has_each_node_once_and_arrows_for_the_rest():
    graph = residual()
    text = graph.text()
    assert text.startswith(graph.summary)
    rows = text.splitlines()[2:]
    named = [re.search(r"#(\d+)", row)[1] for row in rows if "->" not in row]
    assert sorted(map(int, named)) == [n.number for n in graph]
    arrows = [row for row in rows if "->" in row]
    assert len(rows) - 1 == sum(len(set(n.edges)) for n in graph)  # a row for each edge, and one for the output
    for row in arrows:
        number, where = re.search(r"\(#(\d+)\), (above|below)", row).groups()
        at = next(i for i, other in enumerate(rows) if f"#{number} " in f"{other} " and "->" not in other)
        assert (at < rows.index(row)) == (where == "above")
    assert max(len(row) - len(row.lstrip("| ")) for row in rows) <= 6  # the long way stays at the left


def test_text_is_plain():
    residual().text().encode("ascii")


# --- Many nodes -------------------------------------------------------------------------------------------------------


def test_ten_thousand_ops_in_a_chain(monkeypatch):
    monkeypatch.setattr(sys, "setrecursionlimit", None)
    graph = long_chain()
    assert len(graph) == 10_001
    for way in (graph.text, graph.dot, graph.svg, graph.html):
        text = way()
        assert len(text) < 100_000
        assert "10,001 nodes, of which 9,994 are shown as 1" in text
        assert "4,997 times mul, add" in text
    assert graph.text(limit=None).count("\n") > 10_000
    assert graph.text(limit=None).count("mul 1.5") == 5000


def test_modules_are_shown_as_one_where_there_are_too_many_nodes():
    graph = by_modules(20)
    assert graph.op_counts == {"matmul": 40, "tanh": 40, "sum": 1}
    assert graph["block.3.fc2.weight"].module == "block.3.fc2"
    assert {n.module for n in graph if n.op == "matmul"} == {f"block.{i}.fc{j}" for i in range(20) for j in (1, 2)}
    text = graph.text(limit=60)
    # Between the layers of a block there is what the block itself computes, between blocks what all of them do.
    assert "block.7: 3 ops, 2 leaves" in text
    assert len(text.splitlines()) <= 60 + 3
    assert "block: 79 ops, 40 leaves" in graph.text(limit=10)
    assert "block" not in residual().text(limit=2).split("\n", 2)[2]


def test_the_newest_are_shown_where_nothing_else_helps():
    leaves = [norch.ones(2, requires_grad=True) for _ in range(300)]
    graph = norch.graph(norch.stack(leaves).sum())
    text = graph.text(limit=20)
    assert "older nodes" in text
    assert "the 19 newest are shown" in text
    assert len(text.splitlines()) < 30
    ElementTree.fromstring(graph.svg(limit=20))


# --- Graphviz ---------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")  # of pydot
def test_dot_is_read_by_a_library():
    pydot = pytest.importorskip("pydot")
    graph = residual()
    odd = norch.graph(norch.ones(2, requires_grad=True) * 2, params={})
    odd[1].names = ['a "quoted" \\ name\nof two lines']
    (parsed,) = pydot.graph_from_dot_data(graph.dot())
    nodes = {n.get_name(): n.get_label() for n in parsed.get_nodes() if n.get_name() not in ("graph", "node")}
    assert set(nodes) == {f"n{n.number}" for n in graph}
    assert "weights[0]" in nodes["n1"]
    assert "(2, 4) float32" in nodes["n2"]
    found = {(e.get_source(), e.get_destination()) for e in parsed.get_edges()}
    assert found == {(f"n{to}", f"n{n.number}") for n in graph for to in n.edges}
    (parsed,) = pydot.graph_from_dot_data(odd.dot())
    assert '\\"quoted\\" \\\\ name' in parsed.get_node("n1")[0].get_label()


# --- SVG --------------------------------------------------------------------------------------------------------------


def boxes(svg):
    """By id of a node its box: left, top, right, bottom."""
    found = {}
    for group in ElementTree.fromstring(svg).iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        if rect is not None and "node" in group.get("class"):
            x, y, w, h = (float(rect.get(key)) for key in ("x", "y", "width", "height"))
            found[group.get("id")] = (x, y, x + w, y + h)
    return found


@pytest.mark.parametrize("graph", [residual, long_chain, lambda: by_modules(8)], ids=["residual", "chain", "modules"])
def test_no_boxes_touch_and_data_flows_down(graph):
    graph = graph()
    svg = graph.svg(layout="norch")
    places = boxes(svg)
    assert len(places) >= min(len(graph), 7)
    every = list(places.values())
    for i, (l, t, r, b) in enumerate(every):
        for l2, t2, r2, b2 in every[i + 1 :]:
            assert r <= l2 or r2 <= l or b <= t2 or b2 <= t
    paths = 0
    for group in ElementTree.fromstring(svg).iter(f"{SVG}g"):
        if group.get("class").startswith("edge"):
            numbers = [float(n) for n in re.findall(r"-?\d+(?:\.\d+)?", group.find(f"{SVG}path").get("d"))]
            assert numbers[-1] > numbers[1]
            paths += 1
    assert paths >= len(places) - 1


def test_a_leaf_that_is_used_far_away_is_there_again():
    w = norch.ones(2, 2, requires_grad=True)
    x = norch.ones(1, 2)
    for _ in range(12):
        x = (x @ w).tanh()
    svg = norch.graph(x.sum()).svg(layout="norch")
    assert svg.count('data-node="1"') > 3
    assert svg.count("again") > 2


def test_texts_are_escaped():
    graph = norch.graph(norch.ones(2, requires_grad=True) * 2)
    graph[1].names = ["<b>&\"'"]
    assert "&lt;b&gt;&amp;" in graph.svg()
    assert "<b>&" not in graph.html()
    ElementTree.fromstring(graph.svg())


PLAIN = """\
import re, sys
text = sys.stdin.read()
print("graph 1 4 4")
for i, name in enumerate(re.findall(r"^(\\d+) \\[", text, re.M)):
    print(f"node {name} {i} {9 - i} 1 1 x solid box black white")
for a, b in re.findall(r"^(\\d+) -> (\\d+);", text, re.M):
    print(f"edge {a} {b} 4 1 2 1.5 2.5 2 3 2.5 3.5 solid black")
print("stop")
"""


@pytest.mark.skipif(os.name == "nt", reason="a script that stands for dot")
def test_graphviz_places_the_nodes_where_it_is_installed(tmp_path, monkeypatch):
    graph = residual(1)
    monkeypatch.setenv("PATH", "")
    ours = graph.svg()
    assert ours == graph.svg(layout="norch")
    with pytest.raises(FileNotFoundError, match="layout='norch'"):
        graph.svg(layout="dot")
    program, script = tmp_path / "dot", tmp_path / "dot.py"
    script.write_text(PLAIN)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}"\n')  # in a folder with a space too
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path))
    placed = boxes(graph.svg())
    assert graph.svg() != ours
    middles = [((l + r) / 2, (t + b) / 2) for l, t, r, b in placed.values()]
    assert middles == [pytest.approx((72 * i, -72 * (9 - i)), abs=0.1) for i in range(len(middles))]
    assert len(boxes(ours)) == len(placed)
    program.write_text("#!/bin/sh\nexit 1\n")
    assert graph.svg() == ours  # a dot that fails


# --- Files and notebooks ----------------------------------------------------------------------------------------------


def test_files(tmp_path):
    graph = residual(1)
    begins_with = {"html": "<!doctype html>", "svg": "<svg ", "dot": "digraph", "txt": graph.summary}
    for ending, begins in begins_with.items():
        name = f"graph.{ending}"
        graph.save(tmp_path / name)
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(begins)
    graph.save(str(tmp_path / "few.txt"), limit=2)
    assert "older nodes" in (tmp_path / "few.txt").read_text()
    with pytest.raises(ValueError, match=r"graph\.pdf ends in none of \.html"):
        graph.save(tmp_path / "graph.pdf")


def test_notebooks():
    graph = residual(1)
    ElementTree.fromstring(graph._repr_svg_())
    frame = graph._repr_html_()
    assert frame.startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    assert repr(graph) == f"<AutogradGraph: {graph.summary}>"


def test_the_page_asks_for_nothing():
    html = residual().html()
    assert not re.search(r"(?:src|href)=\"(?!#)", html)
    assert not re.findall(r"url\(|@import|fetch\(", html)
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "")
