"""vmap of ops that look at memory, write into what a sample keeps, or have a gradient unlike that of their parts."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch import vmap
from norch.func import grad


def looped(function, *columns: norch.Tensor) -> norch.Tensor:
    return norch.stack([function(*row) for row in zip(*columns, strict=True)])


def same(found: norch.Tensor, expected: norch.Tensor) -> None:
    norch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dim", [0, 2])
def test_as_strided_is_of_each_samples_memory(dim) -> None:
    memory = norch.arange(120.0)
    x = memory[3:].as_strided((4, 3, 5), (20, 5, 1)).movedim(0, dim)
    rows = list(x.unbind(dim))
    windows = vmap(lambda a: a.as_strided((2, 3), (5, 2)), in_dims=dim)(x)
    same(windows, norch.stack([row.as_strided((2, 3), (5, 2)) for row in rows]))
    placed = vmap(lambda a: a.as_strided((2,), (2,), 4), in_dims=dim)(x)  # from where the first sample would have it
    same(placed, norch.stack([row.as_strided((2,), (2,), 4 + 20 * i) for i, row in enumerate(rows)]))
    nested = vmap(vmap(lambda a: a.as_strided((2, 2), (1, 1))), in_dims=dim)(x)
    same(nested, norch.stack([norch.stack([a.as_strided((2, 2), (1, 1)) for a in row]) for row in rows]))
    with pytest.raises(norch.ShapeError, match="leaves the buffer"):
        vmap(lambda a: a.as_strided((30,), (3,)), in_dims=dim)(x)


def test_as_strided_is_differentiated() -> None:
    def loss(a):
        return (a.as_strided((2, 3), (1, 2)) ** 2).sum()

    x = norch.arange(24.0).reshape(3, 8)
    same(vmap(grad(loss))(x), looped(grad(loss), x))


def test_block_diag() -> None:
    a, b = norch.arange(12.0).reshape(3, 2, 2), norch.arange(6).reshape(3, 2)
    same(vmap(norch.block_diag)(a, b), looped(norch.block_diag, a, b))


def test_vectors_of_no_elements_join_mapped_matrices() -> None:
    rows = norch.arange(12.0).reshape(3, 2, 2)
    none = norch.zeros(3, 0, dtype=norch.float64)
    found = vmap(lambda e, r: norch.cat((e, r), 1))(none, rows)
    assert found.dtype is norch.float64
    same(found, looped(lambda e, r: norch.cat((e, r), 1), none, rows))
    assert vmap(lambda e: norch.cat((e, e)))(none).shape == (3, 0)


def test_running_statistics_are_those_of_each_sample() -> None:
    x = norch.arange(48.0).reshape(2, 4, 3, 2).sin()

    def moved(a, mean, var):
        out = norch.batch_norm(a, mean, var, training=True, momentum=0.3)
        return out, mean, var

    given = [norch.zeros(2, 3), norch.ones(2, 3)]
    found = vmap(moved)(x, *[g.clone() for g in given])
    rows = [moved(a, *[g[i].clone() for g in given]) for i, a in enumerate(x)]
    for i, part in enumerate(found):
        same(part, norch.stack([row[i] for row in rows]))
    with pytest.raises(RuntimeError, match="written in place into a tensor that does not"):
        vmap(lambda a: norch.batch_norm(a, norch.zeros(3), norch.ones(3), training=True))(x)


def test_running_statistics_are_not_part_of_a_gradient() -> None:
    x = norch.arange(24.0).reshape(2, 4, 3).sin()

    def loss(a, mean, var):
        return (norch.batch_norm(a, mean, var, training=True) ** 3).sum()

    means, variances = norch.zeros(2, 3), norch.ones(2, 3)
    found = vmap(grad(loss))(x, means, variances)
    same(found, looped(grad(loss), x, norch.zeros(2, 3), norch.ones(2, 3)))
    assert not means.requires_grad
    np.testing.assert_allclose(means.numpy(), 0.1 * x.numpy().mean(1), rtol=1e-5)


def test_the_row_of_padding_gets_no_gradient_from_any_sample() -> None:
    weight, index = norch.arange(15.0).reshape(5, 3), norch.tensor([[2, 1], [1, 4], [2, 2]])

    def loss(w, i):
        return (norch.embedding(i, w, padding_idx=2) ** 2).sum()

    found = vmap(grad(loss), in_dims=(None, 0))(weight, index)
    same(found, norch.stack([grad(loss)(weight, i) for i in index]))
    assert not found[:, 2].any()


def test_nextafter_is_differentiated() -> None:
    x, y = norch.tensor([[1.0, 2.0], [3.0, -1.0]]), norch.tensor([[2.0, 2.0], [0.0, -1.0]])

    def loss(a, b):
        return (norch.nextafter(a, b) * 3).sum()

    found = vmap(grad(loss))(x, y)
    np.testing.assert_array_equal(found.numpy(), [[3.0, 0.0], [3.0, 0.0]])


def test_tensors_begun_within_two_vmaps_take_what_differs_in_both():
    x = norch.randn(3, 4, 5)

    def shifted(a):
        out = norch.zeros_like(a)
        out[1:] = a[:-1]
        return out

    def of_both(a):
        out = a.new_ones(2, 5)
        out[0] = a
        out[1] += a.sum()
        return out

    assert norch.equal(norch.vmap(norch.vmap(norch.diag))(x), norch.diag_embed(x))
    assert norch.equal(norch.vmap(norch.vmap(shifted))(x), norch.cat([x.new_zeros(3, 4, 1), x[..., :-1]], -1))
    assert norch.allclose(norch.vmap(norch.vmap(of_both))(x)[:, :, 1, 0], 1 + x.sum(-1))
    empty = norch.vmap(norch.vmap(lambda a: norch.empty_like(a).copy_(a)))(x)
    assert norch.equal(empty, x)


@pytest.mark.parametrize(
    ("outer", "inner", "count"),
    [("different", "different", 12), ("different", "same", 3), ("same", "different", 4), ("same", "same", 1)],
)
def test_draws_within_two_vmaps_differ_in_those_that_say_so(outer, inner, count):
    x = norch.ones(3, 4, 50)
    draws = [
        norch.rand_like,
        lambda a: norch.randn(50) + 0 * a,
        lambda a: norch.empty_like(a).uniform_(),
        lambda a: a.new_empty(50).exponential_(),
        lambda a: norch.poisson(1e6 * a),
        lambda a: norch.dropout(a, 0.5, True),
    ]
    for draw in draws:
        found = norch.vmap(norch.vmap(draw, randomness=inner), randomness=outer)(x)
        assert len(set(map(tuple, found.reshape(12, 50).tolist()))) == count


def test_a_tuple_of_one_dim_is_that_of_a_single_result():
    x = norch.randn(2, 3)
    assert norch.equal(vmap(norch.sin, out_dims=(1,))(x), x.sin().mT)
    assert norch.equal(vmap(norch.sin, out_dims=(1,), chunk_size=1)(x), x.sin().mT)
    with pytest.raises(ValueError, match="another structure"):
        vmap(norch.sin, out_dims=(1, 0))(x)
