"""Attention and its gradient on a GPU against NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest

import norch
from norch.ops.nn.attention import _attention_grad, _attention_sums

RNG = np.random.default_rng(5)
DTYPES = (norch.float32, norch.float16, norch.bfloat16)
TOLERANCE = {norch.float32: 2e-6, norch.float16: 2e-3, norch.bfloat16: 1.5e-2}  # relative to the norm


def draw(*shape, scale=1.0):
    return RNG.standard_normal(shape).astype(np.float32) * np.float32(scale)


def put(x, dtype, device):
    return norch.tensor(x).to(device).to(dtype)


def values(x):
    return x.detach().float().to("cpu").numpy().astype(np.float64)


def reference(q, k, v, g, is_causal=False, scale=None, mask=None):
    """out and the gradients of q, k and v; where a query sees nothing, 0."""
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    s = q @ k.swapaxes(-1, -2) * scale
    if is_causal:
        s = np.where(np.arange(k.shape[-2]) <= np.arange(q.shape[-2])[:, None], s, -np.inf)
    if mask is not None:
        s = np.where(mask, s, -np.inf) if mask.dtype == bool else s + mask
    largest = s.max(-1, keepdims=True)
    w = np.exp(s - np.where(largest == -np.inf, 0, largest) if mask is not None else s - largest)
    total = w.sum(-1, keepdims=True)
    w /= np.where(total == 0, 1, total) if mask is not None else total
    slopes = g @ v.swapaxes(-1, -2)
    slopes = (slopes - (slopes * w).sum(-1, keepdims=True)) * w * scale
    return w @ v, slopes @ k, slopes.swapaxes(-1, -2) @ q, w.swapaxes(-1, -2) @ g


def assert_near(got, expected, tolerance):
    for x, y in zip(got, expected, strict=True):
        x = values(x)
        assert x.shape == y.shape
        assert np.isfinite(x).all()
        assert np.linalg.norm(x - y) <= tolerance * max(np.linalg.norm(y), 1e-3 * math.sqrt(y.size))


def attend(q, k, v, g, is_causal=False, scale=None):
    """out and the gradients, by the backend."""
    scale = float(1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    out = norch.scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=scale)
    with norch.no_grad():  # while recording it is made of its parts
        return (out, *_attention_grad(g, q, k, v, None, is_causal, scale))


def check(tensors, tolerance, **how):
    assert_near(attend(*tensors, **how), reference(*map(values, tensors), **how), tolerance)


SHAPES = [  # batch, queries, keys, size, size of a value
    ((16, 4), 64, 64, 32, 32),
    ((), 1, 1, 1, 1),
    ((2,), 5, 7, 8, 8),
    ((3,), 33, 31, 17, 9),
    ((2,), 64, 64, 128, 128),
    ((2, 2), 70, 130, 64, 64),
    ((2,), 130, 70, 64, 32),
    ((3,), 129, 65, 128, 128),
    ((2,), 100, 200, 40, 72),
    ((1,), 1, 300, 64, 64),
    ((2,), 300, 1, 16, 16),
    ((2,), 200, 257, 20, 33),
    ((300,), 128, 128, 64, 64),
    ((140,), 130, 100, 128, 104),
    ((140,), 50, 60, 30, 32),
    ((2, 1, 3), 96, 160, 24, 24),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("batch", "queries", "keys", "size", "size_v"), SHAPES)
def test_values(cuda, dtype, is_causal, batch, queries, keys, size, size_v):
    shapes = (queries, size), (keys, size), (keys, size_v), (queries, size_v)
    tensors = [put(draw(*batch, *shape), dtype, cuda) for shape in shapes]
    check(tensors, TOLERANCE[dtype], is_causal=is_causal)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_sharp_weights(cuda, dtype):
    """Scores that grow with the key, so that the largest so far changes in every tile."""
    q, k, v, g = draw(2, 90, 32), draw(2, 300, 32), draw(2, 300, 32), draw(2, 90, 32)
    k *= np.linspace(0.1, 4, 300, dtype=np.float32)[:, None]
    tensors = [put(x, dtype, cuda) for x in (q, k, v, g)]
    check(tensors, 4 * TOLERANCE[dtype], scale=0.5)
    check(tensors, 4 * TOLERANCE[dtype], scale=0.5, is_causal=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("length", [50, 150])
def test_parts_of_one_projection(cuda, dtype, length):
    qkv = put(draw(2, length, 3 * 4 * 32), dtype, cuda).reshape(2, length, 3, 4, 32)
    q, k, v = (qkv[:, :, i].transpose(1, 2) for i in range(3))
    g = put(draw(2, length, 4, 32), dtype, cuda).transpose(1, 2)
    assert not q.is_contiguous()
    check((q, k, v, g), TOLERANCE[dtype], is_causal=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("length", [40, 150])
def test_other_layouts(cuda, dtype, length):
    wide = put(draw(2, length, 33), dtype, cuda)
    odd, one = wide[..., 1:], wide[..., :1]
    turned = put(draw(2, 32, length), dtype, cuda).mT
    check((odd, turned, odd, turned), TOLERANCE[dtype])
    check((turned, odd, turned, put(draw(1, 1, 1), dtype, cuda).expand(2, length, 32)), TOLERANCE[dtype])
    check((odd, odd, odd, one.expand(2, length, 32)), TOLERANCE[dtype], is_causal=True)
    stepped = put(draw(2, 2 * length, 64), dtype, cuda)[:, ::2, ::2]
    check((stepped, odd, stepped, odd), TOLERANCE[dtype])


def test_broadcast_batches(cuda):
    q, k, v = (put(draw(*shape), norch.float32, cuda) for shape in ((3, 2, 70, 16), (2, 80, 16), (1, 1, 80, 8)))
    out = norch.scaled_dot_product_attention(q, k, v)
    full = [np.broadcast_to(values(x), (3, 2, *x.shape[-2:])) for x in (q, k, v)]
    g = np.zeros((3, 2, 70, 8))
    assert_near([out], reference(*full, g)[:1], 2e-6)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_into_a_graph_of_derivatives(cuda, dtype):
    tensors = [put(draw(2, 70, 32), dtype, cuda) for _ in range(4)]
    *leaves, g = tensors
    leaves = [x.detach().requires_grad_() for x in leaves]
    norch.scaled_dot_product_attention(*leaves, is_causal=True).backward(g)
    expected = reference(*map(values, tensors), is_causal=True)[1:]
    assert_near([x.grad for x in leaves], expected, TOLERANCE[dtype])


HALVES = DTYPES[1:]
TRAINED = [  # batch, queries, keys, size, size of a value: of several tiles, with ragged last ones
    ((2, 3), 64, 64, 64, 64),
    ((2, 2), 333, 333, 64, 64),
    ((3,), 130, 517, 64, 64),
    ((3,), 517, 130, 64, 64),
    ((1,), 1, 300, 64, 64),
    ((2,), 300, 2, 64, 64),
    ((80,), 200, 270, 40, 48),
    ((2, 1, 3), 190, 191, 64, 64),
    ((2, 2), 333, 333, 128, 128),
    ((3,), 130, 517, 128, 128),
    ((3,), 517, 130, 128, 128),
    ((70,), 257, 129, 96, 80),
    ((2,), 100, 60, 24, 24),
]


def train(q, k, v, g, **how):
    """out and the gradients, as a training step computes them."""
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    out = norch.scaled_dot_product_attention(*leaves, **how)
    return (out, *norch.autograd.grad(out, leaves, g))


@pytest.mark.parametrize("dtype", HALVES, ids=lambda d: d.name)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("batch", "queries", "keys", "size", "size_v"), TRAINED)
def test_training(cuda, dtype, is_causal, batch, queries, keys, size, size_v):
    shapes = (queries, size), (keys, size), (keys, size_v), (queries, size_v)
    tensors = [put(draw(*batch, *shape), dtype, cuda) for shape in shapes]
    assert_near(
        train(*tensors, is_causal=is_causal),
        reference(*map(values, tensors), is_causal=is_causal),
        TOLERANCE[dtype],
    )


@pytest.mark.parametrize("dtype", HALVES, ids=lambda d: d.name)
@pytest.mark.parametrize("size", [64, 128, 256])
def test_training_on_one_projection(cuda, dtype, size):
    """As transformers lay it out: no copies, and heads joined in memory."""
    qkv = put(draw(2, 300, 3 * 4 * size), dtype, cuda)
    q, k, v = (x.reshape(2, 300, 4, size).transpose(1, 2) for x in qkv.split(4 * size, -1))
    g = put(draw(2, 300, 4, size), dtype, cuda).transpose(1, 2)
    got = train(q, k, v, g, is_causal=True)
    assert got[0].transpose(1, 2).is_contiguous()
    assert_near(got, reference(*map(values, (q, k, v, g)), is_causal=True), TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", HALVES, ids=lambda d: d.name)
@pytest.mark.parametrize("length", [100, 300])
def test_training_in_other_layouts(cuda, dtype, length):
    """What cannot be copied 16 bytes at a time, or has another order in memory."""
    odd = put(draw(2, length, 65), dtype, cuda)[..., 1:]
    turned = put(draw(2, 64, length), dtype, cuda).mT
    one, row = (put(draw(2, *shape), dtype, cuda).expand(2, length, 64) for shape in ((length, 1), (1, 64)))
    for tensors in ((odd, turned, odd, turned), (turned, odd, odd, one), (row, odd, odd, row)):
        expected = reference(*map(values, tensors), is_causal=True)
        assert_near(train(*tensors, is_causal=True), expected, TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", HALVES, ids=lambda d: d.name)
def test_training_with_grouped_heads(cuda, dtype):
    q, g = (put(draw(2, 6, 200, 64), dtype, cuda) for _ in range(2))
    k, v = (put(draw(2, 2, 230, 64), dtype, cuda) for _ in range(2))
    got = train(q, k, v, g, is_causal=True, enable_gqa=True)
    wide = [values(q), values(k).repeat(3, 1), values(v).repeat(3, 1), values(g)]
    out, for_query, *more = reference(*wide, is_causal=True)
    for_key, for_value = (x.reshape(2, 2, 3, 230, 64).sum(2) for x in more)
    assert_near(got, (out, for_query, for_key, for_value), TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("size", [32, 64, 128])
def test_sums_of_scores(cuda, dtype, size):
    q, k, v = (put(draw(2, 3, 200, size), dtype, cuda) for _ in range(3))
    out, sums = _attention_sums(q, k, v, None, True, 0.2)
    scores = np.where(np.tri(200), values(q) @ values(k).swapaxes(-1, -2) * 0.2, -np.inf)
    assert_near([out], reference(*map(values, (q, k, v, v)), is_causal=True, scale=0.2)[:1], TOLERANCE[dtype])
    np.testing.assert_allclose(values(sums), np.log(np.exp(scores).sum(-1)), atol=2e-5)


@pytest.mark.parametrize("dtype", HALVES, ids=lambda d: d.name)
@pytest.mark.parametrize("size", [64, 128, 256])
def test_training_gives_the_same_bits_again(cuda, dtype, size):
    tensors = [put(draw(80, 400, size), dtype, cuda) for _ in range(4)]
    first, second = ([values(x) for x in train(*tensors, is_causal=True)] for _ in range(2))
    for x, y in zip(first, second, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("length", [60, 200])
def test_same_bits_again(cuda, dtype, length):
    tensors = [put(draw(8, length, 64), dtype, cuda) for _ in range(4)]
    first, second = ([values(x) for x in attend(*tensors, is_causal=True)] for _ in range(2))
    for x, y in zip(first, second, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_infinite_and_missing_numbers(cuda, dtype):
    q, k, v = draw(100, 16), draw(100, 16), draw(100, 16)
    q[:, 0] = 1
    k[:70, 0] = -np.inf  # the first tile has no weight
    q[80] = np.nan
    tensors = [put(x, dtype, cuda) for x in (q, k, v)]
    out = values(norch.scaled_dot_product_attention(*tensors))
    assert np.isnan(out[80]).all()
    plain = [values(x) for x in tensors]
    plain[1], plain[2] = plain[1][70:], plain[2][70:]
    expected = reference(*plain, plain[0])[0]
    rest = np.arange(100) != 80
    assert np.linalg.norm(out[rest] - expected[rest]) <= TOLERANCE[dtype] * np.linalg.norm(expected[rest])
    k[:, 0] = -np.inf
    assert np.isnan(values(norch.scaled_dot_product_attention(tensors[0], put(k, dtype, cuda), tensors[2]))).all()
    v[50] = np.nan
    out = values(norch.scaled_dot_product_attention(*(put(x, dtype, cuda) for x in (q[:80], v, v)), is_causal=True))
    assert np.isnan(out[50:]).all()


MASKED = [  # batch, queries, keys, size, size of a value, shape of the mask
    ((2, 3), 64, 64, 64, 64, (2, 1, 64, 64)),
    ((2, 3), 333, 270, 64, 64, (2, 1, 1, 270)),
    ((2, 2), 130, 517, 64, 48, (130, 517)),
    ((2, 2), 517, 131, 128, 128, (2, 2, 517, 131)),
    ((3,), 70, 90, 32, 32, (3, 70, 1)),
    ((2, 3), 100, 60, 24, 24, (1, 3, 100, 60)),
    ((2,), 33, 300, 256, 256, (33, 300)),
    ((2, 2), 200, 270, 256, 192, (2, 1, 200, 270)),
    ((3,), 1, 700, 128, 128, (3, 1, 700)),
    ((2,), 10, 5, 16, 20, (1, 1)),
]


def masks(shape, dtype, device):
    """Of each kind: bool, and added, with -inf; some queries see nothing."""
    sees = RNG.random(shape) > 0.4
    if len(shape) > 1 and shape[-2] > 5 and shape[-1] > 1:
        sees[..., 4, :] = False
    yield norch.tensor(sees).to(device)
    yield put(np.where(sees, RNG.standard_normal(shape), -np.inf).astype(np.float32), dtype, device)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize(("batch", "queries", "keys", "size", "size_v", "shape"), MASKED)
def test_masks(cuda, dtype, batch, queries, keys, size, size_v, shape):
    shapes = (queries, size), (keys, size), (keys, size_v), (queries, size_v)
    tensors = [put(draw(*batch, *shape), dtype, cuda) for shape in shapes]
    for mask in masks(shape, dtype, cuda):
        full = mask.cpu().numpy() if mask.dtype is norch.bool else values(mask)
        expected = reference(*map(values, tensors), mask=full)
        out = norch.scaled_dot_product_attention(*tensors[:3], mask)
        assert_near([out], expected[:1], TOLERANCE[dtype])
        assert_near(train(*tensors, attn_mask=mask), expected, 1.5 * TOLERANCE[dtype])
        scale = float(1 / math.sqrt(size))
        with norch.no_grad():
            alone = _attention_grad(tensors[3], *tensors[:3], mask, False, scale)
        assert_near(alone, expected[1:], 1.5 * TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [norch.float32, norch.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("size", [32, 64])
def test_keys_that_a_large_number_hides(cuda, dtype, size):
    """All keys of a query: they count alike. Its gradients have few digits, as sums of its scores are large."""
    tensors = [put(draw(2, n, size), dtype, cuda) for n in (130, 70, 70, 130)]
    added = np.zeros((130, 70), np.float32)
    added[3], added[:, 60:] = -1e9, -1e9
    full = np.where(added < 0, -1e30, 0)
    expected = reference(*map(values, tensors), mask=full)
    got = train(*tensors, attn_mask=put(added, dtype, cuda))
    assert_near(got[:1], expected[:1], TOLERANCE[dtype])
    assert_near(got[1:], expected[1:], max(1e-3, TOLERANCE[dtype]))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("length", [40, 150])
def test_masks_in_other_layouts(cuda, dtype, length):
    q, k, v, g = (put(draw(2, 2, length, 64), dtype, cuda) for _ in range(4))
    wide = norch.tensor(RNG.random((2, 2 * length, 2 * length)) > 0.4).to(cuda)
    for mask in (
        wide[:, ::2, 1::2].unsqueeze(1),
        wide[:, :length, 3 : length + 3].mT.unsqueeze(1),
        wide[0, :1, :length],
    ):
        expected = reference(*map(values, (q, k, v, g)), mask=mask.cpu().numpy())
        assert_near(train(q, k, v, g, attn_mask=mask), expected, TOLERANCE[dtype])
        added = norch.where(mask, 0.25, -math.inf).to(dtype).mT.contiguous().mT
        expected = reference(*map(values, (q, k, v, g)), mask=values(added))
        assert_near(train(q, k, v, g, attn_mask=added), expected, TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", HALVES, ids=lambda d: d.name)
@pytest.mark.parametrize("has_mask", [False, True])
@pytest.mark.parametrize(("heads", "groups", "queries", "keys", "size"), [
    (8, 2, 1, 4096, 128), (6, 6, 1, 1000, 64), (12, 3, 5, 3000, 64), (4, 1, 1, 20001, 96), (4, 2, 33, 2050, 256),
])  # fmt: skip
def test_decoding(cuda, dtype, has_mask, heads, groups, queries, keys, size):
    """Few queries and many keys, which several blocks share."""
    q = put(draw(2, queries, heads, size), dtype, cuda).transpose(1, 2)
    k, v = (put(draw(2, groups, keys, size), dtype, cuda) for _ in range(2))
    mask = norch.tensor(RNG.random((2, 1, queries, keys)) > 0.2).to(cuda)
    mask[:, :, :, : keys // 2] = False  # whole parts of the keys
    mask = mask if has_mask else None
    wide = [values(q), *(values(x).repeat(heads // groups, 1) for x in (k, v))]
    expected = reference(*wide, np.zeros((2, heads, queries, size)), mask=None if mask is None else mask.cpu().numpy())
    out = norch.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
    assert_near([out], expected[:1], TOLERANCE[dtype])
    again = norch.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
    np.testing.assert_array_equal(values(out), values(again))
    if groups == heads:
        g = put(draw(2, heads, queries, size), dtype, cuda)
        assert_near(
            train(q, k, v, g, attn_mask=mask),
            reference(*wide, values(g), mask=None if mask is None else mask.cpu().numpy()),
            1.5 * TOLERANCE[dtype],
        )


WIDE = [  # heads, queries, keys, size, size of a value
    (4, 70, 130, 256, 256),
    (4, 130, 70, 200, 256),
    (4, 64, 64, 160, 32),
    (3, 40, 130, 256, 256),
    (4, 333, 333, 256, 256),
    (3, 130, 517, 136, 256),
    (3, 517, 131, 256, 192),
    (70, 257, 129, 192, 128),
    (140, 128, 192, 256, 256),
]


@pytest.mark.parametrize("dtype", HALVES, ids=lambda d: d.name)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("heads", "queries", "keys", "size", "size_v"), WIDE)
def test_wide_heads(cuda, dtype, is_causal, heads, queries, keys, size, size_v):
    shapes = (queries, size), (keys, size), (keys, size_v), (queries, size_v)
    tensors = [put(draw(heads, *shape), dtype, cuda) for shape in shapes]
    expected = reference(*map(values, tensors), is_causal=is_causal)
    assert_near(train(*tensors, is_causal=is_causal), expected, TOLERANCE[dtype])
    assert_near([norch.scaled_dot_product_attention(*tensors[:3], is_causal=is_causal)], expected[:1], TOLERANCE[dtype])
