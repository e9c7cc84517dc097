"""norch.linalg by cuSOLVER and cuBLAS, against NumPy in float64: sizes on both sides of every choice of a routine."""

from __future__ import annotations

import numpy as np
import pytest

import norch

L = norch.linalg
RNG = np.random.default_rng(5)
SQUARE = [(1, 1), (5, 5), (3, 2, 2), (40, 9, 9), (3, 32, 32), (7, 33, 33), (2, 3, 64, 64), (200, 200), (2, 520, 520)]
RECTANGLES = [(4, 3), (3, 4), (30, 7, 3), (6, 5, 9), (3, 32, 20), (5, 40, 33), (2, 300, 100), (150, 400)]
BOUND = {"float32": 2e-4, "float64": 1e-11}


@pytest.fixture
def linalg(cuda):
    """Nothing may be computed on the host."""
    if not norch.device(cuda).backend.has_linalg():
        pytest.skip("needs cuSOLVER")
    norch.set_cpu_fallback(False)
    return cuda


def matrices(shape, dtype, device="cuda"):
    """Random ones, and what they are in float64."""
    a = RNG.standard_normal(shape).astype(dtype)
    if shape[-1] == shape[-2]:
        a += 3 * np.sqrt(shape[-1]) * np.eye(shape[-1], dtype=dtype)  # well conditioned
    return norch.tensor(a, device=device), a.astype(np.float64)


def symmetric(shape, dtype, device="cuda"):
    a = RNG.standard_normal(shape)
    a = (a @ a.swapaxes(-1, -2) / shape[-1] + np.eye(shape[-1])).astype(dtype)
    return norch.tensor(a, device=device), a.astype(np.float64)


def close(got, expected, bound):
    assert got.device.type == "cuda"
    assert got.shape == expected.shape
    np.testing.assert_allclose(got.cpu().double().numpy(), expected, 0, bound * max(1, np.abs(expected).max(initial=0)))


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("shape", SQUARE, ids=str)
def test_inverses_solutions_and_determinants(linalg, shape, dtype):
    (a, x), bound = matrices(shape, dtype), BOUND[dtype]
    close(L.inv(a), np.linalg.inv(x), bound)
    for columns in (1, 5):
        b, y = matrices((*shape[:-1], columns), dtype) if shape[-1] != columns else matrices((*shape[:-1], 7), dtype)
        close(L.solve(a, b), np.linalg.solve(x, y), bound)
    vector = norch.tensor(y[..., :1].astype(dtype), device="cuda").expand(*y.shape[:-1], 3)
    close(L.solve(a, vector), np.linalg.solve(x, np.repeat(y[..., :1], 3, -1)), bound)
    close(L.solve(a.mT, b), np.linalg.solve(x.swapaxes(-1, -2), y), bound)
    sign, size = L.slogdet(a)
    close(sign, np.linalg.slogdet(x)[0], bound)
    close(size, np.linalg.slogdet(x)[1], bound)
    if shape[-1] <= (9 if dtype == "float32" else 33):  # those of more rows are infinite
        close(L.det(a), np.linalg.det(x), bound)


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("shape", SQUARE, ids=str)
def test_cholesky_factors_and_triangular_systems(linalg, shape, dtype):
    (a, x), bound = symmetric(shape, dtype), BOUND[dtype]
    factor = L.cholesky(a)
    close(factor, np.linalg.cholesky(x), bound)
    close(L.cholesky(a, upper=True), np.linalg.cholesky(x).swapaxes(-1, -2), bound)
    b, y = matrices((*shape[:-1], 4 if shape[-1] != 4 else 3), dtype)
    lower = np.linalg.cholesky(x)
    close(L.solve_triangular(factor, b, upper=False), np.linalg.solve(lower, y), bound)
    close(L.solve_triangular(factor.mT, b, upper=True), np.linalg.solve(lower.swapaxes(-1, -2), y), bound)
    close(L.solve_triangular(factor, b.mT, upper=False, left=False).mT,
          np.linalg.solve(lower.swapaxes(-1, -2), y), bound)  # fmt: skip
    unit = np.tril(lower, -1) / shape[-1] + np.eye(shape[-1])
    given = norch.tensor((unit * 7 - 6 * np.tril(unit, -1)).astype(dtype), device="cuda")
    close(L.solve_triangular(given, b, upper=False, unitriangular=True), np.linalg.solve(unit, y), bound)


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("shape", [*SQUARE, *RECTANGLES], ids=str)
def test_lu_factors(linalg, shape, dtype):
    bound, x = BOUND[dtype], RNG.standard_normal(shape).astype(dtype)  # rows are exchanged
    a = norch.tensor(x, device="cuda")
    p, lower, upper = L.lu(a)
    close(p @ lower @ upper, x.astype(np.float64), 10 * bound)
    assert lower.abs().max().item() <= 1
    expected = L.lu(norch.tensor(x.astype(np.float64), device="cpu"))
    if shape[-1] <= 64:
        close(p, expected.P.numpy(), 0)
    if shape[-1] == shape[-2]:
        b, y = matrices((*shape[:-1], 3 if shape[-1] != 3 else 2), dtype)
        found = L.lu_solve(*L.lu_factor(a), b)
        close(a @ found, y, 1000 * bound)


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("shape", [*RECTANGLES, (5, 5), (7, 33, 33), (2, 260, 260)], ids=str)
def test_qr_factors(linalg, shape, dtype):
    (a, x), bound, k = matrices(shape, dtype), BOUND[dtype], min(shape[-2:])
    for mode, width in (("reduced", k), ("complete", shape[-2])):
        q, r = L.qr(a, mode)
        close(q @ r, x, bound)
        close(q.mT @ q, np.broadcast_to(np.eye(width), (*shape[:-2], width, width)), bound)
        expected = np.linalg.qr(x, mode).R
        close(r.abs(), np.abs(expected), 10 * bound)
        assert norch.equal(r, r.triu())
        if shape[-1] != shape[-2]:
            continue
        close(r, expected, 10 * bound)  # LAPACK's signs
    close(L.qr(a, "r").R, np.linalg.qr(x, "r"), 10 * bound)
    zeros = norch.zeros(3, 4, 2, dtype=a.dtype, device="cuda")
    q, r = L.qr(zeros)
    assert norch.equal(q @ r, zeros)


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("shape", [*RECTANGLES, (1, 1), (5, 5), (20, 6, 6), (2, 64, 64)], ids=str)
def test_singular_values(linalg, shape, dtype):
    (a, x), bound = matrices(shape, dtype), 5 * BOUND[dtype]
    values = np.linalg.svd(x, compute_uv=False)
    for given in (a, a.mT.contiguous().mT):
        u, s, vh = L.svd(given, full_matrices=False)
        close(s, values, bound)
        close((u * s.unsqueeze(-2)) @ vh, x, bound)
        for vectors in (u.mT @ u, vh @ vh.mT):
            close(vectors, np.broadcast_to(np.eye(values.shape[-1]), vectors.shape), bound)
    u, s, vh = L.svd(a)
    assert (u.shape[-1], vh.shape[-2]) == shape[-2:]
    close(u.mT @ u, np.broadcast_to(np.eye(shape[-2]), u.shape), bound)
    close(vh @ vh.mT, np.broadcast_to(np.eye(shape[-1]), vh.shape), bound)
    close(L.svdvals(a), values, bound)
    close(L.pinv(a), np.linalg.pinv(x), 10 * bound)
    close(L.matrix_rank(a), np.linalg.matrix_rank(x), 0)


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30])
@pytest.mark.parametrize("shape", [(9, 6), (6, 9), (40, 40), (600, 5)], ids=str)
def test_singular_vectors_of_any_rank_are_orthonormal(linalg, shape, scale, dtype):
    bound, k = 5 * BOUND[dtype], min(shape)
    basis = RNG.standard_normal((2, shape[0])), RNG.standard_normal((2, shape[1]))
    given = [np.zeros(shape), np.eye(*shape), basis[0].T @ basis[1], np.ones(shape), RNG.standard_normal(shape)]
    given.append(np.where(np.arange(shape[1]) % 2 == 0, given[-1], 0))
    x = np.stack(given).astype(dtype) * np.array(scale, dtype)
    u, s, vh = L.svd(norch.tensor(x, device="cuda"), full_matrices=False)
    close(s / scale, np.linalg.svd(x.astype(np.float64) / scale, compute_uv=False), bound)
    close((u * (s / scale).unsqueeze(-2)) @ vh, x.astype(np.float64) / scale, bound)
    for vectors in (u.mT @ u, vh @ vh.mT):
        close(vectors, np.broadcast_to(np.eye(k), vectors.shape), bound)
    assert (s.diff(dim=-1) <= 0).all()
    x[3, 2, 1] = np.nan
    with pytest.raises(L.LinAlgError, match="SVD did not converge .element 3 of"):
        L.svd(norch.tensor(x, device="cuda"), full_matrices=False)


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("shape", SQUARE, ids=str)
def test_eigenvalues(linalg, shape, dtype):
    (a, x), bound = symmetric(shape, dtype), 5 * BOUND[dtype]
    for uplo, other in (("L", a.tril()), ("U", a.triu())):
        values, vectors = L.eigh(other, uplo)
        close(values, np.linalg.eigvalsh(x), bound)
        close((vectors * values.unsqueeze(-2)) @ vectors.mT, x, bound)
        close(vectors.mT @ vectors, np.broadcast_to(np.eye(shape[-1]), shape), bound)
        close(L.eigvalsh(other, uplo), np.linalg.eigvalsh(x), bound)


def test_least_squares_and_powers(linalg):
    (a, x), (b, y) = matrices((3, 40, 7), "float64"), matrices((3, 40, 2), "float64")
    found = L.lstsq(a, b)
    expected = [np.linalg.lstsq(p, q, rcond=None) for p, q in zip(x, y, strict=True)]
    close(found.solution, np.stack([e[0] for e in expected]), 1e-10)
    close(found.residuals, np.stack([e[1] for e in expected]), 1e-10)
    assert found.rank.tolist() == [7, 7, 7]
    c, z = matrices((4, 6, 6), "float64")
    close(L.matrix_power(c, -2) * 100, np.linalg.matrix_power(z, -2) * 100, 1e-10)
    close(L.cond(c), np.linalg.cond(z), 1e-10)


@pytest.mark.parametrize("size", [2, 40, 600])
def test_matrices_without_an_answer_are_named(linalg, size):
    good = np.eye(size, dtype=np.float32)
    bad = good.copy()
    bad[1, 1] = 0
    for batch, place in ((bad[None], "element 0"), (np.stack([good, good, bad]), "element 2")):
        given = norch.tensor(batch, device="cuda")
        for call, words in (
            (L.inv, "linalg.inv.*is singular"), (lambda a: L.solve(a, a), "linalg.solve.*is singular"),
            (L.cholesky, "linalg.cholesky.*not positive-definite"),
        ):  # fmt: skip
            with pytest.raises(L.LinAlgError, match=f"{words} .{place} of shape"):
                call(given)
        assert L.det(given)[-1].item() == 0
        assert L.slogdet(given)[1][-1].item() == -np.inf
    with pytest.raises(L.LinAlgError, match=rf"the matrix is singular \(shape \({size}, {size}\)\)"):
        L.inv(norch.tensor(bad, device="cuda"))
    assert not norch.isfinite(L.solve_triangular(norch.tensor(bad, device="cuda"), given[0], upper=True)).all()


def test_gradients_are_those_of_the_cpu(linalg):
    """Which norch-core's tests compare with numerical ones."""
    _, x = symmetric((3, 5, 5), "float64")
    for function in (
        L.inv, L.det, L.cholesky, lambda a: L.slogdet(a)[1], lambda a: L.solve(a, a[..., :2]), lambda a: L.qr(a)[1],
        L.eigvalsh, lambda a: L.eigh(a)[1] ** 2, lambda a: L.svd(a)[0] ** 2, L.svdvals, L.pinv,
        lambda a: L.solve_triangular(a, a[..., :2], upper=True),
    ):  # fmt: skip
        grads = []
        for device in ("cpu", "cuda"):
            a = norch.tensor(x, device=device, requires_grad=True)
            (function(a) * norch.arange(5.0, device=device)[: function(a).shape[-1]]).sum().backward()
            grads.append(a.grad)
        close(grads[1], grads[0].numpy(), 1e-9)


@pytest.mark.parametrize("shape", [(5, 6, 6), (3, 40, 40), (600, 600)], ids=str)
def test_captured_steps(linalg, shape):
    """What reads no `info` becomes a part of the program."""

    def step(a):
        return L.slogdet(a)[1] * 2 + L.qr(a)[1].sum((-1, -2))

    captured = norch.capture(step)
    for _ in range(5):
        a, _ = matrices(shape, "float32")
        assert norch.equal(captured(a), step(a))


def test_results_of_one_batch_do_not_depend_on_its_neighbours(linalg):
    a, _ = symmetric((9, 20, 20), "float32")
    for function in (L.inv, L.cholesky, lambda x: L.qr(x)[0], L.det):
        assert norch.equal(function(a)[2:4], function(a[2:4]))


def test_without_the_library_it_says_what_to_install(cuda, monkeypatch):
    backend = norch.device(cuda).backend
    a = norch.eye(11, device=cuda)
    monkeypatch.setattr(type(backend), "has_linalg", staticmethod(lambda: False))
    norch.set_cpu_fallback(False)
    with pytest.raises(norch.BackendError, match=r"linalg.inv\(\).*pip install norch-cuda\[linalg\].*set_cpu_fallback"):
        L.inv(a * 2)
