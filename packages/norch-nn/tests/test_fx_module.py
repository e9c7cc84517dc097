"""norch.fx: GraphModule, Interpreter and Transformer, against the modules that they are made of."""

import copy
import inspect
import pickle
import traceback

import pytest

import norch
import norch.nn.functional as F
from norch import fx, nn
from norch.fx.experimental.optimization import fuse, remove_dropout
from norch.fx.graph_module import _copy_attr

pytestmark = pytest.mark.usefixtures("on_host")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        self.register_buffer("shift", norch.ones(4))

    def forward(self, x):
        return F.relu(self.body(x)) + self.shift


@pytest.fixture
def traced():
    norch.manual_seed(0)
    return fx.symbolic_trace(Net())


X = [[1.0, -2.0, 0.5], [0.0, 3.0, -1.0]]


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_copies(traced, make):
    x = norch.tensor(X)
    expected = traced.eval()(x)
    copied = make(traced)
    assert (copied(x) == expected).all()
    assert type(copied).__name__ == "Net"
    assert isinstance(copied, fx.GraphModule)
    assert copied.code == traced.code
    assert not copied.training
    assert copied.graph.owning_module is copied
    assert (copied.shift is traced.shift) is (make is copy.copy)
    node = copied.graph.find_nodes(op="call_function", target=F.relu)[0]
    node.target = norch.neg
    copied.recompile()
    assert (traced(x) == expected).all()  # each has a forward of its own
    assert (copied(x) != expected).any()


def test_a_subclass_makes_its_graph():
    class Doubled(fx.GraphModule):
        def __init__(self):
            super().__init__(self, fx.Graph())
            x = fx.Proxy(self.graph.placeholder("x"))
            self.graph.output((x * 2).node, norch.Tensor)
            self.recompile()

        def twice(self, x):
            return self(self(x))

    module = Doubled()
    assert module.twice(norch.ones(1)).tolist() == [4.0]
    assert isinstance(module, Doubled)
    assert "-> norch.Tensor" in module.code


def test_a_subclass_with_two_graphs(traced):
    """As torchvision's DualGraphModule, which does not call GraphModule's own __init__."""

    class Dual(fx.GraphModule):
        def __init__(self, root, train_graph, eval_graph, class_name="GraphModule"):
            super(fx.GraphModule, self).__init__()
            self.__class__.__name__ = class_name
            self.train_graph, self.eval_graph = train_graph, eval_graph
            for node in (*train_graph.nodes, *eval_graph.nodes):
                if node.op in ("get_attr", "call_module"):
                    _copy_attr(root, self, node.target)
            self.train()
            self.graph = train_graph

        def train(self, mode=True):
            if mode != self.training:
                self.graph = self.train_graph if mode else self.eval_graph
            return super().train(mode)

    short = copy.deepcopy(traced.graph)
    short.output_node().args = (short.find_nodes(op="call_module", target="body.0")[0],)
    short.eliminate_dead_code()
    dual = Dual(traced, traced.graph, short, class_name="Both")
    x = norch.tensor(X)
    assert type(dual).__name__ == "Both"
    assert Dual.__name__ == "Dual"
    assert (dual.eval()(x) == traced.body.get_submodule("0")(x)).all()
    assert (nn.Sequential(dual).train()(x) == traced.train()(x)).all()


def test_code_can_be_read_and_traced_back(traced):
    assert inspect.getsource(traced.forward) == traced.code.lstrip("\n")
    with pytest.raises(Exception) as caught:
        traced(norch.ones(1, 2))
    assert "self.body" in "".join(traceback.format_exception(caught.value))
    assert "class Net(norch.nn.Module):\n    def forward(self, x):" in traced.print_readable(print_output=False)
    assert str(traced).endswith(traced.code)


def test_what_a_graph_names_is_copied():
    net = Net()
    module = nn.Module()
    _copy_attr(net, module, "body.0.weight")
    assert module.body.get_submodule("0").weight is net.body[0].weight
    _copy_attr(net, module, "shift")
    assert [name for name, _ in module.named_buffers()] == ["shift"]
    graph = fx.Graph()
    graph.output(graph.get_attr("deep.er.table"))
    made = fx.GraphModule({"deep.er.table": norch.ones(2)}, graph)
    assert made().tolist() == [1.0, 1.0]
    assert list(made.state_dict()) == ["deep.er.table"]


def test_modules_are_added_and_deleted(traced):
    assert traced.add_submodule("extra.tanh", nn.Tanh())
    assert isinstance(traced.extra.tanh, nn.Tanh)
    assert not traced.add_submodule("shift.x", nn.Tanh())
    assert traced.delete_submodule("extra.tanh")
    assert not traced.delete_submodule("extra.tanh")
    traced.delete_all_unused_submodules()
    assert [name for name, _ in traced.named_modules()] == ["", "body", "body.0", "body.1"]


def test_interpreters_see_every_step(traced):
    class Noting(fx.Interpreter):
        def run_node(self, n):
            seen.append(n.name)
            return super().run_node(n)

        def call_function(self, target, args, kwargs):
            return super().call_function(norch.neg if target is F.relu else target, args, kwargs)

    seen = []
    x = norch.tensor(X)
    traced.eval()
    expected = -traced.body.get_submodule("1")(traced.body.get_submodule("0")(x)) + 1
    interpreter = Noting(traced)
    assert (interpreter.run(x) == expected).all()
    assert seen == ["x", "body_0", "body_1", "relu", "shift", "add", "output"]
    assert [node.name for node in interpreter.env] == ["add", "output"]  # what is used up is forgotten
    nodes = {n.name: n for n in traced.graph.nodes}
    assert fx.Interpreter(traced).run(initial_env={nodes["add"]: 7, nodes["x"]: x}) == 7
    with pytest.raises(RuntimeError, match="Expected positional argument for parameter x"):
        fx.Interpreter(traced).run()
    with pytest.raises(RuntimeError, match=r"nonexistent target") as caught:
        del traced.shift
        fx.Interpreter(traced).run(x)
    assert "While executing %shift" in caught.value.__notes__[0]


def test_transformers_make_other_graphs(traced):
    class Smooth(fx.Transformer):
        def call_function(self, target, args, kwargs):
            return F.silu(*args) if target is F.relu else super().call_function(target, args, kwargs)

        def call_module(self, target, args, kwargs):
            return super().call_module(target, args, kwargs) * 2 if target == "body.0" else args[0]

    x = norch.tensor(X)
    traced.eval()
    changed = Smooth(traced).transform()
    assert (changed(x) == F.silu(traced.body.get_submodule("0")(x) * 2) + 1).all()
    assert sorted(changed.state_dict()) == ["body.0.bias", "body.0.weight", "shift"]
    assert changed.body.get_submodule("0") is traced.body.get_submodule("0")
    assert (fx.Transformer(traced).transform()(x) == traced(x)).all()


def test_a_convolution_takes_its_normalisation_in():
    """PyTorch's tutorial on fx."""
    norch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU())
    net(norch.randn(8, 2, 5, 5))
    traced = fx.symbolic_trace(net.eval())
    modules = dict(traced.named_modules())
    for node in list(traced.graph.nodes):
        if node.op == "call_module" and isinstance(modules[node.target], nn.BatchNorm2d):
            before = node.args[0]
            fused = nn.utils.fuse_conv_bn_eval(modules[before.target], modules[node.target])
            setattr(traced, before.target, fused)
            node.replace_all_uses_with(before)
            traced.graph.erase_node(node)
    traced.graph.lint()
    traced.delete_all_unused_submodules()
    traced.recompile()
    x = norch.randn(2, 2, 5, 5)
    assert [type(m).__name__ for m in traced.children()] == ["Conv2d", "ReLU"]
    norch.testing.assert_close(traced(x), net(x), rtol=1e-5, atol=1e-6)


def test_fuse_and_remove_dropout():
    norch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Dropout(0.5), nn.Flatten(), nn.Linear(27, 4), nn.BatchNorm1d(4)
    )
    net(norch.randn(8, 2, 5, 5))
    fused = fuse(net.eval())
    x = norch.randn(2, 2, 5, 5)
    norch.testing.assert_close(fused(x), net(x), rtol=1e-5, atol=1e-6)
    assert [n.target for n in fused.graph.find_nodes(op="call_module")] == ["0", "2", "3", "4"]
    assert isinstance(net[1], nn.BatchNorm2d)
    without = remove_dropout(net.train())
    assert [n.target for n in without.graph.find_nodes(op="call_module")] == ["0", "1", "3", "4", "5"]
    with pytest.raises(ValueError, match="evaluation mode"):
        fuse(net)


def test_compiled_modules_follow_changes(traced):
    traced.eval()
    compiled, x = norch.compile(traced), norch.tensor(X)
    assert (compiled(x) == traced(x)).all()
    traced.graph.find_nodes(op="call_function", target=F.relu)[0].target = norch.neg
    traced.recompile()
    assert (compiled(x) == traced(x)).all()
    assert (compiled(x) <= 1).any()


def test_its_class_is_known_by_its_name():
    module = fx.symbolic_trace(nn.Linear(2, 2))
    assert "GraphModuleImpl" in str(type(module))
    assert type(module).__name__ == "Linear"
