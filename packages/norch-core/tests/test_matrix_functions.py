"""The exponential of matrices, systems of tensors, products of reflections; and names that PyTorch has besides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import norch
from norch.autograd import gradcheck, gradgradcheck

L = norch.linalg
RNG = np.random.default_rng(8)


def double(*shape):
    return norch.tensor(RNG.standard_normal(shape))


def close(found, expected, bound=1e-12):
    np.testing.assert_allclose(found.detach().numpy(), expected, bound, bound)


@pytest.mark.parametrize("dtype", [norch.float32, norch.float64])
@pytest.mark.parametrize("size", [1e-9, 1e-4, 1e-3, 0.05, 0.3, 1.0, 1.5, 3.0, 20.0])
def test_exponentials_of_matrices(size, dtype):
    s = double(4, 4)
    values, vectors = np.linalg.eigh((s + s.mT).numpy())
    values = values / abs(values).max() * size
    x = vectors * values @ vectors.T
    found = norch.matrix_exp(norch.tensor(x).to(dtype))
    expected = vectors * np.exp(values) @ vectors.T
    assert found.dtype is dtype
    bound = norch.finfo(dtype).eps * 10 * (3 + size)  # that of a change of x in its last bit, some times over
    np.testing.assert_allclose(found.numpy(), expected, 0, abs(expected).max() * bound)


def test_exponentials_of_a_batch():
    turn = np.array([[0, -1, 0], [1, 0, 0], [0, 0, 0]])
    angles = np.array([0, 1e-8, 0.1, 1.0, 50.0])
    found = L.matrix_exp(norch.tensor(angles[:, None, None] * turn))
    cos, sin, none, one = np.cos(angles), np.sin(angles), np.zeros(5), np.ones(5)
    expected = np.stack([cos, -sin, none, sin, cos, none, none, none, one], -1).reshape(5, 3, 3)
    close(found, expected, 1e-11)
    close(norch.tensor(turn * 50.0).matrix_exp(), expected[-1], 1e-11)
    nilpotent = norch.tensor([[0.0, 2.0, 0.0], [0.0, 0.0, 4.0], [0.0, 0.0, 0.0]])
    assert norch.matrix_exp(nilpotent).tolist() == [[1, 2, 4], [0, 1, 4], [0, 0, 1]]


def test_exponentials_that_are_not_finite_or_of_nothing():
    x = norch.zeros(3, 2, 2)
    x[1, 0, 0], x[2, 0, 1] = float("nan"), float("inf")
    found = norch.matrix_exp(x)
    assert norch.equal(found[0], norch.eye(2))
    assert not found[1:].flatten(1).isfinite().all(1).any()
    for shape in ((0, 0), (3, 0, 0), (0, 2, 2)):
        assert norch.matrix_exp(norch.zeros(shape)).shape == shape
    assert norch.matrix_exp(norch.eye(2).bfloat16()).tolist() == [[2.71875, 0], [0, 2.71875]]
    with pytest.raises(norch.ShapeError, match="matrix_exp.*square"):
        norch.matrix_exp(norch.ones(2, 3))
    with pytest.raises(norch.DTypeError, match="matrix_exp"):
        norch.matrix_exp(norch.ones(2, 2, dtype=norch.int64))


def test_derivatives_of_exponentials():
    for x in (double(3, 3), double(2, 2, 2) * norch.tensor([[[0.01]], [[3.0]]])):
        x.requires_grad_()
        assert gradcheck(norch.matrix_exp, x)
        assert gradgradcheck(norch.matrix_exp, x, fast_mode=True)


def test_systems_of_tensors():
    a, b = double(2, 3, 2, 3, 2, 2), double(2, 3, 2)
    found = L.tensorsolve(a, b)
    close(norch.tensordot(a, found, 3), b.numpy())
    close(found, np.linalg.tensorsolve(a.numpy(), b.numpy()))
    moved, right = double(2, 6, 3), double(6)
    close(L.tensorsolve(moved, right, dims=(0, 2)), np.linalg.tensorsolve(moved.numpy(), right.numpy(), (0, 2)))
    square, flat = double(4, 6, 8, 3), double(6, 2, 3)
    close(L.tensorinv(square), np.linalg.tensorinv(square.numpy()), 1e-9)
    close(L.tensorinv(flat, ind=1), np.linalg.tensorinv(flat.numpy(), 1))
    for call, words in (
        (lambda: L.tensorsolve(a, b[0]), "tensorsolve.*do not match"),
        (lambda: L.tensorinv(flat, 2), "differ in elements"),
        (lambda: L.tensorinv(flat, 4), "ind must be"),
    ):
        with pytest.raises(norch.ShapeError, match=words):
            call()


def test_powers_of_vectors():
    x = double(2, 3)
    close(L.vander(x), np.stack([np.vander(row, increasing=True) for row in x.numpy()]))
    assert L.vander(norch.tensor([2, 3]), N=4).tolist() == [[1, 2, 4, 8], [1, 3, 9, 27]]
    assert L.vander(x, N=0).shape == (2, 3, 0)
    assert L.vander(norch.tensor(3.0), N=3).tolist() == [[1, 3, 9]]
    with pytest.raises(ValueError, match="vander.*negative"):
        L.vander(x, N=-1)


def test_products_of_reflections():
    a, tau = double(2, 5, 3), double(2, 3)
    found = L.householder_product(a, tau)
    for matrix, factors, q in zip(a.numpy(), tau.numpy(), found.numpy(), strict=True):
        expected = np.eye(5)
        for i in range(3):
            v = np.concatenate([np.zeros(i), [1], matrix[i + 1 :, i]])
            expected = expected @ (np.eye(5) - factors[i] * np.outer(v, v))
        np.testing.assert_allclose(q, expected[:, :3], 1e-12, 1e-12)
    assert gradcheck(L.householder_product, (a.requires_grad_(), tau.requires_grad_()))
    assert norch.orgqr is L.householder_product
    with pytest.raises(norch.ShapeError, match="do not match"):
        L.householder_product(a, double(2, 4))


def test_factors_by_other_names():
    a, b = double(2, 4, 4), double(2, 4, 3)
    factors, pivots = norch.lu(a)
    assert [x.tolist() for x in norch.lu(a, get_infos=True)] == [factors.tolist(), pivots.tolist(), [0, 0]]
    close(norch.lu_solve(b, factors, pivots), np.linalg.solve(a.numpy(), b.numpy()), 1e-9)
    close(b.lu_solve(factors, pivots), np.linalg.solve(a.numpy(), b.numpy()), 1e-9)
    p, lower, upper = norch.lu_unpack(factors, pivots)
    close(p @ lower @ upper, a.numpy())
    assert [x.shape for x in norch.lu_unpack(factors, pivots, unpack_data=False)] == [(2, 4, 4), (0,), (0,)]
    assert [x.shape for x in norch.lu_unpack(factors, pivots, unpack_pivots=False)] == [(0,), (2, 4, 4), (2, 4, 4)]
    wide = double(3, 5)
    for got, expected in zip(norch.lu_unpack(*norch.lu(wide)), L.lu(wide), strict=True):
        assert norch.equal(got, expected)
    with pytest.raises(norch.ShapeError, match="lu_unpack.*pivots"):
        norch.lu_unpack(factors, pivots[0])


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("transpose", [False, True])
def test_triangular_systems_by_another_name(upper, transpose):
    a, b = double(3, 3) + 3 * norch.eye(3, dtype=norch.float64), double(3, 2)
    triangle = (a.triu() if upper else a.tril()).numpy()
    found = norch.triangular_solve(b, a, upper, transpose)
    close(found.solution, np.linalg.solve(triangle.T if transpose else triangle, b.numpy()))
    assert norch.equal(found.cloned_coefficient, a)


def test_methods():
    a = double(3, 3)
    a = a @ a.mT + norch.eye(3, dtype=norch.float64)
    factor, b = a.cholesky(), double(3, 2)
    close(factor @ factor.mT, a.numpy())
    close(b.cholesky_solve(factor), np.linalg.solve(a.numpy(), b.numpy()))
    close(factor.cholesky_inverse(), np.linalg.inv(a.numpy()))
    close(b.triangular_solve(factor, upper=False).solution, L.solve_triangular(factor, b, upper=False).numpy(), 0)
    q, r = a.qr()
    close(q @ r, a.numpy())
    u, s, v = a.svd()
    close((u * s) @ v.mT, a.numpy())


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (2, 5, 3), (4, 1), (1, 4)])
def test_geqrf_and_ormqr(shape):
    a = double(*shape)
    m, n = shape[-2:]
    factors, tau = norch.geqrf(a)
    q, r = L.qr(a, "complete")
    assert norch.allclose(factors.triu(), r)
    if m >= n:
        assert norch.allclose(L.householder_product(factors, tau), q[..., :n])
    left, right = double(*shape[:-2], m, 2), double(*shape[:-2], 2, m)
    assert norch.allclose(norch.ormqr(factors, tau, left), q @ left)
    assert norch.allclose(norch.ormqr(factors, tau, left, transpose=True), q.mT @ left)
    assert norch.allclose(norch.ormqr(factors, tau, right, left=False), right @ q)
    assert norch.allclose(norch.ormqr(factors, tau, right, left=False, transpose=True), right @ q.mT)


def test_geqrf_of_columns_without_reflections_and_what_is_refused():
    a = double(4, 3)
    a[1:, 0] = 0
    factors, tau = norch.geqrf(a)
    assert tau[0].item() == 0
    assert norch.allclose(factors.triu(), L.qr(a, "complete")[1])
    with pytest.raises(norch.ShapeError):
        norch.geqrf(double(3))
    assert norch.autograd.gradcheck(
        lambda *args: norch.ormqr(*args, transpose=True),
        [x.requires_grad_() for x in (double(4, 2), double(2), double(4, 3))],
    )
    with pytest.raises(norch.ShapeError, match="ormqr"):
        norch.ormqr(factors, tau, double(3, 2))


@pytest.mark.parametrize("mode", ["reduced", "complete"])
def test_the_gradient_of_qr_of_more_columns_than_rows(mode):
    a = double(2, 3, 5).requires_grad_()
    assert gradcheck(lambda x: L.qr(x, mode), (a,))
    assert gradgradcheck(lambda x: L.qr(x, mode), (double(2, 4).requires_grad_(),), fast_mode=True)


LYING = [
    ("bac,bcd->bad", (15, 5, 1)), ("bac,bcd->bda", (15, 3, 1)), ("bac,bcd->dab", (3, 1, 15)), ("ac,dc->da", (3, 1)),
    ("bca,cd->abd", (10, 5, 1)), ("bca,cd->adb", (10, 1, 5)), ("bca,cd->dab", (6, 2, 1)), ("ab,d->adb", (10, 2, 1)),
    ("ab,d->dab", (6, 2, 1)), ("ab,bc,cd->da", (1, 5)),
]  # fmt: skip


@pytest.mark.parametrize(("equation", "strides"), LYING)
def test_the_result_of_einsum_lies_as_pytorchs(equation: str, strides: tuple[int, ...]) -> None:
    sizes = {"a": 3, "b": 2, "c": 4, "d": 5}
    arrays = [RNG.standard_normal([sizes[c] for c in term]) for term in equation.split("->")[0].split(",")]
    found = norch.einsum(equation, *map(norch.tensor, arrays))
    close(found, np.einsum(equation, *arrays))
    assert found.stride() == strides


def test_einsum_of_numbers_for_labels_has_the_order_of_pytorch() -> None:
    x, y = norch.rand(2, 3), norch.rand(3, 4)
    assert norch.einsum(x, [26, 2]).tolist() == x.T.tolist()
    assert norch.einsum(x, [51, 0], y, [0, 30]).tolist() == (y.T @ x.T).tolist()
    np.testing.assert_allclose(norch.einsum(x, [..., 40], y, [40, 1]).numpy(), x.numpy() @ y.numpy(), rtol=1e-6)


@pytest.mark.parametrize("p", [1, -1, 2, -2, np.inf, -np.inf, "fro", "nuc", None])
def test_the_condition_of_a_singular_matrix_is_infinite(p: Any) -> None:
    a = np.stack([np.diag([1.0, 2.0, 0.0]), np.diag([1.0, 2.0, 4.0])])
    found = norch.linalg.cond(norch.tensor(a), p).tolist()
    assert found[0] == (0.0 if p == -2 else np.inf)
    assert found[1] == pytest.approx(np.linalg.cond(a[1], p))


def test_ranks_and_inverses_by_tolerances_in_place() -> None:
    a = norch.diag(norch.tensor([1.0, 0.5, 1e-3]))
    assert norch.linalg.matrix_rank(a, 0.01).item() == 2
    assert norch.linalg.matrix_rank(a, 0.6, True).item() == 1
    assert norch.linalg.matrix_rank(a, tol=norch.tensor([0.6, 0.1])).tolist() == [1, 2]
    assert norch.linalg.matrix_rank(norch.complex(a, a * 0), 0.01).item() == 2
    assert norch.linalg.pinv(a, 0.01).diag().tolist() == [1.0, 2.0, 0.0]


def test_matrices_of_no_elements_and_single_ones() -> None:
    assert norch.linalg.tensorinv(norch.ones(0, 3, 0), ind=1).shape == (3, 0, 0)
    assert norch.linalg.tensorsolve(norch.ones(0, 0, 1, 2, 3, 0), norch.ones(0, 0)).shape == (1, 2, 3, 0)
    a = norch.rand(2, 3)
    assert norch.chain_matmul(a).tolist() == norch.chain_matmul([a]).tolist() == a.tolist()


def test_the_triangle_is_named_in_either_case() -> None:
    a = norch.tensor([[2.0, 9.0], [0.0, 1.0]])
    assert norch.linalg.eigh(a, UPLO="l").eigenvalues.tolist() == norch.linalg.eigvalsh(a, "l").tolist() == [1.0, 2.0]
    z = norch.complex(a, a * 0)
    assert norch.linalg.eigh(z, UPLO="l").eigenvalues.tolist() == pytest.approx([1.0, 2.0])


def test_what_matrices_have_no_norm_of() -> None:
    with pytest.raises(norch.ShapeError, match="1 or 2 dims"):
        norch.linalg.norm(norch.ones(2, 2, 2), 1, (0, 1, 2))
    i = norch.ones(2, dtype=norch.int64)
    for options in ({"alpha": 1.5}, {"beta": 0.5}):
        with pytest.raises(norch.DTypeError, match="integers"):
            norch.addr(norch.ones(2, 2, dtype=norch.int64), i, i, **options)


def test_numbers_of_a_sum_with_a_product_are_those_of_the_result() -> None:
    x, i = norch.ones(2, 2), norch.tensor([1, 2])
    assert norch.addr(x, i, i, beta=2.5, alpha=0.5).tolist() == [[3.0, 3.5], [3.5, 4.5]]
    assert norch.addmv(norch.ones(2), norch.stack([i, i]), i, beta=0.5).tolist() == [5.5, 5.5]


@pytest.mark.parametrize("p", [None, 1, -1, 2, -2, "fro", "nuc"])
def test_matrices_without_elements_have_condition_0(p: object) -> None:
    assert norch.linalg.cond(norch.ones(2, 0, 0), p).tolist() == [0.0, 0.0]
    assert norch.linalg.cond(norch.ones(0, 3, 3), p).shape == (0,)


def test_singular_values_by_any_driver() -> None:
    a = norch.tensor([[3.0, 0.0], [0.0, -2.0]])
    assert norch.linalg.svd(a, driver="gesvd").S.tolist() == norch.linalg.svdvals(a, driver=None).tolist() == [3.0, 2.0]
    z = norch.complex(a, a * 0)
    assert norch.linalg.svd(z, driver=None).S.tolist() == norch.linalg.svdvals(z, driver=None).tolist() == [3.0, 2.0]


@pytest.mark.parametrize("dtype", [norch.bfloat16, norch.float16])
def test_products_of_16_bits_that_are_not_rounded(dtype):
    a, b = (double(*shape).to(dtype) for shape in ((3, 500), (500, 4)))
    wanted = a.double().numpy() @ b.double().numpy()
    w = norch.ones(3, 4)
    made = (
        norch.mm(a, b, out_dtype=norch.float32),
        a.mm(b, norch.float32),
        norch.bmm(a[None], b[None], norch.float32)[0],
        norch.addmm(w, a, b, out_dtype=norch.float32, beta=0),
        norch.baddbmm(w[None], a[None], b[None], norch.float32)[0] - 1,
    )
    for found in made:
        assert found.dtype is norch.float32
        close(found.double(), wanted, 1e-4)
    norch.addmm(w, a, b, out_dtype=norch.float32, out=w)
    close(w.double(), wanted + 1, 1e-4)
    assert norch.mm(a, b, dtype).dtype is dtype
    with pytest.raises(norch.DTypeError, match="out_dtype must be float32 for factors of 16 bits"):
        norch.mm(a, b, norch.float64)
