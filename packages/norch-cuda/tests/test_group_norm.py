"""group_norm and its gradients on the GPU against those in float64 on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import norch

RNG = np.random.default_rng(5)
SHAPES = [
    ((4, 32, 7, 9), 8),
    ((4, 32, 7, 9), 1),
    ((2, 64, 40, 40), 64),
    ((8, 12, 5), 3),
    ((70, 6), 2),
    ((16, 64, 64, 64), 4),
]
LONG = [((1, 8, 64, 80), 2), ((1, 4, 300, 120), 1), ((3, 9, 4, 4), 3)]


def gradients(x, weight, groups, g, device):
    x, weight, g = (None if v is None else v.detach().to(device).clone() for v in (x, weight, g))
    bias = None if weight is None else norch.zeros_like(weight)
    given = [v for v in (x, weight, bias) if v is not None]
    for v in given:
        v.requires_grad = True
    norch.group_norm(x, groups, weight, bias).backward(g)
    return [v.grad.to("cpu").double().numpy() for v in given]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("parameters", ["none", "same", "float32"])
@pytest.mark.parametrize(("shape", "groups"), [*SHAPES, *LONG], ids=str)
def test_values(cuda, shape, groups, parameters, dtype):
    """Rows in a warp, in a block, longer than its registers, in pieces; packets that fit channels or do not."""
    kind = getattr(norch, dtype)
    x = norch.tensor(RNG.standard_normal(shape) + 3).to(kind)
    of_parameters = norch.float32 if parameters == "float32" else kind
    weight, bias = (norch.tensor(RNG.uniform(0.5, 2, shape[1])).to(of_parameters) for _ in range(2))
    given = () if parameters == "none" else (weight, bias)
    exact = norch.group_norm(x.double(), groups, *(p.double() for p in given)).numpy()
    found = norch.group_norm(x.to(cuda), groups, *(p.to(cuda) for p in given))
    assert found.dtype is kind
    unit = {"float64": 1e-12, "float32": 2e-6, "float16": 2e-3, "bfloat16": 1.6e-2}[dtype]
    np.testing.assert_allclose(found.to("cpu").double().numpy(), exact, rtol=unit, atol=unit * np.abs(exact).max())


def test_values_of_channels_last_and_of_a_view(cuda):
    x = norch.tensor(RNG.standard_normal((3, 12, 5, 7)), dtype=norch.float32)
    exact = norch.group_norm(x, 4).numpy()
    last = norch.group_norm(x.to(cuda).contiguous(memory_format=norch.channels_last), 4)
    turned = norch.group_norm(x.to(cuda).transpose(2, 3).contiguous().transpose(2, 3), 4)
    for found in (last, turned):
        np.testing.assert_allclose(found.to("cpu").numpy(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("has_weight", [False, True])
@pytest.mark.parametrize(("shape", "groups"), SHAPES, ids=str)
def test_gradients(cuda, shape, groups, has_weight, dtype):
    kind = getattr(norch, dtype)
    x, g = (norch.tensor(RNG.standard_normal(shape) + at).to(kind) for at in (30 if dtype == "float32" else 1, 0))
    weight = norch.tensor(RNG.uniform(0.5, 2, shape[1])).to(kind) if has_weight else None
    exact = gradients(x.double(), None if weight is None else weight.double(), groups, g.double(), "cpu")
    found = gradients(x, weight, groups, g, cuda)
    again = gradients(x, weight, groups, g, cuda)
    unit = {"float64": 1e-11, "float32": 2e-5, "float16": 2e-3, "bfloat16": 1.6e-2}[dtype]
    for one, other, same in zip(found, exact, again, strict=True):
        scale = np.abs(other).max()
        np.testing.assert_allclose(one, other, rtol=unit, atol=unit * scale)
        np.testing.assert_array_equal(one, same)


def test_gradient_of_a_sum_and_of_a_view(cuda):
    x = norch.tensor(RNG.standard_normal((8, 16, 11)), device=cuda, requires_grad=True)
    (norch.group_norm(x, 4) ** 2).sum().backward()
    first, x.grad = x.grad, None
    y = norch.tensor(x.detach().to("cpu").numpy().copy()).transpose(1, 2).contiguous().to(cuda)
    y.requires_grad = True
    (norch.group_norm(y.transpose(1, 2), 4) ** 2).sum().backward()
    np.testing.assert_allclose(first.to("cpu").numpy(), y.grad.transpose(1, 2).to("cpu").numpy(), rtol=1e-7, atol=1e-9)
    norch.group_norm(x, 4).sum().backward()
    np.testing.assert_allclose(x.grad.to("cpu").numpy(), 0, atol=1e-10)
