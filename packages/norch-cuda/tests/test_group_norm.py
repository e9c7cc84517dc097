"""The gradients of group_norm on the GPU against those in float64 on the CPU."""

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


def gradients(x, weight, groups, g, device):
    x, weight, g = (None if v is None else v.detach().to(device).clone() for v in (x, weight, g))
    bias = None if weight is None else norch.zeros_like(weight)
    given = [v for v in (x, weight, bias) if v is not None]
    for v in given:
        v.requires_grad = True
    norch.group_norm(x, groups, weight, bias).backward(g)
    return [v.grad.to("cpu").double().numpy() for v in given]


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
