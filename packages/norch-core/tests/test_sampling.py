"""Draws from distributions: their statistics, their seeds, and what they refuse."""

from __future__ import annotations

import math

import pytest

import norch

N = 20000


def test_multinomial_follows_its_weights():
    norch.manual_seed(1)
    weights = norch.tensor([1.0, 0.0, 3.0, 4.0])
    found = norch.multinomial(weights, N, replacement=True)
    assert found.dtype is norch.int64
    shares = found.bincount(minlength=4) / N
    assert norch.allclose(shares, weights / 8, atol=0.02)
    assert shares[1].item() == 0


def test_multinomial_of_rows_without_replacement():
    norch.manual_seed(2)
    weights = norch.rand(50, 6) + 0.1
    weights[:, 2] = 0
    found = weights.multinomial(5)
    assert found.shape == (50, 5)
    assert sorted(found.unique().tolist()) == [0, 1, 3, 4, 5]
    assert all(len(set(row)) == 5 for row in found.tolist())
    first = norch.multinomial(norch.tensor([1.0, 2.0, 5.0]).expand(N, 3), 1).flatten().bincount() / N
    assert norch.allclose(first, norch.tensor([0.125, 0.25, 0.625]), atol=0.02)


def test_multinomial_repeats_with_its_generator():
    draws = [norch.multinomial(norch.ones(9), 4, generator=norch.Generator().manual_seed(5)) for _ in range(2)]
    assert norch.equal(*draws)


@pytest.mark.parametrize(
    ("weights", "count", "error", "words"),
    [
        ([1, 2], 1, norch.DTypeError, "int64"),
        ([[[1.0]]], 1, norch.ShapeError, r"\(1, 1, 1\)"),
        ([1.0, 2.0], 3, norch.ShapeError, "3 samples of 2"),
        ([1.0, 2.0], 0, norch.ShapeError, "at least 1 sample"),
        ([1.0, -2.0], 1, ValueError, "not negative"),
        ([1.0, math.nan], 1, ValueError, "finite"),
        ([1.0, 0.0], 2, ValueError, "at least 2"),
    ],
)
def test_multinomial_refuses(weights, count, error, words):
    with pytest.raises(error, match=words):
        norch.multinomial(norch.tensor(weights), count)


@pytest.mark.parametrize("dtype", [norch.float32, norch.float64, norch.bfloat16])
def test_continuous_draws(dtype):
    norch.manual_seed(3)
    x = norch.empty(N, dtype=dtype)
    assert x.exponential_(2.0) is x
    assert (x >= 0).all()
    assert x.double().mean().item() == pytest.approx(0.5, abs=0.02)
    x.log_normal_(0.5, 0.25)
    assert x.double().log().mean().item() == pytest.approx(0.5, abs=0.02)
    assert x.double().log().std().item() == pytest.approx(0.25, abs=0.02)
    x.cauchy_(1.0, 2.0)
    assert x.float().median().item() == pytest.approx(1.0, abs=0.15)
    assert x.float().quantile(0.75).item() == pytest.approx(3.0, abs=0.25)


def test_geometric_draws():
    norch.manual_seed(4)
    x = norch.empty(N, dtype=norch.int64).geometric_(0.25)
    assert x.min().item() == 1
    assert x.double().mean().item() == pytest.approx(4.0, abs=0.15)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.exponential_(0),
        lambda x: x.geometric_(1.0),
        lambda x: x.cauchy_(0, -1),
        lambda x: x.log_normal_(0, 0),
        lambda x: x.log_normal_(0, math.nan),
        lambda x: x.bernoulli_(2),
        lambda x: norch.bernoulli(x, -0.1),
        lambda x: norch.bernoulli(x, math.nan),
    ],
)
@pytest.mark.parametrize("error", [ValueError, RuntimeError])
def test_parameters_out_of_range(call, error):
    with pytest.raises(error, match="must be"):
        call(norch.empty(2))


def test_uniform_numbers_between_nothing():
    for low, high in ((3, 1), (0, math.nan)):
        with pytest.raises(RuntimeError, match="no numbers lie from"):
            norch.empty(2).uniform_(low, high)
    assert norch.empty(2).uniform_(1, 1).tolist() == [1, 1]


@pytest.mark.parametrize(
    "call",
    [
        lambda: norch.randint(0, 300, (3,), dtype=norch.uint8),
        lambda: norch.randint_like(norch.zeros(2, dtype=norch.int8), -129, 3),
        lambda: norch.empty(3, dtype=norch.bool).random_(-1, 1),
        lambda: norch.empty(3, dtype=norch.bool).random_(0, 3),
        lambda: norch.empty(3, dtype=norch.float16).random_(3, 70000),
        lambda: norch.randperm(257, dtype=norch.uint8),
        lambda: norch.randperm(2**11 + 2, dtype=norch.float16),
    ],
)
def test_integers_that_a_dtype_cannot_hold(call):
    with pytest.raises(RuntimeError, match="is out of range for norch"):
        call()


def test_integers_up_to_what_a_dtype_holds():
    assert norch.randint(-128, 128, (4,), dtype=norch.int8).dtype is norch.int8
    assert sorted(norch.randperm(256, dtype=norch.uint8).tolist()) == list(range(256))
    assert sorted(norch.randperm(2**11 + 1, dtype=norch.float16).tolist()) == list(range(2**11 + 1))
    assert norch.randint(0, 2, (9,), dtype=norch.bool).dtype is norch.bool


def test_integers_have_no_exponential():
    with pytest.raises(norch.DTypeError, match=r"exponential_\(\).*int64"):
        norch.zeros(2, dtype=norch.int64).exponential_()


def test_fork_rng_leaves_no_trace():
    norch.manual_seed(0)
    expected = norch.rand(3)
    norch.manual_seed(0)
    with norch.random.fork_rng():
        norch.rand(10)
    assert norch.equal(norch.rand(3), expected)
    with norch.random.fork_rng(enabled=False):
        norch.rand(1)
    assert not norch.equal(norch.rand(3), expected)


def test_weights_that_nothing_can_be_drawn_by_are_a_runtime_error_too():
    """As in PyTorch, whose loops of generation and of policies catch that."""
    for weights in ([[math.nan, 1.0]], [[-1.0, 1.0]], [[0.0, 0.0]]):
        with pytest.raises(RuntimeError, match="weights"):
            norch.multinomial(norch.tensor(weights), 1)
    assert issubclass(norch.WeightsError, ValueError)
