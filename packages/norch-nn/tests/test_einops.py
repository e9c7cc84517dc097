"""einops on norch's tensors, beside einops on NumPy's arrays."""

import subprocess
import sys

import numpy as np
import pytest

import norch
from norch import nn

einops = pytest.importorskip("einops")

pytestmark = pytest.mark.usefixtures("on_host")
X = np.random.default_rng(0).normal(size=(2, 3, 4, 6))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: einops.rearrange(x, "b c (h p) (w q) -> b (h w) (p q c)", p=2, q=3),
        lambda x: einops.rearrange([x, x], "n b c h w -> b (n c) h w"),
        lambda x: einops.repeat(x, "b c h w -> b c (h r) w s", r=2, s=3),
        *(lambda x, how=how: einops.reduce(x, "b c h w -> b w", how) for how in ("min", "max", "sum", "mean", "prod")),
        lambda x: einops.reduce(x > 0, "b c h w -> c", "any"),
        lambda x: einops.reduce(x > -9, "b c h w -> c", "all"),
        lambda x: einops.einsum(x, x, "b c h w, b d h w -> b c d"),
        lambda x: einops.pack([x, x[0]], "* h w")[0],
    ],
)
def test_operations(call):
    np.testing.assert_allclose(call(norch.tensor(X)).numpy(), call(X), rtol=1e-12)
    assert einops.asnumpy(norch.tensor(X)).tolist() == X.tolist()


def test_layers_in_a_network():
    from einops.layers.norch import EinMix, Rearrange, Reduce

    mix = EinMix("b t c -> b t d", weight_shape="c d", bias_shape="d", c=3, d=5)
    net = nn.Sequential(Rearrange("b c h w -> b (h w) c"), mix, Reduce("b t d -> b d", "mean"))
    assert [name for name, _ in net.named_parameters()] == ["1.weight", "1.bias"]
    x = norch.tensor(X, dtype=norch.float32, requires_grad=True)
    out = net(x)
    expected = X.mean((2, 3)) @ mix.weight.detach().numpy() + mix.bias.detach().numpy().reshape(5)
    np.testing.assert_allclose(out.detach().numpy(), expected, rtol=1e-4, atol=1e-5)
    out.sum().backward()
    assert x.grad.shape == x.shape
    assert mix.weight.grad is not None


@pytest.mark.parametrize("order", ["norch, einops", "einops, norch"])
def test_either_may_be_imported_first(order):
    program = f"import {order}; print(einops.rearrange(norch.ones(2, 3), 'a b -> (b a)').shape)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "norch.Size([6])\n", done.stderr
