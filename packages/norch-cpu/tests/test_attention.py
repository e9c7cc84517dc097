"""scaled_dot_product_attention and its gradient, against float64 NumPy, one head at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from rows_harness import assert_close, draw, exact

import norch


def head(q, k, v, g, causal, scale):
    """The result, and the gradients of q, k and v."""
    scores = q @ k.T * scale
    if causal:
        scores = np.where(np.arange(k.shape[0]) <= np.arange(q.shape[0])[:, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    slopes = g @ v.T
    slopes = (slopes - (slopes * weights).sum(1, keepdims=True)) * weights * scale
    return weights @ v, slopes @ k, slopes.T @ q, weights.T @ g


def oracle(q, k, v, g, causal, scale):
    found = [np.zeros_like(a) for a in (g, q, k, v)]
    for at in np.ndindex(q.shape[:-2]):
        for out, value in zip(found, head(q[at], k[at], v[at], g[at], causal, scale), strict=True):
            out[at] = value
    return found


def check(q, k, v, causal, scale=None, dtype=norch.float32):
    shape = (*q.shape[:-1], v.shape[-1])
    g = norch.tensor(draw(*shape, low=-1, high=1, seed=9), dtype=dtype)
    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
    y = norch.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    found = [y, *norch.autograd.grad(y, (q, k, v), g)]
    expected = oracle(*map(exact, (q, k, v, g)), causal, scale or 1 / math.sqrt(q.shape[-1]))
    for got, value in zip(found, expected, strict=True):
        assert_close(got, value, dtype, 16)


def operands(batch, queries, keys, size, values):
    shapes = ((queries, size), (keys, size), (keys, values))
    return [norch.tensor(draw(*batch, *s, seed=i), dtype=norch.float32) for i, s in enumerate(shapes)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("batch", "sizes"),
    [
        ((), (1, 1, 1, 1)),
        ((), (5, 3, 4, 2)),
        ((2,), (3, 7, 33, 31)),
        ((2, 3), (64, 64, 32, 32)),
        ((3, 1), (65, 63, 16, 48)),
        ((1, 2), (130, 140, 20, 40)),
        ((2, 0), (3, 3, 3, 3)),
        ((2,), (0, 3, 3, 3)),
    ],
)
def test_sizes(causal, batch, sizes):
    check(*operands(batch, *sizes), causal)


@pytest.mark.parametrize("causal", [False, True])
def test_heads_of_one_projection(causal):
    x = norch.tensor(draw(3, 20, 3 * 4 * 8), dtype=norch.float32)
    check(*[part.reshape(3, 20, 4, 8).transpose(1, 2) for part in x.split(32, 2)], causal)


def test_other_layouts_and_dtypes():
    q, k, v = operands((2,), 6, 5, 4, 3)
    check(q, k.mT.clone().mT, v, True, 0.3)
    check(q[:1].expand(2, 6, 4), k, v[:, :, :1].expand(2, 5, 3), False)
    for dtype in (norch.float64, norch.float16):
        check(q.to(dtype), k.to(dtype), v.to(dtype), True, dtype=dtype)


def test_batches_that_broadcast():
    q, k, v = operands((1,), 6, 5, 4, 3)
    q, k, v = (x.requires_grad_() for x in (q, k, v.expand(2, 5, 3).clone()))
    norch.scaled_dot_product_attention(q, k, v).sum().backward()
    assert (q.grad.shape, k.grad.shape, v.grad.shape) == (q.shape, k.shape, v.shape)


def test_what_a_query_may_not_see_does_not_matter():
    q, k, v = operands((), 40, 40, 8, 8)
    y = norch.scaled_dot_product_attention(q, k, v, is_causal=True)
    k[20:] = 1e30
    np.testing.assert_array_equal(
        norch.scaled_dot_product_attention(q, k, v, is_causal=True)[:20].numpy(), y[:20].numpy()
    )


def test_second_derivative():
    from norch.testing.gradcheck import gradgradcheck

    given = [norch.tensor(draw(3, 2, seed=i), dtype=norch.float64, requires_grad=True) for i in range(3)]
    assert gradgradcheck(lambda q, k, v: norch.scaled_dot_product_attention(q, k, v, is_causal=True), given)
