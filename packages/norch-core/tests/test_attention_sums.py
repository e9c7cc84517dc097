"""Attention on a backend that keeps what its gradient needs: the same results as on one that does not."""

from __future__ import annotations

import pytest

import norch
from norch.ops.nn.attention import _SUMS


@pytest.fixture
def keeps(monkeypatch):
    """A function that lets the CPU's backend say that it does, or does not."""
    backend = norch.tensor([1.0]).device.backend
    return lambda does: monkeypatch.setattr(backend, "kept", frozenset({_SUMS} if does else ()), raising=False)


def step(dtype, **how):
    norch.manual_seed(0)
    q, k, v = (norch.randn(2, 3, n, 8).to(dtype).requires_grad_() for n in (5, 6, 6))
    out = norch.scaled_dot_product_attention(q, k, v, **how)
    out.pow(2).sum().backward()
    return out, q.grad, k.grad, v.grad


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("dtype", [norch.float32, norch.float64, norch.bfloat16], ids=lambda d: d.name)
def test_same_as_without(keeps, dtype, is_causal):
    keeps(False)
    expected = step(dtype, is_causal=is_causal)
    keeps(True)
    got = step(dtype, is_causal=is_causal)
    assert got[0].grad_fn.name() == "scaled_dot_product_attention_sums_backward"
    for x, y in zip(got, expected, strict=True):
        norch.testing.assert_close(x, y)


def test_only_where_a_gradient_may_be_asked_for(keeps):
    keeps(True)
    x = norch.ones(3, 4, requires_grad=True)
    with norch.no_grad():
        assert norch.scaled_dot_product_attention(x, x, x).grad_fn is None
    mask = norch.zeros(3, 3, requires_grad=True)
    out = norch.scaled_dot_product_attention(x, x, x, mask)
    assert out.grad_fn.name() == "scaled_dot_product_attention_backward"


@pytest.mark.parametrize("kind", ["bool", "added"])
@pytest.mark.parametrize("dtype", [norch.float32, norch.bfloat16], ids=lambda d: d.name)
def test_masks(keeps, dtype, kind):
    """The last query sees nothing."""
    sees = norch.tensor([[True, False, True, True, False, True]] * 4 + [[False] * 6])
    mask = sees if kind == "bool" else norch.where(sees, 0.5, -float("inf")).to(dtype)
    keeps(False)
    expected = step(dtype, attn_mask=mask)
    keeps(True)
    got = step(dtype, attn_mask=mask)
    assert got[0].grad_fn.name() == "scaled_dot_product_attention_sums_backward"
    assert got[0][..., -1, :].count_nonzero() == 0
    for x, y in zip(got, expected, strict=True):
        norch.testing.assert_close(x, y)


def test_gradient_of_one_operand_and_second_derivative(keeps):
    def derivatives():
        norch.manual_seed(1)
        q, k, v = (norch.randn(5, 8) for _ in range(3))
        k.requires_grad_()
        (g,) = norch.autograd.grad(norch.scaled_dot_product_attention(q, k, v).pow(2).sum(), k, create_graph=True)
        return g, *norch.autograd.grad(g.pow(2).sum(), k)

    keeps(False)
    expected = derivatives()
    keeps(True)
    for x, y in zip(derivatives(), expected, strict=True):
        norch.testing.assert_close(x, y)
