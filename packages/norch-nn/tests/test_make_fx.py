"""norch.fx.experimental.proxy_tensor: functions, and the gradients they take, as graphs of ops."""

import pytest

import norch
import norch.nn.functional as F
from norch import nn
from norch.fx.experimental.proxy_tensor import make_fx

pytestmark = pytest.mark.usefixtures("on_host")


def test_the_code_is_that_of_pytorch():
    traced = make_fx(lambda x: x.sin() + x.cos() * 2)(norch.ones(3))
    assert [line.strip() for line in traced.code.strip().splitlines()] == [
        "def forward(self, x_1):",
        "sin = norch.ops.aten.sin.default(x_1)",
        "cos = norch.ops.aten.cos.default(x_1);  x_1 = None",
        "mul = norch.ops.aten.mul.Tensor(cos, 2);  cos = None",
        "add = norch.ops.aten.add.Tensor(sin, mul);  sin = mul = None",
        "return add",
    ]
    x = norch.randn(3)
    norch.testing.assert_close(traced(x), x.sin() + x.cos() * 2)


def test_parameters_are_constants_of_the_graph():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    traced = make_fx(model)(norch.randn(3, 4))
    assert [name for name, _ in traced.named_parameters()] == [f"_param_constant{i}" for i in range(4)]
    assert [str(n.target) for n in traced.graph.nodes if n.op == "call_function"] == (
        "aten.t.default aten.addmm.default aten.relu.default aten.t.default aten.addmm.default".split()
    )
    x = norch.randn(5, 4)
    norch.testing.assert_close(make_fx(model)(x)(x), model(x))
    norch.testing.assert_close(traced(x[:3]), model(x[:3]))


def test_gradients_are_in_the_graph():
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))

    def loss(params, x):
        return norch.func.functional_call(model, params, (x,)).square().mean()

    params, x = {name: p.detach() for name, p in model.named_parameters()}, norch.randn(3, 4)
    grad = norch.func.grad(loss)
    traced = make_fx(grad)(params, x)
    others, y = {name: p * 2 for name, p in params.items()}, norch.randn(3, 4)
    norch.testing.assert_close(traced(others, y), grad(others, y))


def test_views_that_are_written_to():
    def f(x):
        x = x.clone()
        x.add_(1)
        x[0] = 0
        x.detach()[1] += 2
        return [x * 2, {"x": x}]

    traced = make_fx(f)(norch.randn(3, 4))
    traced.graph.eliminate_dead_code()
    traced.recompile()
    x = norch.randn(3, 4)
    norch.testing.assert_close(traced(x), f(x))


def test_what_is_drawn_is_drawn_again_and_what_is_read_is_refused():
    traced = make_fx(lambda x: F.layer_norm(norch.cat([x, norch.randn(3, 4)]), (4,)))(norch.ones(3, 4))
    assert not norch.equal(traced(norch.ones(3, 4)), traced(norch.ones(3, 4)))
    for reads in (lambda x: x * x.sum().item(), lambda x: x if x.sum() > 0 else -x, lambda x: x.exp().tolist()):
        with pytest.raises(RuntimeError, match="a value of a tensor"):
            make_fx(reads)(norch.ones(3))


def test_gradients_of_convolutions_are_pytorchs_op():
    conv = nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2)

    def grads(x, weight):
        weight, x = weight.detach().requires_grad_(), x.detach().requires_grad_()
        out = F.conv2d(x, weight, conv.bias, 2, 1, 1, 2)
        return norch.autograd.grad(out.square().sum(), (x, weight))

    traced = make_fx(grads)(norch.randn(1, 2, 7, 6), conv.weight)
    names = [str(n.target) for n in traced.graph.nodes if n.op == "call_function"]
    assert names[0] == "aten.convolution.default"
    assert names.count("aten.convolution_backward.default") == 2
    x, weight = norch.randn(1, 2, 7, 6), norch.randn(conv.weight.shape)
    for found, expected in zip(traced(x, weight), grads(x, weight), strict=True):
        norch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    op = norch.ops.aten.convolution_backward.default
    y = norch.randn(1, 4, 4, 3)
    found = op(y, x, weight, [4], [2, 2], [1, 1], [1, 1], False, [0, 0], 2, [True, True, True])
    leaves = [t.detach().requires_grad_() for t in (x, weight, conv.bias)]
    expected = norch.autograd.grad(F.conv2d(*leaves, 2, 1, 1, 2), leaves, y)
    for a, b in zip(found, expected, strict=True):
        norch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
