"""Graphs in parts: fx.passes.split_module."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import norch
from norch import fx, nn
from norch.fx.passes.split_module import split_module

pytestmark = pytest.mark.usefixtures("on_host")


def network(t: Any) -> Any:
    class Network(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = t.nn.Sequential(t.nn.Linear(4, 4), t.nn.ReLU())
            self.p = t.nn.Parameter(t.ones(4))
            self.b = t.nn.Linear(4, 2)

        def forward(self, x, y):
            z = self.a(x)
            w = z + y
            v = w * self.p
            u = t.relu(z - v)
            return self.b(u) + v.sum(), w

    return Network()


def first_or_second(node):
    return 0 if node.name in ("a_0", "a_1", "add") else 1


OPTIONS: list[dict[str, Any]] = [
    {},
    {"partition_affix": "pp"},
    {"keep_original_node_name": True},
    {"keep_original_input_name": False},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_parts_compute_what_the_whole_does(options):
    module = network(norch)
    traced, places = fx.symbolic_trace(module), {}
    split = split_module(traced, module, first_or_second, places, **options)
    x, y = norch.randn(3, 4), norch.randn(3, 4)
    assert all(norch.equal(a, b) for a, b in zip(split(x, y), module(x, y), strict=True))
    head = f"submod_{options['partition_affix']}_" if "partition_affix" in options else "submod_"
    assert [name for name, _ in split.named_children()] == [f"{head}0", f"{head}1"]
    assert places == {f"{head}0.a_0": "a.0", f"{head}0.a_1": "a.1", f"{head}1.b": "b"}
    assert split.get_submodule(f"{head}1").b is module.b
    assert "placeholder" in {node.op for node in split.get_submodule(f"{head}1").graph.nodes}


@pytest.mark.parametrize("options", OPTIONS)
def test_parts_are_written_as_pytorchs(options):
    torch = pytest.importorskip("torch")
    theirs = importlib.import_module("torch.fx.passes.split_module").split_module
    code = []
    for lib, split in ((norch, split_module), (torch, theirs)):
        module = network(lib)
        made = split(lib.fx.symbolic_trace(module), module, first_or_second, **options)
        parts = [made, *[child for _, child in made.named_children()]]
        code.append(["\n".join(line.strip() for line in part.code.split("\n")).strip() for part in parts])
    assert code[0] == [text.replace("torch.", "norch.") for text in code[1]]


def test_parts_that_need_each_other_are_refused():
    module = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    traced = fx.symbolic_trace(module)
    with pytest.raises(RuntimeError, match="cycle exists between partitions"):
        split_module(traced, module, lambda node: node.name == "_1")
    whole = split_module(traced, module, lambda node: "all")
    assert whole(norch.ones(1, 2)).shape == (1, 2)
