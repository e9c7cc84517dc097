"""norch.graph of models: names of parameters, which module made what, captured and checkpointed parts."""

import pytest

import norch
from norch import nn
from norch.nn import functional as F


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return (self.second(self.first(x).relu()) + x).relu()


@pytest.fixture
def model():
    norch.manual_seed(0)
    return nn.Sequential(Block(), Block(), nn.Linear(4, 2))


def hooks_of(module):
    """Forward hooks: what one that is registered finds beside itself."""
    found = []
    for register in (module.register_forward_hook, module.register_forward_pre_hook):
        handle = register(lambda *args: None)
        found += list(handle._hooks.values())[:-1]
        handle.remove()
    return found


def modules(graph):
    return [(n.op, n.module) for n in graph if n.kind != "leaf"]


def test_parameters_have_the_models_names(model):
    loss = model(norch.ones(2, 4)).sum()
    for graph, prefix in [
        (norch.graph(loss, params=model), ""), (norch.graph(loss, params=model.named_parameters()), ""),
        (norch.graph(loss, params=dict(model.named_parameters())), ""), (norch.graph(loss), "model."),
    ]:  # fmt: skip
        names = {n.title for n in graph if n.kind == "leaf"}
        assert names == {prefix + name for name, _ in model.named_parameters()}


def test_a_function_is_watched_and_the_modules_are_known(model):
    graph = norch.graph(lambda: model(norch.ones(2, 4)).sum(), params=model)
    block = [("linear", "{}.first"), ("relu", "{}"), ("linear", "{}.second"), ("add", "{}"), ("relu", "{}")]
    expected = [(op, module.format(i)) for i in (0, 1) for op, module in block]
    assert modules(graph) == [*expected, ("linear", "2"), ("sum", "")]
    assert graph.modules_are_known
    assert not any(hooks_of(module) for module in model.modules())
    named = norch.graph(lambda: model(norch.ones(2, 4)).sum())
    assert ("linear", "model.1.first") in modules(named)


def test_without_watching_modules_are_guessed_from_parameters(model):
    graph = norch.graph(model(norch.ones(2, 4)).sum(), params=model)
    found = modules(graph)
    assert not graph.modules_are_known
    assert [m for op, m in found if op == "linear"] == ["0.first", "0.second", "1.first", "1.second", "2"]
    assert found[1] == ("relu", "0")  # between the layers of a block
    assert found[4] == ("relu", "")  # between blocks


def test_hooks_are_removed_where_the_function_raises(model):
    with pytest.raises(ZeroDivisionError):
        norch.graph(lambda: model(norch.ones(2, 4)) / (1 // 0), params=model)
    assert not any(hooks_of(module) for module in model.modules())


def test_a_module_that_raises_and_is_caught_confuses_nothing(model):
    class Careful(nn.Module):
        def __init__(self):
            super().__init__()
            self.wrong, self.right = nn.Linear(9, 9), nn.Linear(4, 4)

        def forward(self, x):
            try:
                return self.wrong(x)
            except norch.ShapeError:
                return self.right(x).tanh()

    careful = Careful()
    graph = norch.graph(lambda: model(careful(norch.ones(2, 4))).sum(), params={})
    assert modules(graph)[:3] == [("linear", "careful.right"), ("tanh", "careful"), ("linear", "model.0.first")]


def test_saved_bytes_of_a_layer_by_hand():
    layer = nn.Linear(3, 4)
    x = norch.ones(5, 3)
    graph = norch.graph(F.relu(layer(x)).sum())
    # linear keeps its input of 5 * 3 floats, relu its result of 5 * 4.
    assert graph.saved_bytes == 60 + 80
    x.requires_grad_()
    graph = norch.graph(F.relu(layer(x)).sum())
    assert graph.saved_bytes == 60 + 80 + 48  # the weight too
    assert graph.leaf_bytes == 60 + 48


def test_a_captured_module_is_one_node(model):
    captured = norch.capture(model)
    x = norch.ones(2, 4)
    notes = []
    for _ in range(8):
        loss = captured(x).sum()
        graph = norch.graph(loss, params=model)
        loss.backward()
        if any(n.kind == "captured" for n in graph):
            notes += [(n.note, graph.saved_bytes) for n in graph if n.kind == "captured"]
            after = norch.graph(loss, params=model)
            assert [n.freed for n in after if n.kind == "captured"] == [True]
            assert after.saved_bytes == 0
    assert "11 nodes inside" in notes[0][0]  # two blocks of five ops, and the last layer
    # Each layer keeps its input, which x or a relu has made, and all but the first their weights.
    assert notes[0][1] == (1 + 4) * 32 + 3 * 64 + 32
    assert "was replayed" in notes[-1][0]
    assert notes[-1][1] > 0
    assert {n.title for n in graph if n.kind == "leaf"} == {name for name, _ in model.named_parameters()}
    assert "captured step" in graph.html()
    assert "captured" in str(norch.graph(loss))


def test_a_checkpoint_is_a_node(model):
    x = norch.ones(2, 4, requires_grad=True)
    loss = norch.utils.checkpoint.checkpoint(model, x, use_reentrant=True).sum()
    graph = norch.graph(loss)
    assert "function" in {n.kind for n in graph}
    loss.backward()
    str(norch.graph(loss))


def test_batch_norm_dropout_and_embedding():
    norch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    loss = model(norch.tensor([1, 2, 3])).sum()
    graph = norch.graph(loss, params=model)
    assert set(graph.op_counts) >= {"embedding", "linear", "batch_norm", "dropout"}
    loss.backward()
    assert all(n.grad_norm is not None for n in norch.graph(loss) if n.kind == "leaf")


def test_a_sparse_matrix_is_a_leaf_of_its_values():
    places = norch.tensor([[0, 1], [1, 0]])
    matrix = norch.sparse_coo_tensor(places, norch.tensor([1.0, 2.0]), (2, 2)).requires_grad_()
    loss = norch.sparse.mm(matrix, norch.ones(2, 3)).sum()
    loss.backward()
    (values,) = [n for n in norch.graph(loss) if n.kind == "leaf"]
    assert values.shape == "(2,)"
    assert values.grad_norm == pytest.approx((3**2 + 3**2) ** 0.5)


@pytest.mark.usefixtures("on_host")
def test_lower_precision_is_seen():
    layer = nn.Linear(3, 4)
    with norch.autocast("cpu", dtype=norch.bfloat16):
        loss = layer(norch.ones(2, 3)).sum()
    node = next(n for n in norch.graph(loss) if n.op == "linear")
    assert [str(spec.dtype) for spec in node.outputs] == ["norch.bfloat16"]
