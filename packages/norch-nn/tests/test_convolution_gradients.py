"""norch.nn.grad: the derivatives of convolutions, as functions."""

from __future__ import annotations

import numpy as np
import pytest

import norch
import norch.nn.functional as F
from norch import nn
from norch.autograd import gradcheck

HOW = {"stride": 2, "padding": 1, "dilation": 2, "groups": 2}


def draw(*shape: int) -> norch.Tensor:
    return norch.tensor(np.random.default_rng(sum(shape)).standard_normal(shape), requires_grad=True)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_gradients_of_convolutions(dims: int) -> None:
    x, weight = draw(2, 4, *(7, 6, 5)[:dims]), draw(6, 2, *(3, 2, 1)[:dims])
    out = getattr(F, f"conv{dims}d")(x, weight, **HOW)
    g = draw(*out.shape)
    by_input, by_weight = (getattr(nn.grad, f"conv{dims}d_{name}") for name in ("input", "weight"))
    expected = norch.autograd.grad(out, [x, weight], g)
    found = by_input(x.shape, weight, g, **HOW), by_weight(x, weight.shape, g, **HOW)
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got.detach().cpu().numpy(), want.cpu().numpy(), rtol=1e-12)
    assert gradcheck(lambda w, g: by_input(x.shape, w, g, **HOW), (weight, g))
    assert gradcheck(lambda x, g: by_weight(x, weight.shape, g, **HOW), (x, g))
    with norch.no_grad():
        assert not by_input(x.shape, weight, g, **HOW).requires_grad


def test_gradients_of_a_convolution_are_differentiated() -> None:
    """The sum of squares of both gradients of x * w, which are g * w and g * x."""
    g, x, w = (norch.tensor([[[v]]], requires_grad=True) for v in (2.0, 3.0, 5.0))
    options = [1], [0], [1], False, [0], 1
    by_x, by_w, by_bias = norch.ops.aten.convolution_backward(g, x, w, [1], *options, [True, True, True])
    found = norch.autograd.grad((by_x**2).sum() + (by_w**2).sum() + by_bias.sum(), [g, x, w])
    assert [v.item() for v in found] == [2 * 2 * (25 + 9) + 1, 2 * 4 * 3, 2 * 4 * 5]
    with norch.no_grad():
        assert not norch.ops.aten.convolution_backward(g, x, w, [1], *options, [True, True, False])[0].requires_grad
