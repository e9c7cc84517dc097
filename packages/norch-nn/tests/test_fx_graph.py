"""norch.fx: graphs and their nodes, by hand. What is expected is what PyTorch 2.13 gives for the same lines."""

import copy
import operator
import pickle

import pytest

import norch
from norch import fx, nn
from norch.fx.immutable_collections import immutable_list
from norch.fx.passes.shape_prop import ShapeProp

pytestmark = pytest.mark.usefixtures("on_host")


def names(graph):
    return [node.name for node in graph.nodes]


def small():
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.placeholder("y", default_value=2)
    added = graph.call_function(operator.add, (x, y))
    relu = graph.call_method("relu", (added,))
    graph.output(relu)
    return graph


def test_a_graph_by_hand():
    graph = small()
    assert str(graph) == (
        "graph():\n"
        "    %x : [num_users=1] = placeholder[target=x]\n"
        "    %y : [num_users=1] = placeholder[target=y](default=2)\n"
        "    %add : [num_users=1] = call_function[target=operator.add](args = (%x, %y), kwargs = {})\n"
        "    %relu : [num_users=1] = call_method[target=relu](args = (%add,), kwargs = {})\n"
        "    return relu"
    )
    module = fx.GraphModule({}, graph)
    assert module(norch.tensor([-3.0, 1.0])).tolist() == [0.0, 3.0]
    assert graph.owning_module is module
    assert len(graph.nodes) == 5
    assert [n.name for n in reversed(graph.nodes)] == ["output", "relu", "add", "y", "x"]
    assert graph.output_node().args[0].name == "relu"


def test_names_are_there_once():
    graph = fx.Graph()
    x = graph.placeholder("x")
    for target in (operator.add, operator.add, norch.max):
        graph.call_function(target, (x, x))
    graph.create_node("call_function", norch.neg, (x,), name="add_1")
    graph.call_method("__getitem__", (x, 0))
    graph.call_module("layers.0.fc", (x,))
    graph.create_node("call_function", norch.neg, (x,), name="BatchNorm")
    assert names(graph) == ["x", "add", "add_1", "max_1", "add_2", "getitem", "layers_0_fc", "BatchNorm"]


def test_where_nodes_go():
    graph = small()
    nodes = {node.name: node for node in graph.nodes}
    with graph.inserting_before(nodes["relu"]):
        graph.call_function(norch.neg, (nodes["add"],))
        graph.call_function(norch.exp, (nodes["add"],))
    with graph.inserting_after(nodes["relu"]):
        graph.call_function(norch.sin, (nodes["relu"],))
        graph.call_function(norch.cos, (nodes["relu"],))
    assert names(graph) == ["x", "y", "add", "neg", "exp", "relu", "cos", "sin", "output"]
    nodes["x"].append(nodes["add"])
    assert names(graph)[:3] == ["x", "add", "y"]
    with pytest.raises(RuntimeError, match="used before it has been defined"):
        graph.lint()
    nodes["add"].prepend(nodes["y"])
    graph.lint()
    assert nodes["x"].next is nodes["y"]
    assert nodes["add"].prev is nodes["y"]
    other = small()
    with pytest.raises(AssertionError, match="another graph"):
        graph.inserting_before(other.output_node())
    with pytest.raises(AssertionError, match="different graphs"):
        nodes["x"].append(other.output_node())


def test_users_follow_arguments():
    graph = small()
    x, y, added, relu, output = graph.nodes
    assert list(x.users) == [added]
    assert added.all_input_nodes == [x, y]
    added.args = (y, [x, {"k": (y, slice(x, None))}])
    assert added.args[1][0] is x
    assert added.args[1][1]["k"][1].start is x
    assert isinstance(added.args[1], immutable_list)
    with pytest.raises(NotImplementedError, match="cannot be changed in place"):
        added.args[1].append(3)
    added.update_arg(1, x)
    added.update_kwarg("alpha", y)
    assert added.args == (y, x)
    assert dict(added.kwargs) == {"alpha": y}
    added.insert_arg(0, 7)
    assert added.args == (7, y, x)
    assert relu.replace_all_uses_with(x) == [output]
    assert output.args == (x,)
    assert not relu.users
    assert list(x.users) == [added, output]
    added.replace_input_with(y, x)
    assert not y.users
    with pytest.raises(RuntimeError, match="still had 1 users"):
        graph.erase_node(added)
    graph.erase_node(relu)
    graph.erase_node(added)
    assert names(graph) == ["x", "y", "output"]


def test_dead_code_is_removed():
    def function(x):
        x.add_(1)
        norch._assert(x.shape[0] == 2, "two rows")
        (x * 2).exp()
        return x.sum()

    traced = fx.symbolic_trace(function)
    assert traced.graph.eliminate_dead_code()
    assert names(traced.graph) == ["x", "add_", "getattr_1", "getitem", "eq", "_assert", "sum_1", "output"]
    assert not traced.graph.eliminate_dead_code()
    traced.recompile()
    assert traced(norch.ones(2)).item() == 4.0
    with pytest.raises(AssertionError, match="two rows"):
        traced(norch.ones(3))


def test_copies_of_graphs():
    graph = small()
    copied = copy.deepcopy(graph)
    assert str(copied) == str(graph)
    assert not set(copied.nodes) & set(graph.nodes)
    whole = fx.Graph()
    whole.output(whole.graph_copy(graph, {}))
    assert str(whole) == str(graph)
    kept = pickle.loads(pickle.dumps(graph))
    assert str(kept) == str(graph)
    assert kept.find_nodes(op="call_function", target=operator.add)[0].args == tuple(kept.find_nodes(op="placeholder"))


def test_graphs_are_checked():
    graph = small()
    with pytest.raises(ValueError, match="op must be one of"):
        graph.create_node("call", "x")
    with pytest.raises(ValueError, match="must be callable"):
        graph.create_node("call_function", "x")
    with pytest.raises(ValueError, match="must be a string"):
        graph.create_node("call_method", norch.add)
    graph.output_node().args = (small().output_node().args[0],)
    with pytest.raises(RuntimeError, match="does not belong to this Graph"):
        graph.lint()
    missing = fx.Graph()
    missing.output(missing.call_module("fc"))
    with pytest.raises(RuntimeError, match="root does not have"):
        fx.GraphModule({}, missing)
    module = fx.GraphModule({"fc": nn.Tanh()}, missing)
    del module.fc
    with pytest.raises(RuntimeError, match="references nonexistent attribute fc"):
        missing.lint()


def test_code_of_arguments():
    def function(x):
        out = norch.full((2,), float("inf"), dtype=norch.float64, device=norch.device("cpu"))
        return (out, [x, None], {"a": x[..., 1:, None], 2: "text"}, (1 + 2j, True), float("-inf"))

    traced = fx.symbolic_trace(function)
    found = traced(norch.ones(2, 3))
    assert found[0].dtype == norch.float64
    assert found[1][1] is None
    assert found[2]["a"].shape == (2, 2, 1)
    assert found[2][2] == "text"
    assert found[3:] == ((1 + 2j, True), float("-inf"))


def test_print_tabular(capsys):
    small().print_tabular()
    rows = [line.split() for line in capsys.readouterr().out.split("\n")]
    assert rows[0] == ["opcode", "name", "target", "args", "kwargs"]
    assert rows[3] == ["placeholder", "y", "y", "(2,)", "{}"]
    assert rows[4] == ["call_function", "add", "operator.add", "(x,", "y)", "{}"]


def test_shapes_are_noted():
    traced = fx.symbolic_trace(nn.Sequential(nn.Linear(3, 4), nn.Unflatten(1, (2, 2))))
    ShapeProp(traced).propagate(norch.ones(5, 3))
    assert [tuple(n.meta["tensor_meta"].shape) for n in traced.graph.nodes] == [(5, 3), (5, 4), (5, 2, 2), (5, 2, 2)]
    assert {n.meta["tensor_meta"].dtype for n in traced.graph.nodes} == {norch.float32}
    assert [n.meta["tensor_meta"].requires_grad for n in traced.graph.nodes] == [False, True, True, True]


def test_patterns_are_replaced():
    def function(x, w1, w2):
        first, second = norch.cat([w1, w2]).sum(), norch.cat([w1, w2]).sum()
        return x + norch.max(first) + norch.max(second)

    traced = fx.symbolic_trace(function)
    matches = fx.replace_pattern(traced, lambda w1, w2: norch.cat([w1, w2]).sum(), lambda w1, w2: norch.stack([w1, w2]))
    assert [match.anchor.name for match in matches] == ["sum_1", "sum_2"]
    traced.graph.lint()
    assert names(traced.graph) == ["x", "w1", "w2", "stack", "stack_1", "max_1", "add", "max_2", "add_1", "output"]
    assert traced(norch.zeros(1), norch.tensor([1.0]), norch.tensor([5.0])).tolist() == [10.0]

    chain = fx.symbolic_trace(lambda x: norch.relu(norch.relu(norch.relu(norch.relu(x)))))
    assert len(fx.replace_pattern(chain, lambda x: norch.relu(norch.relu(x)), lambda x: x.neg())) == 2
    assert names(chain.graph) == ["x", "neg", "neg_1", "output"]

    used = fx.symbolic_trace(lambda x: norch.exp(y := norch.relu(x)) + y)  # relu is used outside of the pattern
    assert fx.replace_pattern(used, lambda x: norch.exp(norch.relu(x)), lambda x: x) == []
    with pytest.raises(RuntimeError, match="same arguments"):
        fx.replace_pattern(used, lambda x: x.exp(), lambda x, y: x)


def test_has_side_effect():
    @fx.has_side_effect
    def note(x):
        return x

    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(note, (x,))
    graph.output(x)
    assert not graph.eliminate_dead_code()
