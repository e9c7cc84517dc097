"""linear, embedding, dropout, normalisation and attention, against loops and NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from composite_harness import RNG, assert_close, check, const, draw, layouts, leaf

import norch
from norch.testing.gradcheck import gradgradcheck

# --- linear, embedding, dropout ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("lead", [(), (2,), (2, 3), (0,)])
def test_linear(lead):
    x, w, b = draw(*lead, 4), draw(5, 4), draw(5)
    expected = np.zeros((*lead, 5))
    for at in np.ndindex(lead):
        for o in range(5):
            expected[(*at, o)] = sum(x[(*at, i)] * w[o, i] for i in range(4)) + b[o]
    assert_close(norch.linear(const(x), const(w), const(b)), expected)
    assert_close(norch.linear(const(x), const(w)), expected - b)
    check(norch.linear, x, w, b)
    check(norch.linear, x, w, second=False)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (1, 5)])
def test_linear_expands_a_bias(shape):
    x, w, b = draw(2, 4), draw(5, 4), draw(*shape)
    assert_close(norch.linear(const(x), const(w), const(b)), x @ w.T + b)
    check(norch.linear, x, w, b)


def test_linear_refuses():
    with pytest.raises(norch.ShapeError, match=r"linear\(\).*\(2, 3\).*\(5, 4\)"):
        norch.linear(norch.zeros(2, 3), norch.zeros(5, 4))
    with pytest.raises(norch.ShapeError, match="bias"):
        norch.linear(norch.zeros(2, 4), norch.zeros(5, 4), norch.zeros(5, 1))
    with pytest.raises(norch.DTypeError, match="float64"):
        norch.linear(norch.zeros(2, 4), norch.zeros(5, 4, dtype=norch.float64))


def test_dropout_under_the_name_of_torch():
    x = norch.ones(4)
    assert norch.dropout(x, p=1.0, train=True).tolist() == [0.0] * 4
    assert norch.dropout(x, p=1.0, train=False) is x


def test_embedding():
    w, index = draw(5, 3), np.array([[0, 4, 4], [2, 0, 4]])
    assert_close(norch.embedding(const(index), const(w)), w[index])
    check(lambda v: norch.embedding(const(index), v), w)
    x = leaf(w)
    norch.embedding(const(index), x, padding_idx=-1).sum().backward()
    expected = np.zeros((5, 3))
    for i in index.ravel():
        expected[i] += i != 4
    assert_close(x.grad, expected)
    assert gradgradcheck(lambda v: norch.embedding(const(index), v, 2), [leaf(w)], fast_mode=True)
    assert tuple(norch.embedding(norch.zeros(0, 2, dtype=norch.int64), const(w)).shape) == (0, 2, 3)
    assert tuple(norch.embedding(norch.tensor(3), const(w)).shape) == (3,)


@pytest.mark.parametrize("index", [5, -1])
def test_embedding_refuses_an_index_that_is_no_row(index):
    with pytest.raises(norch.IndexError, match=r"embedding\(\).*\[0, 5\)"):
        norch.embedding(norch.tensor([0, index]), norch.zeros(5, 3))
    with pytest.raises(norch.IndexError, match="padding_idx"):
        norch.embedding(norch.tensor([0]), norch.zeros(5, 3), padding_idx=5)
    with pytest.raises(norch.DTypeError):
        norch.embedding(norch.tensor([0.0]), norch.zeros(5, 3))


def test_dropout_keeps_the_mean_and_draws_its_mask_again():
    norch.manual_seed(3)
    x = norch.ones(20000, requires_grad=True)
    y = norch.dropout(x, 0.25)
    values = y.detach().numpy()
    assert set(np.unique(values)) == {0.0, np.float32(1 / 0.75)}
    assert abs((values == 0).mean() - 0.25) < 0.02
    assert not any(isinstance(v, norch.Tensor) for v in y.grad_fn.saved_inputs)
    y.sum().backward()
    assert x.grad.tolist() == y.tolist()  # the input is 1, so that the gradient is the scaled mask
    assert norch.dropout(x, 0.25).tolist() != y.tolist()
    norch.manual_seed(3)
    assert norch.dropout(x.detach(), 0.25).tolist() == y.tolist()
    norch.manual_seed(3)
    assert ((norch.dropout(x.detach().half(), 0.25) == 0) == (y == 0)).all().item()


def test_dropout_of_other_layouts_and_its_edges():
    seed = norch.get_rng_state()

    def same_draw(x):
        norch.set_rng_state(seed)
        return norch.dropout(x.transpose(0, 1), 0.5)

    check(same_draw, draw(3, 4))
    x = leaf(draw(3))
    assert norch.dropout(x, 0.0) is x
    assert norch.dropout(x, 0.5, training=False) is x
    out = norch.dropout(x, 1.0)
    assert out.tolist() == [0, 0, 0]
    out.sum().backward()
    assert x.grad.tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match=r"1\.5"):
        norch.dropout(x, 1.5)
    with pytest.raises(norch.DTypeError):
        norch.dropout(norch.tensor([1]), 0.5)


# --- Normalisation ----------------------------------------------------------------------------------------------------


def standard(a, axes, eps):
    return (a - a.mean(axes, keepdims=True)) / np.sqrt(a.var(axes, keepdims=True) + eps)


def test_layer_norm():
    a, w, b = draw(2, 3, 4), draw(3, 4), draw(3, 4)
    expected = standard(a, (1, 2), 1e-5) * w + b
    for x in layouts(a):
        assert_close(norch.layer_norm(x, [3, 4], const(w), const(b)), expected)
    assert_close(norch.layer_norm(const(a), 4, eps=0.1), standard(a, 2, 0.1))
    check(lambda x, w, b: norch.layer_norm(x, (3, 4), w, b), a, w, b)
    check(lambda x: norch.layer_norm(x.transpose(0, 2), 2), a)
    check(lambda x, b: norch.layer_norm(x, 4, None, b), a, draw(4), second=False)
    with pytest.raises(norch.ShapeError, match=r"layer_norm\(\).*\(2, 3, 4\).*\(3,\)"):
        norch.layer_norm(const(a), 3)
    with pytest.raises(norch.ShapeError, match="weight"):
        norch.layer_norm(const(a), 4, const(w))


def test_rms_norm():
    a, w = draw(2, 3, 4), draw(4)
    assert_close(norch.rms_norm(const(a), 4, const(w), 0.1), a / np.sqrt((a * a).mean(2, keepdims=True) + 0.1) * w)
    got = norch.rms_norm(const(a), (3, 4))
    assert_close(got, a / np.sqrt((a * a).mean((1, 2), keepdims=True) + np.finfo(np.float64).eps))
    check(lambda x, w: norch.rms_norm(x, 4, w), a, w)


def test_group_norm():
    a, w, b = draw(2, 6, 3), draw(6), draw(6)
    expected = standard(a.reshape(2, 3, 6), 2, 1e-5).reshape(2, 6, 3) * w[:, None] + b[:, None]
    assert_close(norch.group_norm(const(a), 3, const(w), const(b)), expected)
    check(lambda x, w, b: norch.group_norm(x, 3, w, b), a, w, b)
    with pytest.raises(norch.ShapeError, match="6 channels"):
        norch.group_norm(const(a), 4)


def test_batch_norm_in_training_moves_the_running_statistics():
    a, w, b = draw(3, 2, 4), draw(2), draw(2)
    mean, var = const(np.zeros(2)), const(np.ones(2))
    kept = mean.buffer
    got = norch.batch_norm(const(a), mean, var, const(w), const(b), training=True, momentum=0.3)
    assert_close(got, standard(a, (0, 2), 1e-5) * w[:, None] + b[:, None])
    assert mean.buffer is kept
    assert_close(mean, 0.3 * a.mean((0, 2)))
    assert_close(var, 0.7 + 0.3 * a.var((0, 2), ddof=1))
    check(lambda x, w, b: norch.batch_norm(x, None, None, w, b, training=True), a, w, b)


@pytest.mark.parametrize("shape", [(0, 3), (2, 3, 0)])
def test_batch_norm_of_no_values_leaves_the_running_statistics(shape):
    mean, var = norch.full((3,), 2.0), norch.full((3,), 5.0)
    assert tuple(norch.batch_norm(norch.zeros(shape), mean, var, training=True).shape) == shape
    assert mean.tolist() == [2.0] * 3
    assert var.tolist() == [5.0] * 3


def test_batch_norm_by_running_statistics():
    a, mean, var, w, b = draw(3, 2), draw(2), draw(2, low=0.1, high=2), draw(2), draw(2)
    running = const(mean), const(var)
    assert_close(norch.batch_norm(const(a), *running, const(w), const(b)), (a - mean) / np.sqrt(var + 1e-5) * w + b)
    assert_close(running[0], mean)
    check(lambda x, w, b: norch.batch_norm(x, *running, w, b), a, w, b)
    with pytest.raises(norch.ShapeError, match="running_mean"):
        norch.batch_norm(const(a), None, None)
    with pytest.raises(norch.ShapeError, match="more than one value"):
        norch.batch_norm(const(a[:1]), None, None, training=True)
    with pytest.raises(norch.ShapeError, match=r"weight \(3,\)"):
        norch.batch_norm(const(a), *running, norch.ones(3))


@pytest.mark.parametrize("dtype", [norch.float16, norch.bfloat16])
def test_norms_of_16_bit_floats_are_computed_in_float32(dtype):
    a = const(draw(4, 64) * 100).to(dtype)
    got = norch.layer_norm(a, 64)
    assert got.dtype is dtype
    assert_close(got, standard(a.double().numpy(), 1, 1e-5), 1e-2)


def test_normalize_and_cosine_similarity():
    a, b = draw(3, 4), draw(3, 4)
    assert_close(norch.normalize(const(a)), a / np.sqrt((a * a).sum(1, keepdims=True)))
    assert_close(norch.normalize(const(a), p=1, dim=0), a / np.abs(a).sum(0))
    assert norch.normalize(norch.zeros(1, 2)).tolist() == [[0, 0]]
    sizes = np.sqrt((a * a).sum(1) * (b * b).sum(1))
    assert_close(norch.cosine_similarity(const(a), const(b)), (a * b).sum(1) / sizes)
    sizes = np.sqrt((a * a).sum(1) * (b[0] @ b[0]))
    assert_close(norch.cosine_similarity(const(a), const(b[:1]), dim=-1), a @ b[0] / sizes)
    check(norch.normalize, a)
    check(norch.cosine_similarity, a, b)
    mixed = norch.cosine_similarity(norch.tensor([[1.0, 2.0]], dtype=norch.float64), norch.tensor([[True, False]]))
    assert_close(mixed, [1 / np.sqrt(5)])
    with pytest.raises(norch.DTypeError, match="expected a floating dtype, got norch.int64 and norch.int64"):
        norch.cosine_similarity(norch.tensor([[1]]), norch.tensor([[1]]))


# --- Attention --------------------------------------------------------------------------------------------------------


def attention_loops(q, k, v, allowed, scale):
    out = np.zeros((len(q), v.shape[1]))
    for i in range(len(q)):
        seen = [j for j in range(len(k)) if allowed[i][j] > -math.inf]
        logits = [q[i] @ k[j] * scale + allowed[i][j] for j in seen]
        weights = [math.exp(s - max(logits)) for s in logits]
        for w, j in zip(weights, seen):
            out[i] += w / sum(weights) * v[j]
    return out


@pytest.mark.parametrize("kind", ["plain", "causal", "bool", "float", "scale"])
def test_attention(kind):
    q, k, v = draw(2, 3, 4), draw(2, 5, 4), draw(2, 5, 2)
    allowed, args = np.zeros((3, 5)), {}
    if kind == "causal":
        allowed, args = np.where(np.arange(5) > np.arange(3)[:, None], -math.inf, 0.0), {"is_causal": True}
    elif kind == "bool":
        mask = RNG.random((3, 5)) < 0.6
        mask[1] = False  # this query may look nowhere
        allowed, args = np.where(mask, 0.0, -math.inf), {"attn_mask": const(mask)}
    elif kind == "float":
        allowed = draw(3, 5)
        args = {"attn_mask": const(allowed)}
    elif kind == "scale":
        args = {"scale": 0.7}
    scale = args.get("scale", 0.5)
    expected = np.stack([attention_loops(q[b], k[b], v[b], allowed, scale) for b in range(2)])
    got = norch.scaled_dot_product_attention(const(q), const(k), const(v), **args)
    assert_close(got, expected)
    check(lambda q, k, v: norch.scaled_dot_product_attention(q, k, v, **args), q, k, v)
    # Batch dims broadcast.
    check(lambda q, k, v: norch.scaled_dot_product_attention(q, k, v, **args), q, k[:1], v[0], second=False)


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_attention_by_a_mask_of_what_comes_before(kind: str) -> None:
    q, k, v, mask, before = draw(4, 3), draw(5, 3), draw(5, 2), draw(4, 5), np.tri(4, 5, dtype=bool)
    mask = mask if kind == "float" else mask > 0
    allowed = np.where(before, mask if kind == "float" else np.where(mask, 0, -math.inf), -math.inf)
    got = norch.scaled_dot_product_attention(*map(const, (q, k, v, mask)), is_causal=True, scale=0.5)
    assert_close(got, attention_loops(q, k, v, allowed, 0.5))


def test_attention_mask_has_a_gradient():
    q, k, v, mask = draw(2, 3), draw(4, 3), draw(4, 2), draw(2, 4)
    check(norch.scaled_dot_product_attention, q, k, v, mask)


def test_attention_with_dropout_and_grouped_heads():
    q, k, v = draw(1, 4, 3, 2), draw(1, 2, 3, 2), draw(1, 2, 3, 2)
    got = norch.scaled_dot_product_attention(const(q), const(k), const(v), enable_gqa=True)
    wide = [np.repeat(a, 2, 1) for a in (k, v)]
    assert_close(got, norch.scaled_dot_product_attention(const(q), *map(const, wide)).numpy())
    out = norch.scaled_dot_product_attention(const(q), *map(const, wide), dropout_p=1.0)
    assert not out.any().item()
    with pytest.raises(norch.ShapeError, match="do not fit"):
        norch.scaled_dot_product_attention(const(q), const(q[..., :1]), const(q))


@pytest.mark.parametrize("shape", [(2, 3, 5), (3, 5), (2, 3, 4, 5), (0, 3, 4)])
def test_a_window_of_all_is_pooled_as_one_of_several(shape):
    dims = 1 if shape in ((2, 3, 5), (3, 5), (0, 3, 4)) else 2
    pool = norch.max_pool1d if dims == 1 else norch.max_pool2d
    x = norch.tensor(np.random.default_rng(0).integers(0, 4, shape).astype(np.float32), requires_grad=True)
    size = shape[-dims:]
    values, at = pool(x, size, return_indices=True)
    wide = norch.cat([x, x.detach() * 0 - 9], -1)  # in which the window is one of two
    expected, places = pool(wide, size, return_indices=True)
    assert values.tolist() == expected[..., :1].tolist()
    rows, columns = places[..., :1] // wide.shape[-1], places[..., :1] % wide.shape[-1]
    assert at.tolist() == (rows * size[-1] + columns).tolist()
    weights = norch.arange(1.0, values.numel() + 1).reshape(values.shape)
    found, wanted = (norch.autograd.grad((out * weights).sum(), x)[0] for out in (pool(x, size), expected[..., :1]))
    assert found.tolist() == wanted.tolist()


def test_training_between_an_evaluation_and_its_gradient():
    x = norch.tensor(RNG.standard_normal((6, 3, 4)), requires_grad=True)
    mean, var = norch.tensor([0.5, -1.0, 2.0], dtype=x.dtype), norch.tensor([1.0, 4.0, 0.25], dtype=x.dtype)
    (expected,) = norch.autograd.grad((norch.batch_norm(x, mean, var) ** 2).sum(), [x])
    out = norch.batch_norm(x, mean, var)
    norch.batch_norm(x, mean, var, training=True)
    (out**2).sum().backward()
    norch.testing.assert_close(x.grad, expected)
