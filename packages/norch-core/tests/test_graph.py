"""norch.graph: what it says of the autograd graph. Oracles: counts and bytes by hand, NumPy, PyTorch's own graph."""

from __future__ import annotations

import ast
import gc
import subprocess
import sys
from collections import Counter
from weakref import ref

import numpy as np
import pytest

import norch
from norch.dispatch.op import all_ops
from norch.inspection.derivatives import rules_of


def leaf(*shape, dtype=None):
    return norch.ones(*shape, dtype=dtype, requires_grad=True)


def edges(graph):
    return {(node.number, to) for node in graph for to in node.edges}


# --- Nodes, edges and names -------------------------------------------------------------------------------------------


def test_a_small_expression():
    a, b = leaf(2, 3), leaf(3)
    c = a * b
    d = (c + a).sum()
    graph = norch.graph(d)
    assert [(n.kind, n.title, n.shape) for n in graph] == [
        ("leaf", "a", "(2, 3)"), ("leaf", "b", "(3,)"), ("op", "c = mul", "(2, 3)"), ("op", "add", "(2, 3)"),
        ("op", "d = sum", "()"),
    ]  # fmt: skip
    assert edges(graph) == {(3, 1), (3, 2), (4, 3), (4, 1), (5, 4)}
    assert graph.outputs == [5]
    assert graph.op_counts == {"mul": 1, "add": 1, "sum": 1}
    assert graph["c"] is graph[3]
    assert [str(spec.dtype) for spec in graph["c"].outputs] == ["norch.float32"]
    with pytest.raises(KeyError, match="nothing"):
        graph["nothing"]
    with pytest.raises(IndexError, match="they are 1 to 5"):
        graph[6]


def test_names_are_given_or_those_of_the_callers_variables():
    class Model:
        def __init__(self):
            self.weight = leaf(3)

        def named_parameters(self):
            return [("weight", self.weight)]

        def named_buffers(self):
            return []

        def named_modules(self):
            return [("", self)]

    model, scale = Model(), leaf(3)
    others = [leaf(3), leaf(3)]
    result = model.weight * scale + others[0] * others[1]

    parameter = model.weight  # as in a loop over a model's parameters

    def names(**given):
        return sorted(n.title for n in norch.graph(result, **given) if n.kind == "leaf")

    assert names() == ["model.weight", "others[0]", "others[1]", "scale"]
    assert names(params=model) == ["others[0]", "others[1]", "scale", "weight"]
    assert names(params={"s": scale}) == ["model.weight", "others[0]", "others[1]", "s"]
    assert parameter is model.weight
    assert names(params=[("x", others[0]), ("y", others[1])]) == ["model.weight", "scale", "x", "y"]
    for wrong in (7, [scale], "weight"):
        with pytest.raises(TypeError, match="named_parameters"):
            names(params=wrong)


def test_scalars_and_attributes_are_told():
    x = leaf(2, 3)
    graph = norch.graph((x * 0.5).sum(1, keepdim=True))
    assert graph[2].title == "mul 0.5"
    assert graph[3].attributes["dim"] in (1, (1,))
    assert graph[3].attributes["keepdim"] is True


def test_several_outputs_and_ops_with_several_results():
    x = leaf(4, 3)
    values, places = x.sort(0)
    first, second = x.split(2)
    graph = norch.graph([values.sum(), first.sum() + second.sum()])
    assert len(graph.outputs) == 2
    assert Counter(graph.op_counts)["sum"] == 3
    sort = next(n for n in graph if n.op == "sort")
    assert [tuple(spec.shape) for spec in sort.outputs] == [(4, 3), (4, 3)]
    assert sum(n.kind == "leaf" for n in graph) == 1
    assert graph["values"] is sort


def test_views_in_place_changes_and_a_graph_of_a_backward_pass():
    x = leaf(4)
    y = x * 2
    part = y[1:]
    y.mul_(3)
    graph = norch.graph(part.sum())
    assert (graph.op_counts["mul"], graph.op_counts["as_strided"]) == (2, 1)
    z = (x**3).sum()
    (grad,) = norch.autograd.grad(z, x, create_graph=True)
    graph = norch.graph(grad)
    assert set(graph.op_counts) >= {"pow", "mul"}
    assert graph["x"].kind == "leaf"


def test_what_has_no_graph_is_refused():
    with pytest.raises(norch.AutogradError, match=r"shape \(3,\) does not require grad"):
        norch.graph(norch.ones(3))
    with pytest.raises(TypeError, match="expected a tensor"):
        norch.graph("loss")
    only = leaf(3)
    assert [n.title for n in norch.graph(only)] == ["only"]
    assert len(norch.graph([only.sum(), norch.ones(3)])) == 2  # the constant has nothing to show


# --- What is kept -----------------------------------------------------------------------------------------------------


def test_saved_bytes_by_hand():
    a, b = leaf(5), leaf(5, dtype=norch.float64)
    product = a * b  # computed in float64, keeps both operands as they are: 20 and 40 bytes
    result = product.exp()  # keeps its result: 40 bytes
    graph = norch.graph(result.sum())
    assert [(s.role, s.nbytes, s.source) for s in graph["product"].saved] == [("a", 20, "a"), ("b", 40, "b")]
    assert [(s.role, s.nbytes) for s in graph["result"].saved] == [("result", 40)]
    assert graph.saved_bytes == 20 + 40 + 40
    assert graph.leaf_bytes == 20 + 40


def test_memory_that_several_keep_counts_once():
    x = leaf(1000) * 2
    graph = norch.graph((x * x + x.exp() * x[:10].sum()).sum())
    squared = next(n for n in graph if n.op == "mul" and len(n.saved) == 2 and n.saved[0].storage == n.saved[1].storage)
    assert squared.saved_bytes == 4000
    # x, exp(x) and the sum; x[:10] lies in x.
    assert graph.saved_bytes == 4000 + 4000 + 4


def test_a_view_keeps_all_of_its_memory():
    x = leaf(1000) * 2
    graph = norch.graph((x[:10] ** 2).sum())
    (saved,) = next(n for n in graph if n.op == "pow").saved
    assert (saved.nbytes, saved.storage_bytes) == (40, 4000)
    assert graph.saved_bytes == 4000


def test_what_was_changed_since_is_told_before_backward_raises():
    x = leaf(3)
    y = x.exp()
    z = y.sum()
    y.add_(1)
    graph = norch.graph(z)
    (saved,) = next(n for n in graph if n.op == "exp").saved
    assert saved.changed_by.startswith("add_")  # and the line, where that is noted
    assert "changed by add_" in str(graph)
    assert f"changed by {saved.changed_by} since: backward() will raise" in graph.html()
    with pytest.raises(norch.AutogradError, match="add_ has changed it in place"):
        z.backward()


@pytest.mark.parametrize("retain", [False, True])
def test_a_graph_that_was_differentiated(retain):
    x = leaf(3)
    loss = (x.exp() * 2).sum()
    kept = norch.graph(loss).saved_bytes
    assert kept == 12
    loss.backward(retain_graph=retain)
    graph = norch.graph(loss)
    assert [n.op for n in graph if n.freed] == ([] if retain else ["exp"])
    assert graph.saved_bytes == (kept if retain else 0)
    assert ("freed" in graph.summary) is not retain
    assert ("let go of it" in graph.html()) is not retain
    assert len(graph) == 4


def test_a_custom_function():
    class Cube(norch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.other = x * 2
            return x**3

        @staticmethod
        def backward(ctx, grad):
            return grad * 3 * ctx.saved_tensors[0] ** 2

    x = leaf(4)
    loss = Cube.apply(x).sum()
    node = norch.graph(loss)[2]
    assert (node.kind, node.op, node.shape) == ("function", "Cube", "(4,)")
    assert [(s.role, s.nbytes) for s in node.saved] == [("saved_tensors[0]", 16), ("ctx.other", 16)]
    assert "grad * 3 * ctx.saved_tensors[0] ** 2" in node.rules()[0].source
    loss.backward()
    assert norch.graph(loss)[2].freed


# --- Gradients --------------------------------------------------------------------------------------------------------


def test_norms_of_gradients_and_why_others_are_not_known():
    x = norch.tensor([1.0, 2.0, -3.0], requires_grad=True)
    unused = leaf(3)
    square = x * x
    square.retain_grad()
    cube = square * x
    loss = (cube + 0 * unused.detach()).sum()
    graph = norch.graph(loss)
    assert graph["x"].grad_note == graph["square"].grad_note == "no gradient yet"
    loss.backward()
    graph = norch.graph(loss)
    values = np.array([1.0, 2.0, -3.0])
    assert graph["x"].grad_norm == pytest.approx(np.linalg.norm(3 * values**2))
    assert graph["square"].grad_norm == pytest.approx(np.linalg.norm(values))
    assert graph["cube"].grad_norm is None
    assert "retain_grad()" in graph["cube"].grad_note
    assert f"|grad| {np.linalg.norm(3 * values**2):.4g}" in str(graph)


def test_a_leaf_that_is_gone():
    loss = leaf(3).sum()
    gc.collect()
    node = norch.graph(loss)[1]
    assert (node.op, node.outputs) == ("a leaf that is gone", ())
    assert "is gone" in node.grad_note
    assert "a leaf that is gone" in norch.graph(loss).html()


def test_a_retained_gradient_of_one_result_of_several():
    x = leaf(4)
    first, second = x.split(2)
    values, _ = (x * 2).sort()
    values.retain_grad()
    loss = (values * 3).sum()
    loss.backward()
    assert norch.graph(loss)["values"].grad_norm == pytest.approx(6)


def test_gradients_of_low_precision_and_without_elements():
    x, empty = leaf(4, dtype=norch.float16), leaf(0)
    loss = (x * 200).sum().float() + empty.sum()
    loss.backward()
    graph = norch.graph(loss)
    assert graph["x"].grad_norm == pytest.approx(400)  # its square is beyond float16
    assert graph["empty"].grad_norm == 0


def test_any_device(device):
    x = norch.ones(3, device=device, requires_grad=True)
    loss = (x.exp() * 2).sum()
    graph = norch.graph(loss)
    assert (graph.saved_bytes, str(graph["x"].outputs[0].device)) == (12, str(x.device))
    loss.backward()
    graph = norch.graph(loss)
    assert graph["x"].grad_norm == pytest.approx(2 * np.e * 3**0.5)
    assert str(x.device) in graph.html()


def test_without_values():
    x = norch.ones(3, device="meta", requires_grad=True)
    loss = x.exp().sum()
    loss.backward()
    graph = norch.graph(loss)
    assert graph["x"].grad_norm is None
    assert "meta device" in graph["x"].grad_note
    assert "meta device" in str(graph)


# --- It only looks ----------------------------------------------------------------------------------------------------


def test_it_keeps_nothing_alive():
    x = leaf(3)
    y = x.exp()
    loss = (y * 2).sum()
    graph = norch.graph(loss)
    graph.html()
    buffer, node = ref(y.buffer) if hasattr(y.buffer, "__weakref__") else None, ref(x)
    before = gc.is_tracked(graph)
    del x, y, loss
    gc.collect()
    assert node() is None
    assert buffer is None or buffer() is None
    assert before
    assert len(graph) == 4


def test_it_changes_nothing():
    def train(look):
        norch.manual_seed(3)
        x = norch.randn(4, 3, requires_grad=True)
        loss = (x.exp() * norch.rand(4, 3)).sum()
        if look:
            norch.graph(loss).html()
        loss.backward(retain_graph=True)
        if look:
            str(norch.graph(loss))
        loss.backward()
        return x.grad.tolist(), norch.rand(3).tolist()

    assert train(True) == train(False)


def test_importing_norch_does_not_load_it():
    code = "import sys, norch; print([m for m in sys.modules if m.startswith('norch.inspection')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- Derivatives ------------------------------------------------------------------------------------------------------


def test_the_source_of_every_rule_can_be_read():
    count = 0
    for op in list(all_ops()):
        if op.rules is None or not op.owner.startswith("norch"):
            continue
        for rule in rules_of(op):
            assert "no source" not in rule.where, op
            ast.parse(rule.source)
            count += 1
    assert count > 150


def test_rules_are_those_of_the_operands():
    rules = {op.name: rules_of(op) for op in all_ops() if op.name in ("mul", "exp", "div")}
    assert [(r.operand, r.source) for r in rules["exp"]] == [("x", "lambda g, y: g * y")]
    assert [(r.operand, r.source) for r in rules["div"]] == [
        ("a", "lambda g, b: g / b"), ("b", "lambda g, a, b: -g * (a / b / b)"),
    ]  # fmt: skip
    assert [r.operand for r in rules["mul"]] == ["a", "b"]


# --- Beside PyTorch ---------------------------------------------------------------------------------------------------


def test_the_ops_are_those_of_pytorchs_graph():
    torch = pytest.importorskip("torch")

    def program(lib):
        x = lib.ones(4, 5, requires_grad=True)
        w = lib.ones(5, 3, requires_grad=True)
        h = lib.tanh(x @ w)
        gate = lib.sigmoid(h) * h
        return ((gate + h).exp() / 2 - h.T.reshape(4, 3)).sum()

    counts, stack, seen = Counter(), [program(torch).grad_fn], set()
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        counts[node.name().removesuffix("Backward0").lower()] += 1
        stack += [edge for edge, _ in node.next_functions]
    # Names of ours for theirs. reshape is a copy there too, and is one node.
    theirs = Counter({"matmul": counts.pop("mm"), "permute": counts.pop("t", 0) + counts.pop("permute", 0)})
    theirs["leaf"] = counts.pop("torch::autograd::accumulategrad")
    theirs["reshape"] = counts.pop("view", 0) + counts.pop("unsafeview", 0)
    theirs["copy"] = counts.pop("clone", 0)
    ours = Counter(n.op for n in norch.graph(program(norch)))
    assert ours == +(theirs + counts)
