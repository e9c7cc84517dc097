"""Tables of rows: bags with offsets, weights and paddings, what is refused, and how tables start."""

from itertools import pairwise

import numpy as np
import pytest
from index_reports import reports_at_once

import norch
import norch.nn.functional as F
from norch import nn


def rand(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def array(tensor):
    return tensor.detach().cpu().numpy()


def bags(indices, offsets, table, mode, weights=None, skip=None):
    out = []
    for first, last in pairwise(offsets):
        chosen = [i for i in range(first, last) if indices[i] != skip]
        rows = table[indices[chosen]] * (1 if weights is None else weights[chosen, None])
        if not chosen:
            out.append(np.zeros(table.shape[1]))
        else:
            out.append({"sum": rows.sum, "mean": rows.mean, "max": rows.max}[mode](0))
    return np.array(out)


@pytest.mark.parametrize("skip", [None, 3])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("last", [False, True], ids=["without the last", "with the last"])
def test_bags_with_offsets(mode, skip, last):
    table = rand(6, 3)
    indices, offsets = np.array([1, 3, 3, 5, 0, 2, 3, 3]), [0, 2, 2, 6, 8]
    given = norch.tensor(offsets if last else offsets[:-1])
    out = F.embedding_bag(
        norch.tensor(indices), norch.tensor(table), given, mode=mode, padding_idx=skip, include_last_offset=last
    )
    np.testing.assert_allclose(array(out), bags(indices, offsets, table, mode, skip=skip))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_the_last_bag_ends_with_the_input(mode):
    table, indices = rand(6, 3), np.array([1, 3, 5, 0])
    for last in (3, 4, 0):
        given = norch.tensor([0, 3, last])
        out = F.embedding_bag(norch.tensor(indices), norch.tensor(table), given, mode=mode, include_last_offset=True)
        np.testing.assert_allclose(array(out), bags(indices, [0, 3, 4], table, mode))


def test_bags_with_weights_and_their_gradient():
    table, indices = norch.tensor(rand(6, 3), requires_grad=True), norch.tensor([1, 3, 3, 5])
    weights = norch.tensor(rand(4, seed=1), requires_grad=True)
    out = F.embedding_bag(indices, table, norch.tensor([0, 3]), mode="sum", per_sample_weights=weights)
    np.testing.assert_allclose(
        array(out), bags(array(indices), [0, 3, 4], array(table), "sum", array(weights)), rtol=1e-12
    )
    out.sum().backward()
    np.testing.assert_allclose(array(weights.grad), array(table).sum(1)[[1, 3, 3, 5]])
    np.testing.assert_allclose(array(table.grad)[3], [array(weights)[1:3].sum()] * 3)


def test_bags_by_frequency_divide_each_rows_gradient_by_its_count():
    # What PyTorch 2.13 gives on the CPU divides by another row's count where indices repeat.
    table = norch.zeros(4, 2, requires_grad=True)
    indices = norch.tensor([[0, 1, 0], [1, 2, 0]])
    F.embedding_bag(indices, table, mode="sum", scale_grad_by_freq=True).sum().backward()
    assert array(table.grad)[:, 0].tolist() == pytest.approx([1, 1, 1, 0])


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (ValueError, lambda i, w: nn.EmbeddingBag(3, 2, mode="median")),
        (ValueError, lambda i, w: nn.Embedding(3, 2, padding_idx=3)),
        (norch.ShapeError, lambda i, w: nn.Embedding(3, 2, _weight=norch.zeros(2, 2))),
        (norch.ShapeError, lambda i, w: nn.Embedding.from_pretrained(norch.zeros(2))),
        (ValueError, lambda i, w: F.embedding_bag(i, w, mode="prod")),
        (ValueError, lambda i, w: F.embedding_bag(i, w)),
        (ValueError, lambda i, w: F.embedding_bag(i.reshape(1, 2), w, i)),
        (ValueError, lambda i, w: F.embedding_bag(i.reshape(1, 2), w, per_sample_weights=norch.ones(1, 2))),
        (norch.ShapeError, lambda i, w: F.embedding_bag(i, w, i, mode="sum", per_sample_weights=norch.ones(3))),
        (ValueError, lambda i, w: F.embedding_bag(i, w, i, mode="max", scale_grad_by_freq=True)),
        (norch.ShapeError, lambda i, w: F.embedding(i, w[0])),
        (IndexError, lambda i, w: nn.Embedding(1, 2)(i)),
    ],
)
def test_embeddings_refuse(error, call):
    if error is IndexError and not reports_at_once():
        pytest.skip("this device reports it later")
    with pytest.raises(error):
        call(norch.tensor([0, 1]), norch.zeros(3, 2))


def test_pretrained_embeddings_share_their_table():
    table = norch.tensor(rand(4, 2))
    for cls in (nn.Embedding, nn.EmbeddingBag):
        layer = cls.from_pretrained(table)
        assert not layer.weight.requires_grad
        assert layer.weight.data_ptr() == table.data_ptr()
        assert cls.from_pretrained(table, freeze=False, padding_idx=-1).padding_idx == 3
        assert cls.from_pretrained(table, False).weight.requires_grad


def test_embeddings_start_normal_with_zeros_for_padding():
    norch.manual_seed(0)
    layer = nn.Embedding(200, 50, padding_idx=-2)
    values = array(layer.weight)
    assert (values[198] == 0).all()
    assert values.std() == pytest.approx(1, rel=0.05)
    assert layer.padding_idx == 198


@pytest.mark.parametrize("skip", [None, 3])
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags_in_rows_are_those_with_offsets(skip, mode):
    indices = np.array([[1, 3, 3, 5], [3, 3, 3, 3], [0, 2, 5, 5]])
    table, same = (norch.tensor(rand(6, 3), requires_grad=True) for _ in range(2))
    out = F.embedding_bag(norch.tensor(indices), table, mode=mode, padding_idx=skip)
    expected = F.embedding_bag(
        norch.tensor(indices.ravel()), same, norch.tensor([0, 4, 8]), mode=mode, padding_idx=skip
    )
    np.testing.assert_allclose(array(out), array(expected), rtol=1e-12)
    grad = norch.tensor(rand(3, 3, seed=2))
    out.backward(grad)
    expected.backward(grad)
    np.testing.assert_allclose(array(table.grad), array(same.grad), rtol=1e-12)


def test_bags_without_indices_are_zeros():
    for mode in ("sum", "mean"):
        found = F.embedding_bag(norch.zeros(2, 0, dtype=norch.int64), norch.ones(4, 3), mode=mode)
        assert found.tolist() == [[0, 0, 0], [0, 0, 0]]


def test_bags_refuse_paddings_and_weights_that_do_not_fit():
    table, indices, offsets = norch.ones(10, 2), norch.tensor([0, 1]), norch.tensor([0])
    for padding in (10, -11):
        with pytest.raises(norch.ShapeError, match="padding_idx"):
            F.embedding_bag(indices, table, offsets, padding_idx=padding)
    with pytest.raises(norch.DTypeError, match="per_sample_weights"):
        F.embedding_bag(indices, table, offsets, mode="sum", per_sample_weights=norch.ones(2, dtype=norch.float64))
