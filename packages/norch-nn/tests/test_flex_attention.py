"""Attention by functions of indices, beside loops over them: norch.nn.attention.flex_attention."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import norch
from norch.nn.attention import SDPBackend, sdpa_kernel
from norch.nn.attention.flex_attention import (
    AuxRequest,
    BlockMask,
    and_masks,
    create_block_mask,
    create_mask,
    flex_attention,
    noop_mask,
    or_masks,
)

INF = float("inf")
DOCUMENTS = [0, 0, 0, 1, 1, 1, 1]


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def window(b, h, q_idx, kv_idx):
    return abs(q_idx - kv_idx) <= 1 + h


def nothing(b, h, q_idx, kv_idx):
    return (q_idx != 2) & (kv_idx >= 0)


def documents(table):
    return lambda b, h, q_idx, kv_idx: table[q_idx] == table[kv_idx]


def relative(bias):
    return lambda score, b, h, q_idx, kv_idx: score + bias[h][q_idx - kv_idx + 6] * (b + 1)


def capped(score, b, h, q_idx, kv_idx):
    return score * 2 - score**3 / 10


def by_loops(query, key, value, score_mod, mask_mod, scale):
    """Results, the logarithms of the sums of exponentials, and the largest scores."""
    (batch, heads, rows, _), group = query.shape, query.shape[1] // key.shape[1]
    result = np.zeros((*query.shape[:3], value.shape[-1]))
    sums, largest = np.full(query.shape[:3], -INF), np.full(query.shape[:3], -INF)
    for b, h, q in itertools.product(range(batch), range(heads), range(rows)):
        scores = key[b % len(key), h // group] @ query[b, h, q] * scale
        for k in range(len(scores)):
            if score_mod is not None:
                scores[k] = score_mod(scores[k], b, h, q, k)
            if mask_mod is not None and not mask_mod(b, h, q, k):
                scores[k] = -INF
        if scores.max() > -INF:
            weights = np.exp(scores - scores.max())
            result[b, h, q] = weights / weights.sum() @ value[b % len(value), h // group]
            sums[b, h, q] = math.log(weights.sum()) + scores.max()
            largest[b, h, q] = scores.max()
    return result, sums, largest


MASKS = {"none": None, "causal": causal, "window": window, "a row of nothing": nothing, "documents": DOCUMENTS}
SCORES = {"none": None, "relative": numbers(4, 13, seed=9), "capped": capped}


def mods(mask, score, array):
    mask_mod = documents(array(DOCUMENTS)) if mask == "documents" else MASKS[mask]
    score_mod = relative(array(SCORES[score])) if score == "relative" else SCORES[score]
    return score_mod, mask_mod


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("heads", [4, 2])
def test_it_is_what_loops_give(mask, score, heads):
    query, key, value = numbers(2, 4, 7, 5), numbers(2, heads, 7, 5, seed=1), numbers(2, heads, 7, 3, seed=2)
    expected, sums, largest = by_loops(query, key, value, *mods(mask, score, np.asarray), 0.3)
    score_mod, mask_mod = mods(mask, score, norch.tensor)
    block_mask = mask_mod and create_block_mask(mask_mod, None, 4 if mask == "window" else None, 7, 7, BLOCK_SIZE=2)
    arguments = {"score_mod": score_mod, "block_mask": block_mask, "scale": 0.3, "enable_gqa": heads < 4}
    tensors = [norch.tensor(x) for x in (query, key, value)]
    np.testing.assert_allclose(flex_attention(*tensors, **arguments).cpu().numpy(), expected, rtol=1e-10, atol=1e-12)
    found, lse = flex_attention(*tensors, **arguments, return_lse=True)
    other, aux = flex_attention(*tensors, **arguments, return_aux=AuxRequest(lse=True, max_scores=True))
    for each in (found, other):
        np.testing.assert_allclose(each.cpu().numpy(), expected, rtol=1e-10, atol=1e-12)
    for each in (lse, aux.lse):
        np.testing.assert_allclose(each.cpu().numpy(), sums, rtol=1e-10)
    np.testing.assert_allclose(aux.max_scores.cpu().numpy(), largest, rtol=1e-10)


def test_gradients():
    bias = norch.tensor(SCORES["relative"], requires_grad=True)
    tensors = [norch.tensor(numbers(1, 4, 4, 3, seed=i), requires_grad=True) for i in range(3)]
    block_mask = create_block_mask(nothing, None, None, 4, 4)

    def attend(query, key, value, bias):
        return flex_attention(query, key, value, score_mod=relative(bias), block_mask=block_mask)

    assert norch.autograd.gradcheck(attend, (*tensors, bias), fast_mode=True)
    assert norch.autograd.gradcheck(
        lambda *x: flex_attention(*x, block_mask=block_mask), tuple(tensors), fast_mode=True
    )


def test_keys_of_one_batch_serve_all_and_dtypes_stay():
    query, key, value = numbers(3, 2, 4, 5), numbers(1, 2, 4, 5, seed=1), numbers(1, 2, 4, 5, seed=2)
    tensors = [norch.tensor(x) for x in (query, key, value)]
    for score_mod in (None, capped):
        expected = by_loops(query, key, value, score_mod, None, 1 / math.sqrt(5))[0]
        np.testing.assert_allclose(flex_attention(*tensors, score_mod).cpu().numpy(), expected, rtol=1e-10, atol=1e-12)
        seen = flex_attention(*[x.to(norch.bfloat16) for x in tensors], score_mod)
        assert seen.dtype is norch.bfloat16
        np.testing.assert_allclose(seen.float().cpu().numpy(), expected, atol=0.05)


def test_masks_and_blocks():
    assert create_mask(causal, 2, None, 2, 3).tolist() == [[[[True, False, False], [True, True, False]]]] * 2
    assert create_mask(lambda s, b, h, q, k: norch.where(q >= k, s, -INF), 1, 1, 2, 2).tolist() == [
        [[[True, False], [True, True]]]
    ]
    mask = create_block_mask(causal, 2, 3, 7, 7, BLOCK_SIZE=(2, 4))
    assert isinstance(mask, BlockMask)
    assert (mask.shape, mask.BLOCK_SIZE, mask.seq_lengths, mask.mask_mod) == ((2, 3, 7, 7), (2, 4), (7, 7), causal)
    assert mask.kv_num_blocks[0, 0].tolist() == [1, 1, 1, 2]  # the last row of blocks has but one of queries
    assert mask.full_kv_num_blocks[0, 0].tolist() == [0, 0, 1, 0]
    assert mask.to_dense()[1, 2].tolist() == [[1, 0], [1, 0], [1, 1], [1, 1]]
    assert mask.q_num_blocks[0, 0].tolist() == [3, 2]
    assert mask.full_q_num_blocks[0, 0].tolist() == [1, 0]
    assert mask.full_q_indices[0, 0, 0, 0] == 2
    assert mask.sparsity() == pytest.approx(100 * (1 - 6 * 8 / 49))
    assert mask.numel() == 2 * 3 * 49
    assert repr(mask).endswith("BLOCK_SIZE=(2, 4), mask_mod=causal)")
    whole = create_block_mask(causal, None, None, 8, 8, BLOCK_SIZE=4, separate_full_blocks=False)
    assert whole.full_kv_indices is None
    assert whole.kv_num_blocks.tolist() == [[[1, 2]]]
    assert whole.to("cpu").mask_mod is causal
    assert len(whole.as_tuple()) == 13
    assert len(whole.as_tuple(flatten=False)) == 11
    assert whole._adjust(4, 6).to_dense().tolist() == [[[[1, 0]]]]
    both = and_masks(causal, window)
    either = or_masks(causal, window, noop_mask)
    assert create_mask(both, 1, 1, 4, 4).sum() == 4 + 3
    assert create_mask(either, 1, 1, 4, 4).all()
    assert create_mask(or_masks(), 1, 1, 2, 2).sum() == 0


def test_blocks_that_are_not_listed_are_masked():
    counts, columns = norch.tensor([[[1, 1]]]), norch.tensor([[[[0, 1], [1, 0]]]])
    mask = BlockMask.from_kv_blocks(counts, columns, BLOCK_SIZE=2)
    assert mask.shape == (1, 1, 4, 4)
    tensors = [norch.tensor(numbers(1, 1, 4, 3, seed=i)) for i in range(3)]
    found = flex_attention(*tensors, block_mask=mask)
    expected = by_loops(
        *[x.cpu().numpy() for x in tensors], None, lambda b, h, q, k: q // 2 == k // 2, 1 / math.sqrt(3)
    )[0]
    np.testing.assert_allclose(found.cpu().numpy(), expected, rtol=1e-10)


def test_a_part_of_a_mask_decodes_the_rows_that_follow():
    tensors = [norch.tensor(numbers(1, 2, 8, 3, seed=i)) for i in range(3)]
    whole = create_block_mask(causal, 1, 2, 8, 8, BLOCK_SIZE=4)
    part = whole[:, :, 1]
    assert part.kv_num_blocks.shape == (1, 2, 1)
    row = [tensors[0][:, :, 5:6], *tensors[1:]]
    part.seq_lengths = (1, 8)
    with pytest.raises(RuntimeError, match="part of a BlockMask"):
        flex_attention(*row, block_mask=part)
    part.mask_mod = lambda b, h, q_idx, kv_idx: causal(b, h, q_idx + 5, kv_idx)
    expected = flex_attention(*tensors, block_mask=whole)[:, :, 5:6]
    assert norch.allclose(flex_attention(*row, block_mask=part), expected)
    assert whole[0, -1].kv_num_blocks.tolist() == [[[1, 1]]]
    assert whole[0, 0:1, norch.tensor([1, 0])].full_kv_num_blocks.tolist() == [[[1, 0]]]
    with pytest.raises(IndexError, match="index"):
        whole[0, 2]


def test_a_mask_that_is_the_same_for_all_is_kept_once():
    mask = create_block_mask(causal, None, None, 4, 4)
    assert mask.mask((8, 6, 4, 4)).shape == (1, 1, 4, 4)


def test_what_does_not_fit():
    x, other = norch.ones(1, 2, 4, 3), norch.ones(1, 1, 4, 3)
    mask = create_block_mask(causal, None, None, 5, 4)
    for arguments, match in (
        ((x[0], x[0], x[0]), "4 dims"),
        ((x, other, other), "enable_gqa"),
        ((x, x, x[:, :, :2]), "do not fit"),
        ((x, x[..., :2], x), "do not fit"),
        ((x, x, x, None, mask), r"block_mask of shape \(1, 1, 5, 4\)"),
    ):
        with pytest.raises(norch.ShapeError, match=match):
            flex_attention(*arguments)
    with pytest.raises(norch.ShapeError, match="multiple"):
        flex_attention(x.expand(2, 2, 4, 3), norch.ones(2, 3, 4, 3), norch.ones(2, 3, 4, 3), enable_gqa=True)
    with pytest.raises(ValueError, match="not both"):
        flex_attention(x, x, x, return_lse=True, return_aux=AuxRequest())
    with pytest.raises(TypeError, match="no score_mod"):
        create_block_mask(capped, 1, 1, 2, 2)
    with pytest.raises(TypeError, match="takes 2"):
        create_mask(lambda a, b: a, 1, 1, 2, 2)
    with pytest.raises(TypeError, match="callable"):
        and_masks(causal, 1)
    with pytest.raises(norch.ShapeError, match="has no"):
        mask._adjust(5, 400)
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True):
        assert flex_attention(x, x, x).shape == x.shape
    assert sdpa_kernel(SDPBackend.MATH)(flex_attention)(x, x, x).shape == x.shape


def names_of_blocks():
    kinds = ("kv_num_blocks", "kv_indices", "q_num_blocks", "q_indices")
    return [*kinds, *(f"full_{kind}" for kind in kinds)]


@pytest.mark.usefixtures("on_host")
@pytest.mark.parametrize("mask", [mask for mask in MASKS if MASKS[mask] is not None])
@pytest.mark.parametrize("score", SCORES)
def test_it_is_pytorchs(mask, score, monkeypatch):
    torch = pytest.importorskip("torch")
    theirs = pytest.importorskip("torch.nn.attention.flex_attention")
    monkeypatch.setattr(theirs, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    arrays = [numbers(2, heads, 7, 5, seed=i) for i, heads in enumerate((4, 2, 2))]
    results = []
    for library, flex in ((torch, theirs), (norch, norch.nn.attention.flex_attention)):
        score_mod, mask_mod = mods(mask, score, library.tensor)
        blocks = flex.create_block_mask(mask_mod, 2, 4, 7, 7, device="cpu", BLOCK_SIZE=(2, 3))
        tensors = [library.tensor(x) for x in arrays]
        found = flex.flex_attention(*tensors, score_mod, blocks, enable_gqa=True)  # whose CPU gives no more
        dense = [getattr(blocks, name).cpu().numpy() for name in names_of_blocks()]
        results.append([found.cpu().numpy(), *dense])
        numbers_of = (blocks.shape, blocks.sparsity(), blocks.to_dense().tolist(), blocks[1, 0].to_dense().tolist())
        results[-1].append(numbers_of)
    *theirs_found, theirs_numbers = results[0]
    *ours_found, ours_numbers = results[1]
    for a, b in zip(theirs_found, ours_found):
        np.testing.assert_allclose(b, a, rtol=1e-10, atol=1e-12)
    assert ours_numbers == theirs_numbers
