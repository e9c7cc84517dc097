"""Sums of a table's rows, against NumPy."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import norch

FLOATS = ("float64", "float32", "float16", "bfloat16")


def table_of(name, rows, features):
    """Small integers, whose sums are exact in every dtype."""
    array = np.random.default_rng(0).integers(0, 4, (rows, features)).astype(np.float64)
    return array, norch.tensor(array, dtype=getattr(norch, name))


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("features", [1, 3, 8, 15, 64, 71, 200])
@pytest.mark.parametrize("padding", [None, 3, -1])
def test_sums_of_rows(name, features, padding):
    table, weight = table_of(name, 11, features)
    index = np.random.default_rng(0).integers(0, 11, (6, 2, 9))
    counted = index != (11 + padding if padding == -1 else padding)
    expected = (table[index] * counted[..., None]).sum(-2)
    for given in (
        norch.tensor(index),
        norch.tensor(index).to(norch.int32),
        norch.tensor(index.T.copy()).permute(2, 1, 0),
    ):
        weight = weight.detach().requires_grad_()
        found = norch.embedding_sum(given, weight, padding)
        np.testing.assert_array_equal(found.to(norch.float64).detach().numpy(), expected)
        found.sum().backward()
        counts = np.bincount(index[counted], minlength=11)
        np.testing.assert_array_equal(weight.grad.to(norch.float64).numpy(), np.repeat(counts[:, None], features, 1))


@pytest.mark.parametrize("wrong", [-1, 11])
def test_sums_of_rows_refuse_an_index_that_is_no_row(wrong):
    index = norch.zeros(50, 30, dtype=norch.int64)
    index[40, 2] = wrong
    with pytest.raises(norch.IndexError, match=r"\[0, 11\)"):
        norch.embedding_sum(index, norch.ones(11, 5))


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("features", [1, 8, 15, 64, 71])
@pytest.mark.parametrize("padding", [None, 3])
@pytest.mark.parametrize("edges", [[0, 5, 5, 30, 40], [2, 3, 39], [0, 40], [40, 40], [7]])
def test_sums_between_offsets(name, features, padding, edges):
    table, weight = table_of(name, 11, features)
    index = np.random.default_rng(0).integers(0, 11, 40)
    weight.requires_grad_()
    counted = index != padding
    expected = [(table[index[a:b]] * counted[a:b, None]).sum(0) for a, b in pairwise(edges)]
    found = norch.embedding_sum(norch.tensor(index), weight, padding, offsets=norch.tensor(edges))
    np.testing.assert_array_equal(found.to(norch.float64).detach().numpy(), np.reshape(expected, (-1, features)))
    grad = np.arange(found.numel()).reshape(found.shape) % 5
    found.backward(norch.tensor(grad).to(found.dtype))
    given = np.zeros((11, features))
    for row, a, b in zip(grad, edges, edges[1:], strict=False):
        np.add.at(given, index[a:b][counted[a:b]], row)
    np.testing.assert_array_equal(weight.grad.to(norch.float64).numpy(), given)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("features", [1, 8, 71, 200])
@pytest.mark.parametrize("padding", [None, 3])
@pytest.mark.parametrize("edges", [None, [0, 5, 5, 30, 40], [2, 3, 39]])
def test_weighted_sums(name, features, padding, edges):
    table, weight = table_of(name, 11, features)
    shape = (40,) if edges else (5, 8)
    rng = np.random.default_rng(1)
    index, factors = rng.integers(0, 11, shape), rng.integers(-2, 3, shape).astype(np.float64)
    given = norch.tensor(factors, dtype=weight.dtype).requires_grad_()
    weight.requires_grad_()
    offsets = None if edges is None else norch.tensor(edges)
    found = norch.embedding_sum(norch.tensor(index), weight, padding, offsets=offsets, per_sample_weights=given)
    # Which bag each index is in, as a matrix (bags, indices).
    bags = [(8 * i, 8 * i + 8) for i in range(5)] if edges is None else list(pairwise(edges))
    member = np.array([(np.arange(40) >= a) & (np.arange(40) < b) for a, b in bags], float)
    index, factors = index.reshape(-1), factors.reshape(-1)
    scaled = table[index] * (factors * (index != padding))[:, None]
    np.testing.assert_array_equal(found.to(norch.float64).detach().numpy(), member @ scaled)
    g = rng.integers(-1, 2, found.shape).astype(np.float64)
    found.backward(norch.tensor(g).to(found.dtype))
    each = member.T @ g * (index != padding)[:, None]
    of_weight = np.zeros_like(table)
    np.add.at(of_weight, index, each * factors[:, None])
    np.testing.assert_array_equal(weight.grad.to(norch.float64).numpy(), of_weight)
    of_factors = (each * table[index]).sum(1).reshape(shape)
    if name == "bfloat16":  # whose products' sums may have more digits than it has
        np.testing.assert_allclose(given.grad.to(norch.float64).numpy(), of_factors, rtol=2**-8)
    else:
        np.testing.assert_array_equal(given.grad.to(norch.float64).numpy(), of_factors)


def test_factors_are_of_the_shape_of_input_and_the_dtype_of_weight():
    index, weight = norch.zeros(2, 3, dtype=norch.int64), norch.ones(4, 5)
    with pytest.raises(norch.ShapeError, match=r"per_sample_weights of shape \(3,\)"):
        norch.embedding_sum(index, weight, per_sample_weights=norch.ones(3))
    with pytest.raises(norch.DTypeError, match="per_sample_weights are norch.float64"):
        norch.embedding_sum(index, weight, per_sample_weights=norch.ones(2, 3, dtype=norch.float64))


@pytest.mark.parametrize("wrong", [-1, 41])
def test_sums_refuse_an_offset_that_is_no_place(wrong):
    with pytest.raises(norch.IndexError, match=f"index {wrong} "):
        norch.embedding_sum(norch.zeros(40, dtype=norch.int64), norch.ones(3, 2), offsets=norch.tensor([0, wrong]))
