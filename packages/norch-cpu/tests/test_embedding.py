"""embedding and its gradient, against NumPy."""

import numpy as np
import pytest
from indexing_harness import FLOATS, INTS, as_float, layouts, tensor, values

import norch


@pytest.fixture
def threads():
    before = norch.get_num_threads()
    yield norch.set_num_threads
    norch.set_num_threads(before)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("index_name", INTS)
def test_embedding_in_every_layout(name, index_name):
    weight, index = values(name, 11, 5), values(index_name, 7, 3, 2) * 3 % 11
    for wt, it in zip(layouts(weight), list(layouts(index))[::-1], strict=False):
        np.testing.assert_array_equal(as_float(norch.embedding(it, wt)), weight[index.astype(int)].astype(float))
    row = tensor(index[0, 0])
    np.testing.assert_array_equal(
        as_float(norch.embedding(row.expand(3, 2), tensor(weight))),
        weight[np.broadcast_to(index[0, 0].astype(int), (3, 2))].astype(float),
    )


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("padding", [None, 0, 6])
def test_embedding_gradient(name, padding):
    index, grad = np.random.default_rng(0).integers(0, 7, (4, 9)), values(name, 4, 9, 70)
    want = np.zeros((7, 70))
    np.add.at(want, index, np.where(index[..., None] == (-1 if padding is None else padding), 0, grad.astype(float)))
    for it, gt in zip(layouts(index), list(layouts(grad)), strict=True):
        weight = norch.ones(7, 70, dtype=getattr(norch, name), requires_grad=True)
        norch.embedding(it, weight, padding).backward(gt)
        np.testing.assert_array_equal(as_float(weight.grad), want)


def test_embedding_gradient_of_padding_is_zero_whatever_comes():
    weight = norch.ones(3, 2, requires_grad=True)
    norch.embedding(norch.tensor([0, 1, 1]), weight, -2).backward(norch.full((3, 2), float("nan")))
    assert str(weight.grad.tolist()) == "[[nan, nan], [0.0, 0.0], [0.0, 0.0]]"


def test_large_embedding(threads):
    rng = np.random.default_rng(0)
    weight, index = rng.standard_normal((3000, 130)).astype(np.float32), rng.integers(0, 3000, (20, 101))
    grad = rng.standard_normal((20, 101, 130)).astype(np.float32)
    want = np.zeros_like(weight)
    np.add.at(want, index, grad)
    for count in (1, 3):
        threads(count)
        wt = norch.from_numpy(weight.copy()).requires_grad_()
        y = norch.embedding(norch.from_numpy(index), wt)
        assert (y.detach().numpy() == weight[index]).all()
        y.backward(norch.from_numpy(grad))
        assert (wt.grad.numpy() == want).all()


@pytest.mark.parametrize("wrong", [5, -1, 100])
def test_embedding_names_the_wrong_index(wrong):
    weight = norch.zeros(5, 3)
    index = norch.tensor([[0, 4], [wrong, 1]])
    message = rf"embedding\(\): index {wrong} of input \(2, 2\) is outside \[0, 5\), the rows of weight \(5, 3\)"
    for given in (index, index.t(), index.to(norch.int8)):
        with pytest.raises(norch.IndexError, match=message):
            norch.embedding(given, weight)
    with pytest.raises(norch.IndexError, match="no rows"):
        norch.embedding(index, norch.zeros(0, 3))


def test_embedding_of_nothing():
    assert norch.embedding(norch.zeros(0, 2, dtype=norch.int64), norch.zeros(5, 3)).shape == (0, 2, 3)
    assert norch.embedding(norch.zeros(0, dtype=norch.int64), norch.zeros(0, 3)).shape == (0, 3)
    assert norch.embedding(norch.zeros(2, dtype=norch.int64), norch.zeros(5, 0)).shape == (2, 0)
    assert norch.embedding(norch.tensor(3), norch.ones(5, 2)).tolist() == [1.0, 1.0]
    weight = norch.ones(5, 3, requires_grad=True)
    norch.embedding(norch.zeros(0, 2, dtype=norch.int64), weight).sum().backward()
    assert weight.grad.tolist() == [[0.0] * 3] * 5
