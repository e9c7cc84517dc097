"""scaled_dot_product_attention and its gradient, against float64 NumPy, one head at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from rows_harness import assert_close, draw, exact

import norch


def head(q, k, v, g, mask, scale):
    """The result, and the gradients of q, k, v and the mask, which is added: -inf where a query may not look."""
    scores = q @ k.T * scale + mask
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(1, keepdims=True))
        weights = np.where(scores.max(1, keepdims=True) == -np.inf, 0, weights / weights.sum(1, keepdims=True))
    slopes = g @ v.T
    slopes = (slopes - (slopes * weights).sum(1, keepdims=True)) * weights
    return weights @ v, slopes @ k * scale, slopes.T @ q * scale, weights.T @ g, slopes


def oracle(q, k, v, g, mask, scale):
    """Heads that share a key or a value come to it by its stride of 0, and their gradients add up there."""
    found = [np.zeros_like(a) for a in (g, q, k, v)]
    batch = q.shape[:-2]
    shared = [k.shape[-3] if len(batch) else 1, q.shape[-3] if len(batch) else 1]
    for at in np.ndindex(batch):
        of_key = (*at[:-1], at[-1] * shared[0] // shared[1]) if at else at
        values = head(q[at], k[of_key], v[of_key], g[at], mask[at], scale)[:4]
        for out, value, place in zip(found, values, (at, at, of_key, of_key), strict=True):
            out[place] += value
    return found


def added(mask, causal, q, k):
    """A mask of any kind as numbers that are added to the scores."""
    shape = (*q.shape[:-1], k.shape[-2])
    if causal:
        mask = np.arange(shape[-1]) <= np.arange(shape[-2])[:, None]
    if mask is None:
        return np.zeros(shape)
    mask = (
        mask
        if isinstance(mask, np.ndarray)
        else mask.to(norch.float64).numpy()
        if mask.dtype is not norch.bool
        else mask.numpy()
    )
    return np.broadcast_to(np.where(mask, 0.0, -np.inf) if mask.dtype == bool else mask, shape)


def check(q, k, v, causal, scale=None, dtype=norch.float32, mask=None, **options):
    shape = (*q.shape[:-1], v.shape[-1])
    g = norch.tensor(draw(*shape, low=-1, high=1, seed=9), dtype=dtype)
    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
    y = norch.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=scale, **options)
    found = [y, *norch.autograd.grad(y, (q, k, v), g)]
    expected = oracle(*map(exact, (q, k, v, g)), added(mask, causal, q, k), scale or 1 / math.sqrt(q.shape[-1]))
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


@pytest.mark.parametrize(
    "sizes", [(16, 33, 32, 16), (64, 64, 32, 32), (65, 63, 40, 48), (47, 300, 72, 80), (130, 140, 64, 64)]
)
def test_bfloat16_in_blocks(sizes):
    """Where the processor has products of bfloat16, these are computed by them."""
    q, k, v = (x.bfloat16() for x in operands((2,), *sizes))
    for causal in (False, True):
        check(q, k, v, causal, dtype=norch.bfloat16)
    looks = norch.tensor(draw(*sizes[:2], seed=5)) > 0
    check(q, k, v, False, dtype=norch.bfloat16, mask=looks)


@pytest.mark.parametrize("causal", [False, True])
def test_heads_of_one_projection(causal):
    x = norch.tensor(draw(3, 20, 3 * 4 * 8), dtype=norch.float32)
    check(*[part.reshape(3, 20, 4, 8).transpose(1, 2) for part in x.split(32, 2)], causal)


def test_other_layouts_and_dtypes():
    q, k, v = operands((2,), 6, 5, 4, 3)
    check(q, k.mT.clone().mT, v, True, 0.3)
    check(q[:1].expand(2, 6, 4), k, v[:, :, :1].expand(2, 5, 3), False)
    for dtype in (norch.float64, norch.float16, norch.bfloat16):
        check(q.to(dtype), k.to(dtype), v.to(dtype), True, dtype=dtype)


@pytest.mark.parametrize("dtype", [norch.float32, norch.bfloat16])
@pytest.mark.parametrize(("queries", "keys"), [(1, 70), (3, 130), (40, 30), (70, 140)])
def test_heads_that_share_keys_and_values(queries, keys, dtype):
    q = norch.tensor(draw(2, 6, queries, 24, seed=1), dtype=dtype)
    k, v = (norch.tensor(draw(2, keys, 2, n, seed=n), dtype=dtype).transpose(1, 2) for n in (24, 16))
    looks = norch.tensor(draw(2, 6, queries, keys, seed=5)) > 0.3
    for options in ({"causal": True}, {"causal": False}, {"causal": False, "mask": looks}):
        check(q, k, v, **options, dtype=dtype, enable_gqa=True)


@pytest.mark.parametrize("queries", [1, 5, 33, 66])
@pytest.mark.parametrize("shape", [(2, 3, -1, 131), (1, -1, 131), (2, 1, 1, 131), (131,), (-1, 1)])
def test_masks(queries, shape):
    q, k, v = operands((2, 3), queries, 131, 16, 20)
    shape = [queries if n == -1 else n for n in shape]
    number = norch.tensor(draw(*shape, seed=7), dtype=norch.float32)
    check(q, k, v, False, mask=number)
    check(q, k, v, False, mask=number > 0)  # of a query whose keys are all masked the result is 0
    check(*(x.to(norch.float16) for x in (q, k, v)), False, dtype=norch.float16, mask=number.to(norch.float16))


@pytest.mark.parametrize("dtype", [norch.float32, norch.bfloat16, norch.float16])
@pytest.mark.parametrize("queries", [3, 49, 70])
def test_the_gradient_of_a_mask(queries, dtype):
    """A learnt bias, as vision transformers have it for the distances of patches."""
    q, k, v = (x.to(dtype).requires_grad_() for x in operands((2, 3), queries, 37, 24, 16))
    mask = draw(3, queries, 37, seed=5)
    mask[:, 1, 4:] = -math.inf
    mask = norch.tensor(mask, dtype=dtype, requires_grad=True)
    g = norch.tensor(draw(2, 3, queries, 16, seed=9), dtype=dtype)
    found = norch.autograd.grad(norch.scaled_dot_product_attention(q, k, v, mask, scale=0.3), (q, k, v, mask), g)
    arrays = [*map(exact, (q, k, v, g)), added(mask.detach(), False, q, k)]
    expected = [np.zeros(x.shape) for x in (q, k, v, mask)]
    for at in np.ndindex(2, 3):
        for out, value, place in zip(expected, head(*(a[at] for a in arrays), 0.3)[1:], (at, at, at, at[1:])):
            out[place] += value
    for got, value in zip(found, expected, strict=True):
        assert_close(got, value, dtype, 16)


@pytest.mark.parametrize("dtype", [norch.float32, norch.float16])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1100), (3, 513), (1, 4097)])
def test_keys_in_parts(queries, keys, dtype):
    q = norch.tensor(draw(1, 3, queries, 24, seed=1), dtype=dtype)
    k, v = (norch.tensor(draw(1, 1, keys, n, seed=n), dtype=dtype) for n in (24, 16))
    few = norch.arange(keys) < 40  # all of the other parts are masked
    looks = norch.tensor(draw(1, 3, queries, keys, seed=5)) > 0.3
    looks[:, 1, 0] = False
    for mask in (None, few, ~few, looks):
        check(q, k, v, False, dtype=dtype, mask=mask, enable_gqa=True)


def test_masked_keys_may_hold_anything():
    q, k, v = operands((), 20, 40, 8, 8)
    looks = norch.arange(40) < 20
    for rows in (20, 1):
        expected = norch.scaled_dot_product_attention(q[:rows], k[:20], v[:20])
        worse = k.clone()
        worse[20:] = 3e38
        got = norch.scaled_dot_product_attention(q[:rows], worse, v, looks)
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


def test_scores_that_overflow_an_exponential():
    q, k, v = (100 * x for x in operands((2,), 20, 200, 8, 8))
    for rows in (20, 1):
        check(q[:, :rows], k, v, False)


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
    assert gradgradcheck(
        lambda q, k, v: norch.scaled_dot_product_attention(q, k, v, is_causal=True), given, fast_mode=True
    )
