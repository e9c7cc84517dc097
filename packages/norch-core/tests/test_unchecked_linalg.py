"""Routines of linear algebra that say in `info` which matrices have no answer."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch.testing.gradcheck import gradcheck

GOOD = [[4.0, 1.0], [1.0, 3.0]]
SINGULAR = [[1.0, 1.0], [1.0, 1.0]]
NEGATIVE = [[-1.0, 0.0], [0.0, 1.0]]
FIRST_SINGULAR = [[2, 0], [1, 0]]  # a backend says which pivot is 0, NumPy only that one is


def test_answers_are_those_of_the_checked_routines() -> None:
    a, b = norch.tensor([GOOD, GOOD], dtype=norch.float64), norch.ones(2, 2, 1, dtype=norch.float64)
    pairs = [
        (norch.linalg.cholesky_ex(a), norch.linalg.cholesky(a)),
        (norch.linalg.cholesky_ex(a, upper=True), norch.linalg.cholesky(a, upper=True)),
        (norch.linalg.inv_ex(a), norch.linalg.inv(a)),
        (norch.linalg.solve_ex(a, b), norch.linalg.solve(a, b)),
        (norch.linalg.lu_factor_ex(a), norch.linalg.lu_factor(a).LU),
    ]
    for (found, *_, info), expected in pairs:
        assert found.tolist() == expected.tolist()
        assert info.tolist() == [0, 0]
        assert info.dtype is norch.int32


def test_matrices_without_an_answer_are_told_apart() -> None:
    a = norch.tensor([[GOOD, NEGATIVE]], dtype=norch.float64)
    found, info = norch.linalg.cholesky_ex(a)
    assert info.tolist() == [[0, 1]]
    np.testing.assert_allclose(found[0, 0].numpy(), np.linalg.cholesky(np.array(GOOD)))
    assert found[0, 1].isnan().all()
    b = norch.tensor([SINGULAR, GOOD])
    inverse, info = norch.linalg.inv_ex(b)
    assert info.tolist() in FIRST_SINGULAR
    np.testing.assert_allclose(inverse[1].numpy(), np.linalg.inv(np.array(GOOD)), rtol=1e-6)
    result, info = norch.linalg.solve_ex(b, norch.ones(2, 2))
    assert info.tolist() in FIRST_SINGULAR
    np.testing.assert_allclose(result[1].numpy(), np.linalg.inv(np.array(GOOD)).sum(1), rtol=1e-6)
    assert norch.linalg.solve_ex(b, norch.ones(2, 2, 2), left=False).info.tolist() in FIRST_SINGULAR
    assert norch.linalg.cholesky_ex(norch.tensor(NEGATIVE)).info.item() == 1
    many = norch.tensor([SINGULAR, GOOD] * 200).reshape(20, 20, 2, 2)
    inverse, info = norch.linalg.inv_ex(many)
    assert (info != 0).flatten().tolist() == [True, False] * 200
    assert inverse.isnan().flatten(-2).all(-1).flatten().tolist() == [True, False] * 200


@pytest.mark.parametrize("name", ["cholesky_ex", "inv_ex", "lu_factor_ex"])
def test_errors_are_raised_on_demand(name: str) -> None:
    with pytest.raises(norch.linalg.LinAlgError):
        getattr(norch.linalg, name)(norch.tensor(SINGULAR) * 0, check_errors=True)
    with pytest.raises(norch.linalg.LinAlgError):
        norch.linalg.solve_ex(norch.tensor(SINGULAR) * 0, norch.ones(2), check_errors=True)


def test_gradients_flow_through_the_answers() -> None:
    a = norch.tensor(GOOD, dtype=norch.float64, requires_grad=True)
    assert gradcheck(lambda a: norch.linalg.inv_ex(a).inverse, a)
    both = norch.stack([a, a.detach() * 0])
    norch.linalg.inv_ex(both).inverse[0].sum().backward()
    assert a.grad.isfinite().all()


@pytest.mark.parametrize("upper", [False, True])
def test_systems_by_their_cholesky_factor(upper: bool) -> None:
    a, b = norch.tensor([GOOD, GOOD], dtype=norch.float64), norch.arange(6, dtype=norch.float64).reshape(2, 3)
    factor = norch.linalg.cholesky(a, upper=upper)
    found = norch.cholesky_solve(b.expand(2, 2, 3), factor, upper=upper)
    np.testing.assert_allclose(found.numpy(), np.linalg.solve(a.numpy(), b.expand(2, 2, 3).numpy()))
    np.testing.assert_allclose(norch.cholesky_inverse(factor, upper).numpy(), np.linalg.inv(a.numpy()))
    small = norch.tensor(GOOD, dtype=norch.float64, requires_grad=True)
    assert gradcheck(lambda a: norch.cholesky_solve(b, norch.linalg.cholesky((a + a.mT) / 2)), small)


def test_the_largest_singular_values() -> None:
    r = np.random.default_rng(3)
    a = norch.tensor(r.standard_normal((2, 30, 4)) @ r.standard_normal((2, 4, 20)))
    norch.manual_seed(0)
    u, s, v = norch.svd_lowrank(a, q=4)
    np.testing.assert_allclose((u * s.unsqueeze(-2) @ v.mT).numpy(), a.numpy(), atol=1e-9)
    np.testing.assert_allclose(s.numpy(), np.linalg.svd(a.numpy())[1][:, :4])
    u, s, v = norch.pca_lowrank(a[0], q=4)
    centred = a[0].numpy() - a[0].numpy().mean(0)
    np.testing.assert_allclose(s.numpy(), np.linalg.svd(centred)[1][:4])
    assert [tuple(part.shape) for part in norch.pca_lowrank(a)] == [(2, 30, 6), (2, 6), (2, 20, 6)]
    with pytest.raises(norch.ShapeError, match="q 21 does not fit"):
        norch.svd_lowrank(a, q=21)
