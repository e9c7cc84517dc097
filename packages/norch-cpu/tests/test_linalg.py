"""The kernels of linear algebra against NumPy in float64: sizes, batches, layouts, numbers of threads, failures."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch.backend import Operand
from norch_cpu.native import native

L = norch.linalg
RNG = np.random.default_rng(5)
EPS = {"float32": 2.0**-23, "float64": 2.0**-52}
# Few and many of a batch, sizes about those of vectors and of blocks.
SHAPES = [
    *[(n, n) for n in (1, 2, 3, 4, 5, 8, 16, 17, 31, 64, 65, 130, 257)],
    *[(count, n, n) for count, n in ((1, 3), (7, 2), (20, 3), (33, 4), (30, 5), (3, 8), (9, 16), (5, 17), (2, 66))],
    (3, 2, 12, 12),
]  # fmt: skip


@pytest.fixture(autouse=True)
def several_threads():
    before = native.num_threads()
    native.set_num_threads(3)
    yield
    native.set_num_threads(before)


def tensors(x):
    """As it lies, turned over, and with gaps."""
    padded = norch.tensor(np.pad(x, [(0, 0)] * (x.ndim - 2) + [(1, 2), (2, 1)], constant_values=np.nan))
    yield norch.tensor(x)
    yield norch.tensor(np.ascontiguousarray(x.swapaxes(-1, -2))).mT
    yield padded[..., 1:-2, 2:-1]


def well(shape, dtype):
    """Matrices that are far from singular, of which rows must be exchanged."""
    n = shape[-1]
    x = RNG.standard_normal(shape) + 2 * np.sqrt(n) * np.eye(n)[RNG.permutation(n)]
    return x.astype(dtype)


def positive(shape, dtype):
    x = RNG.standard_normal(shape)
    return (x @ x.swapaxes(-1, -2) / shape[-1] + np.eye(shape[-1])).astype(dtype)


def close(found, expected, bound):
    assert tuple(found.shape) == expected.shape
    size = max(np.abs(expected).max(initial=0), 1e-300)
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=bound * size)


def restored(found, expected, bound):
    """A product of factors, beside the largest singular value of what it is to be."""
    np.testing.assert_allclose(
        found.numpy(), expected, rtol=0, atol=bound * np.linalg.norm(expected, 2, (-2, -1)).max()
    )


def test_they_are_native():
    names = "cholesky det eigh eigvalsh inv lu_factor permutation qr qr_r slogdet solve solve_triangular svd svdvals"
    assert {f"linalg_{name}" for name in names.split()} <= set(native.ops())


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_systems(shape, dtype):
    x, bound = well(shape, dtype), 50 * EPS[dtype]
    wide = x.astype(np.float64)
    signs, sizes = np.linalg.slogdet(wide)
    right = {k: RNG.standard_normal((*shape[:-1], k)).astype(dtype) for k in (1, 3, 8, 21)}
    inverse, solutions = np.linalg.inv(wide), [np.linalg.solve(wide, y) for y in right.values()]
    for a, *b in zip(tensors(x), *map(tensors, right.values()), strict=True):
        close(L.inv(a), inverse, bound)
        found = L.slogdet(a)
        close(found.sign, signs, 0)
        close(found.logabsdet, sizes, bound)
        if np.abs(sizes).max() < 80:
            ratio = L.det(a).numpy() / (signs * np.exp(sizes))
            np.testing.assert_allclose(ratio, 1, atol=bound * max(1, np.abs(sizes).max()))
        for given, expected in zip(b, solutions, strict=True):
            close(L.solve(a, given), expected, bound)


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_triangles(shape, dtype):
    x, bound = positive(shape, dtype), 50 * EPS[dtype]
    factor = np.linalg.cholesky(x.astype(np.float64))
    for a in tensors(np.where(np.tri(shape[-1]), x, np.nan).astype(dtype)):  # one triangle is read
        close(L.cholesky(a), factor, bound)
    n = shape[-1]
    lower = (np.tril(x) / n + np.eye(n)).astype(dtype)
    for upper in (False, True):
        triangle = lower.swapaxes(-1, -2) if upper else lower
        given = np.where(np.tri(n).T if upper else np.tri(n), triangle, np.nan).astype(dtype)
        for k in (1, 4, 21, 110) if n > 200 else (1, 4, 21):
            y = RNG.standard_normal((*shape[:-1], k)).astype(dtype)
            for unit in (False, True):
                wide = triangle.astype(np.float64)
                expected = np.linalg.solve(wide * (1 - np.eye(n)) + np.eye(n) if unit else wide, y)
                for a, b in zip(tensors(given), tensors(y), strict=True):
                    close(L.solve_triangular(a, b, upper=upper, unitriangular=unit), expected, bound)


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("rows", [6, 20, 21, 67])
def test_of_equal_pivots_the_first_is_taken(rows, dtype):
    for at in range(rows):
        x = np.eye(rows, 5).astype(dtype)
        x[:at, 0], x[at:, 0] = 1, -2
        assert L.lu_factor(norch.tensor(x)).pivots[0].item() == at + 1
        x[at, 0] = np.nan
        assert L.lu_factor(norch.tensor(x)).pivots[0].item() == (1 if at == 0 else at + 2 if at + 1 < rows else 1)


RECTANGLES = [
    *[(5, 3), (3, 5), (40, 7), (7, 40), (70, 33), (33, 70), (200, 100)],
    *[(6, 9, 4), (2, 3, 4, 9), (3, 1, 40), (2, 9, 1)],
]  # fmt: skip


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("shape", [*SHAPES, *RECTANGLES], ids=str)
def test_lu_factors(shape, dtype):
    x, bound = RNG.standard_normal(shape).astype(dtype), 50 * EPS[dtype]
    order = L.lu(norch.tensor(x.astype(np.float64))).P.numpy()
    for a in tensors(x):
        p, lower, upper = L.lu(a)
        close(p.double() @ lower.double() @ upper.double(), x.astype(np.float64), 10 * bound)
        assert lower.abs().max().item() <= 1
        close(p.sum(-1), np.ones(shape[:-1]), 0)
        close(p, order, 0)


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("shape", [*SHAPES, *RECTANGLES], ids=str)
def test_qr_factors(shape, dtype):
    x, bound = RNG.standard_normal(shape).astype(dtype), 50 * EPS[dtype]
    wide = x.astype(np.float64)
    factors = {mode: np.linalg.qr(wide, mode).R for mode in ("reduced", "complete")}
    for a in tensors(x):
        for mode, width in (("reduced", min(shape[-2:])), ("complete", shape[-2])):
            q, r = L.qr(a, mode)
            close(q.double() @ r.double(), wide, bound)
            close(q.double().mT @ q.double(), np.broadcast_to(np.eye(width), (*shape[:-2], width, width)), bound)
            close(r, factors[mode], 20 * bound)  # LAPACK's signs
            assert norch.equal(r, r.triu())
        close(L.qr(a, "r").R, factors["reduced"], 20 * bound)


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("shape", [(3, 3), (9, 6), (40, 40)], ids=str)
def test_qr_factors_of_any_rank_and_size(dtype, scale, shape):
    given = [np.zeros(shape), np.eye(*shape), -np.eye(*shape), np.ones(shape), np.triu(RNG.standard_normal(shape))]
    x = np.stack(given).astype(dtype) * np.array(scale, dtype)
    turned = np.linalg.qr(x[1, ::-1].astype(np.float64) / scale).R
    close(L.qr(norch.tensor(x[1, ::-1].copy())).R / scale, turned, EPS[dtype])  # LAPACK's signs for zeros, too
    q, r = L.qr(norch.tensor(x))
    close(q.double() @ (r.double() / scale), x.astype(np.float64) / scale, 50 * EPS[dtype])
    close(q.double().mT @ q.double(), np.broadcast_to(np.eye(shape[1]), (5, *shape[1:] * 2)), 50 * EPS[dtype])
    close(r[1:3] / scale, np.stack([np.eye(shape[1]), -np.eye(shape[1])]), EPS[dtype])
    if dtype == "float64":
        huge = np.diag([1e200, 1e-200, 1e300])[[1, 2, 0]]
        q, r = L.qr(norch.tensor(huge))
        close(q @ r, huge, 1e-14)


def orthonormal(vectors, bound):
    """Of the columns."""
    wide = vectors.double()
    close(wide.mT @ wide, np.broadcast_to(np.eye(wide.shape[-1]), (*wide.shape[:-2], *wide.shape[-1:] * 2)), bound)


def svd_of(a, wide, values, bound):
    u, s, vh = L.svd(a, full_matrices=False)
    close(s, values, bound)
    close(L.svdvals(a), values, bound)
    assert (s.diff(dim=-1) <= 0).all()
    restored((u.double() * s.double().unsqueeze(-2)) @ vh.double(), wide, bound)
    orthonormal(u, bound)
    orthonormal(vh.mT, bound)


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("shape", [*SHAPES, *RECTANGLES, (9, 3, 16), (2, 130, 64), (3, 64, 80)], ids=str)
def test_singular_values(shape, dtype):
    x = RNG.standard_normal(shape).astype(dtype)
    wide = x.astype(np.float64)
    values = np.linalg.svd(wide, compute_uv=False)
    for a in tensors(x):
        svd_of(a, wide, values, 50 * EPS[dtype])


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("scale", [1e-36, 1e-30, 1.0, 1e30])
@pytest.mark.parametrize("shape", [(3, 3), (2, 3), (4, 2), (9, 6), (6, 9), (40, 40), (300, 5)], ids=str)
def test_singular_vectors_of_any_rank_are_orthonormal(shape, scale, dtype):
    basis = RNG.standard_normal((2, shape[0])), RNG.standard_normal((2, shape[1]))
    given = [np.zeros(shape), np.eye(*shape), basis[0].T @ basis[1], np.ones(shape), RNG.standard_normal(shape)]
    given.append(np.where(np.arange(shape[1]) % 2 == 0, given[-1], 0))
    x = np.stack(given).astype(dtype) * np.array(scale, dtype)
    bound = 100 * EPS[dtype]
    for matrix in (x, *x):
        u, s, vh = L.svd(norch.tensor(matrix), full_matrices=False)
        wide = matrix.astype(np.float64) / scale
        close(s.double() / scale, np.linalg.svd(wide, compute_uv=False), bound)
        restored((u.double() * (s.double() / scale).unsqueeze(-2)) @ vh.double(), wide, bound)
        orthonormal(u, bound)
        orthonormal(vh.mT, bound)
    x[3, -1, 1] = np.nan
    with pytest.raises(L.LinAlgError, match="SVD did not converge .element 3 of"):
        L.svd(norch.tensor(x), full_matrices=False)


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8, 12, 16])
def test_eigenvalues(size, scale, dtype):
    x = RNG.standard_normal((11, size, size)).astype(dtype)
    x = x + x.swapaxes(-1, -2)
    x[1], x[2], x[3], x[4] = 0, np.eye(size), 1, np.diag(np.arange(size, 0, -1))
    x[5] = x[5] @ x[5].T
    x[6, 0], x[6, :, 0] = 1e-6, 1e-6
    x = (x * np.array(scale, dtype)).astype(dtype)
    bound = 50 * EPS[dtype]
    for upper in (False, True):
        keep = np.tri(size).T if upper else np.tri(size)
        for matrix in (x, *x):
            a = norch.tensor(np.where(keep, matrix, np.nan).astype(dtype))  # one triangle is read
            values, vectors = L.eigh(a, "U" if upper else "L")
            wide = matrix.astype(np.float64) / scale
            expected = np.linalg.eigvalsh(wide)
            close(values.double() / scale, expected, bound)
            close(L.eigvalsh(a, "U" if upper else "L").double() / scale, expected, bound)
            close((vectors.double() * (values.double() / scale).unsqueeze(-2)) @ vectors.double().mT, wide, bound)
            orthonormal(vectors, bound)
    if scale == 1:
        assert L.eigvalsh(norch.tensor(x))[4].tolist() == list(range(1, size + 1))
    x[7, -1, 0] = np.inf
    with pytest.raises(L.LinAlgError, match="Eigenvalues did not converge .element 7 of"):
        L.eigh(norch.tensor(x))


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("size", [9, 15, 17, 24, 33, 63, 64, 65, 100, 128])
def test_eigenvalues_alone_of_larger_matrices(size, scale, dtype):
    x = RNG.standard_normal((9, size, size))
    x = x + x.swapaxes(-1, -2)
    x[1], x[2], x[3], x[4] = 0, np.eye(size), 1, np.diag(np.arange(size, 0, -1))
    x[5] = x[5] @ x[5].T
    x[6] = np.diag(np.full(size - 1, 1.0), 1) + np.diag(np.full(size - 1, 1.0), -1)
    x[7] = np.outer(10.0 ** -np.arange(size), 10.0 ** -np.arange(size))
    x = (x * scale).astype(dtype)
    wide = x.astype(np.float64) / scale
    expected, bound = np.linalg.eigvalsh(wide), 100 * EPS[dtype]
    for upper in (False, True):
        given = np.where(np.tri(size).T if upper else np.tri(size), x, np.nan).astype(dtype)
        for a in tensors(given):
            found = L.eigvalsh(a, "U" if upper else "L")
            for got, wanted in zip(found.double() / scale, expected, strict=True):
                close(got, wanted, bound)
            assert size < 17 or norch.equal(found[3], L.eigvalsh(a[3], "U" if upper else "L"))
            assert (found[:, 1:] >= found[:, :-1]).all()
    x[7, -1, 0] = np.inf
    with pytest.raises(L.LinAlgError, match="Eigenvalues did not converge"):
        L.eigvalsh(norch.tensor(x))


def test_pivots_that_no_matrix_has():
    with pytest.raises(IndexError, match="7"):
        L.lu_solve(norch.eye(3), norch.tensor([1, 8, 3], dtype=norch.int32), norch.ones(3, 1))


@pytest.mark.parametrize("size", [2, 3, 9, 40])
@pytest.mark.parametrize("count", [1, 2, 40])
def test_matrices_without_an_answer_are_named(size, count):
    good = np.stack([np.eye(size, dtype=np.float32)] * count)
    bad = good.copy()
    bad[-1, 1, 1] = 0
    a = norch.tensor(bad)
    for call, words in (
        (L.inv, "linalg.inv.*is singular"), (lambda a: L.solve(a, a), "linalg.solve.*is singular"),
        (L.cholesky, "linalg.cholesky.*not positive-definite"),
    ):  # fmt: skip
        with pytest.raises(L.LinAlgError, match=f"{words} .element {count - 1} of shape"):
            call(a)
    assert L.det(a).tolist() == [1] * (count - 1) + [0]
    assert L.slogdet(a).logabsdet.tolist() == [0] * (count - 1) + [-np.inf]
    assert L.slogdet(a).sign.tolist() == [1] * (count - 1) + [0]
    solved = L.solve_triangular(a, norch.tensor(good), upper=True)
    assert norch.isfinite(solved).flatten(1).all(1).tolist() == [True] * (count - 1) + [False]


@pytest.mark.parametrize("size", [3, 9, 40])
def test_which_pivot_or_minor_it_is(size):
    x = np.stack([np.eye(size, dtype=np.float32)] * 5)
    for i in range(1, 4):
        x[i, i - 1, i - 1] = 0
    expected = [0, 1, 2, 3, 0]
    a = norch.tensor(x)
    for found in (L.inv_ex(a), L.solve_ex(a, a), L.lu_factor_ex(a), L.cholesky_ex(a)):
        assert found.info.tolist() == expected
    a.requires_grad_()
    found = L.inv_ex(a).inverse
    assert found.isnan().flatten(1).all(1).tolist() == [i in (1, 2, 3) for i in range(5)]
    found[0].sum().backward()
    assert a.grad.isfinite().all()
    assert (a.grad[1:] == 0).all()


@pytest.mark.parametrize("size", [3, 9, 40])
def test_nan_stays_in_its_matrix(size):
    x = np.stack([np.eye(size, dtype=np.float32)] * 30)
    x[7, -1, 0] = np.nan
    a = norch.tensor(x)
    for found in (L.det(a), L.slogdet(a).logabsdet, L.inv(a), L.solve(a, a), L.solve_triangular(a, a, upper=False)):
        bad = norch.isnan(found).reshape(30, -1).any(1)
        assert bad.tolist() == [i == 7 for i in range(30)]
    with pytest.raises(L.LinAlgError, match="element 7 of"):
        L.cholesky(a)


@pytest.mark.parametrize("shape", [(40, 3, 3), (5, 30, 30)], ids=str)
def test_results_of_one_matrix_do_not_depend_on_its_neighbours(shape):
    a = norch.tensor(positive(shape, "float32"))
    for function in (L.inv, L.cholesky, L.det, lambda x: L.solve(x, x)):
        assert norch.equal(function(a)[2:4], function(a[2:4]))
        assert norch.equal(function(a)[2:4], function(a.expand(2, *shape))[1, 2:4])


@pytest.mark.parametrize("shape", [(300, 300), (40, 5, 5), (20, 40, 40), (400, 60)], ids=str)
def test_the_number_of_threads_changes_no_bit(shape):
    x = RNG.standard_normal(shape).astype(np.float32)
    functions = [lambda a: L.lu(a).U, lambda a: L.qr(a)[0], lambda a: L.svd(a, False)[0]]
    if shape[-1] == shape[-2]:
        functions += [L.inv, L.det, lambda a: L.cholesky(a @ a.mT + 9 * norch.eye(shape[-1])), lambda a: L.solve(a, a)]
        functions += [lambda a: L.solve_triangular(a + 30 * norch.eye(shape[-1]), a, upper=True)]
    for function in functions:
        found = []
        for threads in (1, 2, 3):
            native.set_num_threads(threads)
            found.append(function(norch.tensor(x)))
        assert norch.equal(found[0], found[1])
        assert norch.equal(found[0], found[2])


def test_what_they_leave_to_core():
    def compiled(dtype, shape):
        info = Operand(norch.int32, shape[:-2], tuple(1 for _ in shape[:-2]))
        steps = tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape)))
        a = Operand(dtype, shape, steps)
        return native.compile("linalg_inv", (a, info, a), {})

    assert compiled(norch.float32, (2, 3, 3)) is not None
    assert compiled(norch.float32, (0, 3, 3)) is None
    assert compiled(norch.float16, (2, 3, 3)) is None
