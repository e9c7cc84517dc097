"""norch.fx: tracing. A traced module must give what the module gives; graphs and code are compared to PyTorch's."""

import math
from dataclasses import dataclass

import pytest

import norch
import norch.nn.functional as F
from norch import fx, nn
from norch.fx.proxy import TraceError

pytestmark = pytest.mark.usefixtures("on_host")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.bn = nn.BatchNorm2d(4)
        self.head = nn.Sequential(nn.Linear(4, 2), nn.ReLU())
        self.weight = nn.Parameter(norch.randn(2))
        self.register_buffer("shift", norch.randn(2))

    def forward(self, x, scale: float = 2.0):
        x = F.relu(self.bn(self.conv(x)))
        x = x.mean((2, 3)) * scale
        return {"out": self.head(x) * self.weight + self.shift, "batch": x.shape[0]}


def lines(traced):
    """The lines of `forward`, without what is set to None."""
    return [line.partition(";")[0].strip() for line in traced.code.split("\n") if line.startswith("    ")]


def test_a_traced_module_gives_what_the_module_gives():
    norch.manual_seed(0)
    net, x = Net().eval(), norch.randn(2, 3, 8, 8)
    traced = fx.symbolic_trace(net)
    for args, kwargs in (((x,), {}), ((x, 3.0), {}), ((x,), {"scale": 0.5})):
        out, expected = traced(*args, **kwargs), net(*args, **kwargs)
        assert out["batch"] == expected["batch"] == 2
        assert (out["out"] == expected["out"]).all()
    assert traced.state_dict().keys() == net.state_dict().keys()
    assert traced.weight is net.weight
    assert traced.conv is net.conv
    assert not traced.training
    traced(x)["out"].sum().backward()
    assert net.conv.weight.grad is not None
    assert net.weight.grad is not None


def test_code_is_as_pytorchs():
    assert fx.symbolic_trace(Net()).code == (
        "\n\n\ndef forward(self, x, scale : float = 2.0):\n"
        "    conv = self.conv(x);  x = None\n"
        "    bn = self.bn(conv);  conv = None\n"
        "    relu = norch.nn.functional.relu(bn);  bn = None\n"
        "    mean = relu.mean((2, 3));  relu = None\n"
        "    mul = mean * scale;  mean = scale = None\n"
        '    head_0 = getattr(self.head, "0")(mul)\n'
        '    head_1 = getattr(self.head, "1")(head_0);  head_0 = None\n'
        "    weight = self.weight\n"
        "    mul_1 = head_1 * weight;  head_1 = weight = None\n"
        "    shift = self.shift\n"
        "    add = mul_1 + shift;  mul_1 = shift = None\n"
        "    getattr_1 = mul.shape;  mul = None\n"
        "    getitem = getattr_1[0];  getattr_1 = None\n"
        "    return {'out': add, 'batch': getitem}\n"
    )


FUNCTIONS = [
    lambda x, w: norch.cat([x, w], dim=1)[:, ::2],
    lambda x, w: norch.cat(x.split(1)),
    lambda x, w: norch.stack(w.unbind(1), dim=1),
    lambda x, w: norch.einsum("ij,jk->ik", x, w),
    lambda x, w: norch.clamp(x, min=0.0) - x.clamp(max=w),
    lambda x, w: norch.where(x > 0, x, w).clone(),
    lambda x, w: norch.zeros(x.shape[0], 2, dtype=x.dtype) + norch.arange(x.size(0)).sum(),
    lambda x, w: F.softmax(x, dim=1) @ w + F.gelu(x) * F.layer_norm(w, w.shape[-1:]),
    lambda x, w: 2 / x - (1 - w) ** 2 + (-x).abs() // 3 + abs(w),
    lambda x, w: x[0:2, None, ...].expand(-1, w.shape[0], -1).reshape(x.shape[0], -1),
    lambda x, w: norch.max(x, dim=1).values + x.topk(2)[0][:, 0],
    lambda x, w: norch.ones(3)[norch.argmax(w, dim=1)] + norch.arange(3.0).view(x.size(0), -1)[:, 0],
    lambda x, w: norch.ones(3, dtype=norch.float64).to(x.dtype) * x.to(w.device),
    lambda x, w: norch.special.expm1(x) + norch.linalg.norm(w),
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_on_proxies_are_recorded(function):
    norch.manual_seed(1)
    x, w = norch.randn(3, 3), norch.randn(3, 3)
    traced = fx.symbolic_trace(function)
    assert (traced(x, w) == function(x, w)).all()
    assert (fx.symbolic_trace(traced)(w, x) == function(w, x)).all()
    assert (fx.Interpreter(traced).run(x, w) == function(x, w)).all()


def test_functions_are_recorded_as_they_were_called():
    def function(x):
        return F.relu6(F.silu(norch.relu(norch.flatten(x, 1))))

    targets = [node.target for node in fx.symbolic_trace(function).graph.nodes if node.op == "call_function"]
    assert targets == [norch.flatten, norch.relu, F.silu, F.relu6]


def test_parameters_are_steps():
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(norch.ones(4, 2))

        def forward(self, x):
            return x @ (self.table * 2).t() + self.table.sum()

    table = Table()
    traced = fx.symbolic_trace(table)
    assert [n.target for n in traced.graph.nodes if n.op == "get_attr"] == ["table"]
    norch.nn.init.constant_(table.table, 3.0)  # nothing of it was computed while tracing
    assert traced(norch.ones(1, 2)).tolist() == table(norch.ones(1, 2)).tolist() == [[36.0] * 4]
    constant = fx.Tracer(param_shapes_constant=True)

    class Sized(Table):
        def forward(self, x):
            return x * self.table.shape[0] if self.table.dim() == 2 else x

    graph = constant.trace(Sized())
    assert [n.args[1] for n in graph.nodes if n.op == "call_function"] == [4]


def test_what_asks_for_values_cannot_be_traced():
    with pytest.raises(TraceError, match="control flow"):
        fx.symbolic_trace(lambda x: x if x.sum() > 0 else -x)
    with pytest.raises(TraceError, match="cannot be iterated"):
        fx.symbolic_trace(lambda x: list(x))
    with pytest.raises(TraceError, match="cannot be iterated"):
        fx.symbolic_trace(lambda x: max(*x))
    with pytest.raises(RuntimeError, match="'len' is not supported"):
        fx.symbolic_trace(lambda x: len(x))
    assert not hasattr(nn.Module, "__getattribute__") or nn.Module.__getattribute__ is object.__getattribute__


def test_parts_of_a_known_number_can_be_unpacked():
    def function(x):
        a, (b, c) = x.chunk(2)
        return a.sum() + b - c

    x = norch.arange(8.0).reshape(4, 2)
    assert (fx.symbolic_trace(function)(x) == function(x)).all()


def test_concrete_arguments():
    def branch(x, negate):
        return -x if negate else x

    traced = fx.symbolic_trace(branch, concrete_args={"negate": True})
    assert traced(norch.ones(1), True).tolist() == [-1.0]
    with pytest.raises(AssertionError, match="negate has been specialized to have value True"):
        traced(norch.ones(1), False)

    def total(x):
        return sum(x.values())

    traced = fx.symbolic_trace(total, concrete_args={"x": {"a": fx.PH, "b": fx.PH, "c": 5}})
    assert traced({"a": 1, "b": 2, "c": 5}) == 8
    with pytest.raises(AssertionError, match="x has been specialized to have value 5"):
        traced({"a": 1, "b": 2, "c": 0})
    with pytest.raises(RuntimeError, match="concrete_args names what is no argument"):
        fx.symbolic_trace(total, concrete_args={"y": 1})


def test_an_argument_that_is_none():
    def shifted(x, shift=None):
        return x if shift is None else x + shift

    traced = fx.symbolic_trace(shifted, concrete_args={"shift": None})
    assert traced(norch.ones(1)).tolist() == [1.0]
    with pytest.raises(AssertionError, match="shift has been specialized to have value None"):
        traced(norch.ones(1), norch.ones(1))


def written(name):
    def function(x):
        y = norch.zeros(3)
        getattr(y, name)(*WRITTEN[name](x))
        return y

    return function


WRITTEN = {
    "add_": lambda x: (x,),
    "mul_": lambda x: (x + 1,),
    "copy_": lambda x: (x * 2,),
    "fill_": lambda x: (x.sum(),),
    "clamp_": lambda x: (x, None),
    "masked_fill_": lambda x: (x > 1, 4.0),
    "scatter_": lambda x: (0, x.long(), x),
    "index_add_": lambda x: (0, x.long(), x),
    "index_put_": lambda x: ((x.long(),), x),
    "__iadd__": lambda x: (x,),
    "__setitem__": lambda x: (x > 1, x[0]),
    "addcmul_": lambda x: (x, x),
    "lerp_": lambda x: (x, 0.5),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_traced_is_written_into_tensors_that_are_not(name):
    x = norch.tensor([0.0, 2.0, 1.0])
    traced = fx.symbolic_trace(written(name))
    assert [n.target for n in traced.graph.nodes if n.op == "call_method"][-1] == name
    for _ in range(2):
        traced._tensor_constant0.zero_()
        assert traced(x).tolist() == written(name)(x).tolist()


def test_buffers_are_written():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", norch.zeros(2))

        def forward(self, x):
            self.total.add_(x.detach())
            self.total[0] = x[1] * 5
            return x * self.total

    traced, module = fx.symbolic_trace(Counting()), Counting()
    for _ in range(2):
        x = norch.tensor([1.0, 2.0])
        assert traced(x).tolist() == module(x).tolist()


def test_dataclasses_are_returned():
    @dataclass
    class Result:
        total: norch.Tensor
        parts: list[norch.Tensor]

    def function(x):
        return {"inner": Result(x + 1, [x, x * 2])}

    found = fx.symbolic_trace(function)(norch.ones(1))["inner"]
    assert isinstance(found, Result)
    assert (found.total.tolist(), [p.tolist() for p in found.parts]) == ([2.0], [[1.0], [2.0]])


def test_nodes_know_the_modules_that_they_are_of():
    class Leaves(fx.Tracer):
        def is_leaf_module(self, m, name):
            return isinstance(m, nn.Linear)

    shared = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    net = nn.Sequential(shared, shared)
    stacks = [list(n.meta.get("nn_module_stack", {}).items()) for n in Leaves().trace(net).nodes]
    assert stacks[0] == stacks[-1] == []
    assert stacks[1] == [("0", ("0", nn.Sequential)), ("0.0", ("0.0", nn.Linear))]
    assert [key for key, _ in stacks[2]] == ["0", "0.1"]
    assert [key for key, _ in stacks[3]] == ["0@1", "0.0@1"]


def test_arguments_of_every_kind():
    def function(x, *rest, bias=1.0, **named):
        return x + rest[0] * bias + named["last"]

    traced = fx.symbolic_trace(function)
    # As PyTorch's: what is given by name alone comes before *rest.
    assert lines(traced)[0] == "getitem = rest[0]"
    assert traced(1, 2.0, 3, last=4) == 1 + 3 * 2.0 + 4

    class Bound:
        def scaled(self, x, *, by=2):
            return x * by

    assert fx.symbolic_trace(Bound().scaled)(3) == 6


def steps(x):
    return math.floor(x) + len_of(x)


@fx.wrap
def len_of(x):
    return len(str(x))


def test_wrapped_functions_are_steps():
    traced = fx.symbolic_trace(steps)
    assert [n.target for n in traced.graph.nodes if n.op == "call_function"][:2] == [math.floor, len_of]
    assert traced(12.5) == steps(12.5) == 16
    again = fx.symbolic_trace(traced)
    assert again(2.25) == 6
    assert len_of(3) == 1
    with pytest.raises(NotImplementedError, match="top level"):
        fx.wrap("steps")
    with pytest.raises(RuntimeError, match="Unsupported type"):
        fx.wrap(3)


def test_a_tracer_says_what_is_a_leaf():
    class Whole(fx.Tracer):
        def is_leaf_module(self, m, module_qualified_name):
            return isinstance(m, nn.BatchNorm2d)  # it asks for the number of dims, as PyTorch's

    net = Net().eval()
    graph = Whole().trace(net)
    assert [n.target for n in graph.find_nodes(op="call_module")] == ["bn"]
    x = norch.ones(1, 3, 4, 4)
    assert (fx.GraphModule(net, graph)(x)["out"] == net(x)["out"]).all()
    assert [n.target for n in fx.Tracer().trace(net).find_nodes(op="call_module")] == ["conv", "bn", "head.0", "head.1"]
    with pytest.raises(NameError, match="not installed as a submodule"):
        fx.symbolic_trace(lambda x: nn.Tanh()(x))


def test_tensors_of_nobody_become_attributes():
    constant = norch.tensor([1.0, 2.0])
    traced = fx.symbolic_trace(lambda x: x + constant)
    assert (traced._tensor_constant0 == constant).all()
    assert traced(norch.ones(2)).tolist() == [2.0, 3.0]


def test_proxies_by_hand():
    graph = fx.Graph()
    tracer = fx.proxy.GraphAppendingTracer(graph)
    x, y = (fx.Proxy(graph.placeholder(name), tracer) for name in "xy")
    out = norch.tensordot(x, y, dims=((1,), (0,))).relu()
    graph.output(out.node)
    made = fx.GraphModule({}, graph)
    assert made(norch.tensor([[1.0, -2.0]]), norch.tensor([[3.0], [1.0]])).tolist() == [[1.0]]
    other = fx.Proxy(fx.Graph().placeholder("z"))
    with pytest.raises(RuntimeError, match="multiple different tracers"):
        norch.add(x, other)
    with pytest.raises(NotImplementedError, match="argument of type"):
        x + object()


def test_functions_that_work_in_place_are_traced():
    class Net(nn.Module):
        def forward(self, x):
            y = x.clone()
            norch.log_(y)
            return norch.relu_(y)

    traced = fx.symbolic_trace(Net())
    assert [node.op for node in traced.graph.nodes] == ["placeholder", "call_method", *["call_function"] * 2, "output"]
    x = norch.tensor([1.0, 0.5])
    assert traced(x).tolist() == Net()(x).tolist() == [0, 0]
