"""embedding_sum against the sums of rows that NumPy makes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import norch
from norch.testing import assert_close

RNG = np.random.default_rng(11)
TOLERANCE = {"float64": 1e-14, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("features", [1, 7, 64, 96, 2050])
@pytest.mark.parametrize("padding", [None, 3])
def test_rows_of_bags(cuda, dtype, features, padding):
    weight, index = RNG.standard_normal((50, features)), RNG.integers(0, 50, (9, 21))
    w = norch.tensor(weight).to(getattr(norch, dtype))
    kept = np.asarray(w.double().numpy())[index] * (index != padding)[..., None]
    found = norch.embedding_sum(norch.tensor(index, device=cuda), w.to(cuda), padding)
    bound = TOLERANCE[dtype]
    assert_close(found.double().cpu(), norch.tensor(kept.sum(1)), rtol=bound, atol=20 * bound)
    edges = np.array([0, 0, 5, 30, 30, 150])
    flat = index.reshape(-1)
    found = norch.embedding_sum(
        norch.tensor(flat, device=cuda, dtype=norch.int32),
        w.to(cuda),
        padding,
        offsets=norch.tensor(edges, device=cuda),
    )
    rows = kept.reshape(-1, features)
    expected = np.stack([rows[a:b].sum(0) for a, b in pairwise(edges)])
    assert_close(found.double().cpu(), norch.tensor(expected), rtol=bound, atol=40 * bound)


def test_weights_that_are_views_and_gradients(cuda):
    weight, index = RNG.standard_normal((40, 17)).astype(np.float32), RNG.integers(0, 19, (6, 4))
    for view in (lambda w: w[1::2, 1:], lambda w: w[:, ::2], lambda w: w.t()):
        w = norch.tensor(weight, device=cuda)
        seen = view(w).detach().requires_grad_()
        on_host = norch.tensor(np.asarray(seen.detach().cpu().numpy())).requires_grad_()
        places = index % min(19, seen.shape[0])
        found, expected = (norch.embedding_sum(norch.tensor(places, device=v.device), v) for v in (seen, on_host))
        assert_close(found.detach().cpu(), expected.detach(), rtol=1e-6, atol=1e-5)
        found.square().sum().backward()
        expected.square().sum().backward()
        assert_close(seen.grad.cpu(), on_host.grad, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("index", [[[0, 5]], [[0, -1]]])
def test_an_index_that_is_no_row(cuda, index):
    with pytest.raises(IndexError, match="embedding"):
        norch.embedding_sum(norch.tensor(index, device=cuda), norch.ones(5, 4, device=cuda)).cpu()
    assert norch.embedding_sum(norch.tensor([[0, 4]], device=cuda), norch.ones(5, 4, device=cuda)).cpu().tolist() == [
        [2.0] * 4
    ]
