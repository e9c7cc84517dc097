"""norch.linalg against NumPy and by numerical derivatives; where it may run, and what it says where it cannot."""

from __future__ import annotations

import math

import numpy as np
import pytest

import norch
from norch.autograd import gradcheck, gradgradcheck
from norch.testing.strict import strict_device

L = norch.linalg
G = np.array([[2.0, -0.5, 0.3], [0.4, 1.5, -0.7], [0.1, 0.9, -1.2]])
POSITIVE = G @ G.T
BATCH = np.stack([G, POSITIVE])
TALL = np.arange(12.0).reshape(4, 3) ** 1.5 - 7 * np.eye(4, 3)


@pytest.fixture(autouse=True)
def on_device(request):
    """`--device cuda` runs all this there."""
    with norch.device((request.config.getoption("--device") or ["cpu"])[0]):
        yield


def leaf(array):
    return norch.tensor(array, dtype=norch.float64, requires_grad=True)


def close(got, expected, bound=1e-10):
    np.testing.assert_allclose(got.detach().cpu().numpy(), expected, bound, bound)


@pytest.mark.parametrize("ord", [None, 1, 2, -1, -2, math.inf, -math.inf, "fro", "nuc"])
def test_norms_of_matrices(ord):
    a = norch.tensor(G)
    close(L.norm(a, ord), np.linalg.norm(G, ord))
    if ord is not None:
        close(L.matrix_norm(norch.tensor(BATCH), ord), [np.linalg.norm(m, ord) for m in BATCH])
        assert L.matrix_norm(norch.tensor(BATCH), ord, (0, 1), keepdim=True).shape == (1, 1, 3)


@pytest.mark.parametrize("ord", [0, 0.5, 1, 2, 3.5, -1, math.inf, -math.inf])
def test_norms_of_vectors(ord):
    close(L.vector_norm(norch.tensor(G[0]), ord), np.linalg.norm(G[0], ord))
    close(L.norm(norch.tensor(G), ord, 1), np.linalg.norm(G, ord, 1))


def test_as_many_matrices_as_rows():
    """B is then a vector for each of the matrices of `solve`, and one matrix for all of them in what else solves."""
    matrices = np.stack([G, POSITIVE, G + POSITIVE])
    lower, upper = np.tril(matrices), np.triu(matrices)
    a, b = norch.tensor(matrices), norch.tensor(G)
    close(L.solve(a, b), np.linalg.solve(matrices, G[..., None])[..., 0])
    close(L.solve_triangular(a, b, upper=True), np.linalg.solve(upper, G))
    close(L.solve_triangular(a.mT, b.mT, upper=False, left=False).mT, np.linalg.solve(upper, G))
    close(b.triangular_solve(a, upper=True).solution, np.linalg.solve(upper, G))
    close(norch.cholesky_solve(b, a), np.linalg.solve(lower @ lower.swapaxes(-1, -2), G))
    close(L.lu_solve(*L.lu_factor(a), b), np.linalg.solve(matrices, G))


def test_solutions():
    a, b = norch.tensor(BATCH), norch.tensor(TALL[:3])
    close(L.inv(a), np.linalg.inv(BATCH))
    close(L.det(a), np.linalg.det(BATCH))
    close(L.slogdet(a).logabsdet, np.linalg.slogdet(BATCH)[1])
    close(L.solve(a, b), np.linalg.solve(BATCH, TALL[:3]))
    close(L.solve(a[0], b[:, 0]), np.linalg.solve(G, TALL[:3, 0]))
    close(L.solve(a[0], b, left=False) @ a[0], TALL[:3])
    upper, lower = np.triu(G), np.tril(G)
    close(L.solve_triangular(a[0], b, upper=True), np.linalg.solve(upper, TALL[:3]))
    close(L.solve_triangular(a[0], b, upper=False), np.linalg.solve(lower, TALL[:3]))
    close(L.solve_triangular(a[0], b, upper=False, left=False) @ norch.tensor(lower), TALL[:3])
    unit = upper - np.diag(np.diag(G)) + np.eye(3)
    close(L.solve_triangular(a[0], b, upper=True, unitriangular=True), np.linalg.solve(unit, TALL[:3]))
    close(L.solve_triangular(a, b, upper=True), np.linalg.solve(np.triu(BATCH), TALL[:3]))
    close(L.pinv(norch.tensor(TALL)), np.linalg.pinv(TALL))
    close(L.lstsq(norch.tensor(TALL), norch.ones(4, dtype=norch.float64)).solution,
          np.linalg.lstsq(TALL, np.ones(4), None)[0])  # fmt: skip
    assert L.matrix_rank(norch.tensor(np.outer(G[0], G[1]))).item() == 1
    close(L.cond(a[0]), np.linalg.cond(G))


def test_decompositions():
    close(L.cholesky(norch.tensor(POSITIVE)), np.linalg.cholesky(POSITIVE))
    q, r = L.qr(norch.tensor(TALL))
    close(q @ r, TALL)
    close(q.mT @ q, np.eye(3))
    q, r = L.qr(norch.tensor(TALL), "complete")
    assert (q.shape, r.shape) == ((4, 4), (4, 3))
    close(q @ r, TALL)
    close(L.qr(norch.tensor(TALL), "r").R, np.linalg.qr(TALL, "r"))
    u, s, vh = L.svd(norch.tensor(TALL), full_matrices=False)
    close((u * s) @ vh, TALL)
    assert L.svd(norch.tensor(TALL)).U.shape == (4, 4)
    values, vectors = L.eigh(norch.tensor(POSITIVE))
    close((vectors * values) @ vectors.mT, POSITIVE)
    close(L.eigvalsh(norch.tensor(POSITIVE)), np.linalg.eigvalsh(POSITIVE))
    close(L.svdvals(norch.tensor(TALL)), np.linalg.svd(TALL, compute_uv=False))


@pytest.mark.parametrize("shape", [(0, 0), (3, 0, 0), (0, 2, 2), (2, 3, 0)])
def test_matrices_without_elements(shape):
    a, array = norch.zeros(shape, dtype=norch.float64), np.zeros(shape)
    for got, expected in zip(L.svd(a, False), np.linalg.svd(array, False), strict=True):
        assert got.shape == expected.shape
    assert [r.shape for r in L.qr(a)] == [r.shape for r in np.linalg.qr(array)]
    if shape[-1] == shape[-2]:
        close(L.det(a), np.linalg.det(array))
        assert L.inv(a).shape == L.solve(a, a).shape == L.cholesky(a).shape == shape


def _symmetric(a):
    return a @ a.mT


DERIVATIVES = {
    "inv": (L.inv, G),
    "det": (L.det, BATCH),
    "logdet": (lambda a: L.logdet(_symmetric(a)), G),
    "slogdet": (lambda a: L.slogdet(a)[1], BATCH),
    "cholesky": (lambda a: L.cholesky(_symmetric(a)), G),
    "qr": (L.qr, TALL),
    "eigh": (lambda a: (lambda r: (r[0], r[1] ** 2))(L.eigh(_symmetric(a))), G),
    "svd": (lambda a: (lambda r: (r[0] ** 2, r[1], r[2] ** 2))(L.svd(a, False)), TALL),
    "eigh.vectors": (lambda a: L.eigh(_symmetric(a)).eigenvectors ** 2, G),
    "svd.left": (lambda a: L.svd(a, False).U ** 2, TALL),
    "svd.right": (lambda a: L.svd(a, False).Vh ** 2, TALL),
    "svd.values": (lambda a: L.svd(a).S ** 3, TALL),
    "svd.wide": (lambda a: (lambda r: (r[0] ** 2, r[1], r[2] ** 2))(L.svd(a, False)), TALL.T.copy()),
    "pinv": (L.pinv, TALL),
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives(name):
    function, array = DERIVATIVES[name]
    assert gradcheck(function, [leaf(array)])
    assert gradgradcheck(function, [leaf(array)], fast_mode=True)


@pytest.mark.parametrize("name", DERIVATIVES)
def test_products_with_jacobians(name):
    """Forwards, which differentiates the gradient by one that is 0: beside the transposed product."""
    function, array = DERIVATIVES[name]
    x, change = norch.tensor(array), norch.tensor(np.cos(np.arange(array.size)).reshape(array.shape))

    def several(a):
        found = function(a)
        return tuple(found) if isinstance(found, tuple) else (found,)

    results, changes = norch.func.jvp(several, (x,), (change,))
    for at, (result, changed) in enumerate(zip(results, changes, strict=True)):
        weights = norch.tensor(np.sin(np.arange(1, result.numel() + 1))).reshape(result.shape)
        gradient = norch.func.grad(lambda a, at=at, weights=weights: (several(a)[at] * weights).sum())(x)
        close((changed * weights).sum(), (gradient * change).sum().item())


def test_derivatives_of_solve():
    assert gradcheck(L.solve, [leaf(BATCH), leaf(TALL[:3])])
    assert gradgradcheck(L.solve, [leaf(G), leaf(TALL[:3, 0])], fast_mode=True)


@pytest.mark.parametrize("array", [BATCH, TALL, TALL.T.copy(), np.array([[0.0, 2.0], [3.0, 4.0]])], ids=len)
def test_lu(array):
    p, lower, upper = L.lu(norch.tensor(array))
    close(p @ lower @ upper, array)
    k = min(array.shape[-2:])
    assert (p.shape[-1], lower.shape[-1], upper.shape[-2]) == (array.shape[-2], k, k)
    assert norch.equal(lower, lower.tril())
    assert norch.equal(upper, upper.triu())
    assert (lower.abs() <= 1).all()
    assert set(p.flatten().tolist()) == {0.0, 1.0}
    assert (lower.diagonal(dim1=-2, dim2=-1) == 1).all()


def test_lu_solve():
    a, b = norch.tensor(BATCH), norch.tensor(TALL[:3])
    factors, pivots = L.lu_factor(a)
    assert (pivots.dtype, pivots.shape) == (norch.int32, (2, 3))
    close(L.lu_solve(factors, pivots, b), np.linalg.solve(BATCH, TALL[:3]))
    close(L.lu_solve(factors, pivots, b, adjoint=True), np.linalg.solve(BATCH.swapaxes(-1, -2), TALL[:3]))
    close(L.lu_solve(factors, pivots, b.mT, left=False) @ a, np.broadcast_to(TALL[:3].T, (2, 3, 3)))
    close(L.lu_solve(factors[0], pivots[0], a), np.linalg.solve(G, BATCH))
    for batch in ((), (2,), (2, 0)):
        nothing = norch.zeros(*batch, 0, 0), norch.zeros(*batch, 0, dtype=norch.int32)
        assert tuple(L.lu_solve(*nothing, norch.ones(*batch, 0, 4)).shape) == (*batch, 0, 4)
        assert tuple(L.lu_solve(*nothing, norch.ones(*batch, 4, 0), left=False, adjoint=True).shape) == (*batch, 4, 0)
    with pytest.raises(L.LinAlgError, match="lu_factor.*the matrix is singular"):
        L.lu_factor(norch.ones(2, 2))
    assert L.lu(norch.ones(2, 2)).U.tolist() == [[1, 1], [0, 0]]
    with pytest.raises(ValueError, match="pivot must be True"):
        L.lu(a, pivot=False)
    with pytest.raises(norch.ShapeError, match="pivots"):
        L.lu_solve(factors, pivots[0], b)


def test_derivatives_of_lu():
    assert gradcheck(lambda a: L.lu(a)[1:], [leaf(BATCH)])
    assert gradgradcheck(lambda a: L.lu(a)[1:], [leaf(G)], fast_mode=True)
    assert gradcheck(lambda a, b: L.lu_solve(*L.lu_factor(a), b), [leaf(BATCH), leaf(TALL[:3])])


@pytest.mark.parametrize("array", [TALL, TALL.T, np.stack([TALL, TALL[::-1] - 1]), np.stack([TALL.T, TALL.T[::-1]])])
def test_derivatives_of_lu_of_matrices_that_are_not_square(array):
    assert gradcheck(lambda a: L.lu(a)[1:], [leaf(array)])
    assert gradcheck(lambda a: L.lu_factor(a)[0], [leaf(array)])
    assert gradgradcheck(lambda a: L.lu(a)[1:], [leaf(array)], fast_mode=True)


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("unitriangular", [True, False])
def test_derivatives_of_solve_triangular(upper, unitriangular):
    def solved(a, b):
        return L.solve_triangular(a, b, upper=upper, unitriangular=unitriangular)

    assert gradcheck(solved, [leaf(BATCH), leaf(TALL[:3])])
    assert gradgradcheck(solved, [leaf(G), leaf(TALL[:3, :1])], fast_mode=True)


@pytest.mark.parametrize("array", [TALL, TALL.T])
def test_derivatives_of_full_svd(array):
    """Those of the vectors beyond the singular values are 0."""

    def first(a, full_matrices):
        u, s, vh = L.svd(a, full_matrices)
        return (u[..., :3] * s.sqrt()) @ vh[..., :3, :]

    a, b = leaf(array), leaf(array)
    weights = norch.tensor(np.cos(np.arange(12.0)).reshape(array.shape))
    (first(a, True) * weights).sum().backward()
    (first(b, False) * weights).sum().backward()
    close(a.grad, b.grad.cpu().numpy())
    assert gradcheck(lambda a: first(a, True), [a])
    u, _, vh = L.svd(a)
    (grad,) = norch.autograd.grad(u[:, 3:].sum() + vh[3:].sum(), a)
    close(grad, np.zeros_like(array))


def test_values_alone_have_derivatives_too():
    a = leaf(POSITIVE)
    assert gradcheck(L.svdvals, [a])
    assert gradcheck(lambda a: L.eigvalsh(_symmetric(a)), [a])


def test_dtypes_are_promoted():
    assert L.solve(norch.tensor(G), norch.ones(3)).dtype is norch.float64
    assert L.solve_triangular(norch.tensor(G).float(), norch.ones(3, 1).double(), upper=True).dtype is norch.float64


def test_derivative_of_the_determinant_of_a_singular_matrix():
    a = leaf([[1.0, 2.0], [2.0, 4.0]])
    L.det(a).backward()
    close(a.grad, [[4.0, -2.0], [-2.0, 1.0]])


def test_derivatives_of_determinants_of_which_some_are_singular():
    near = [[1.0, 2.0], [2.0, 4.0 + 1e-9]]
    a = leaf([[[1.0, 2.0], [2.0, 4.0]], [[1.0, 2.0], [3.0, 4.0]], near])
    (L.det(a) * norch.tensor([1.0, 2.0, 1.0])).sum().backward()
    close(a.grad, [[[4, -2], [-2, 1]], [[8, -6], [-4, 2]], [[4, -2], [-2, 1]]], 1e-8)
    a = leaf(near)
    L.det(a).backward()
    close(a.grad, [[4, -2], [-2, 1]], 1e-8)


def test_the_determinant_of_one_number_is_that_number():
    a = norch.tensor([[[0.1]], [[3.0]]], requires_grad=True)
    assert L.det(a).tolist() == a.flatten().tolist()
    (grad,) = norch.autograd.grad(L.det(a).sum(), a)
    assert grad.flatten().tolist() == [1, 1]


def test_products():
    parts = [norch.tensor(TALL), norch.tensor(G), norch.tensor(TALL.T.copy())]
    close(L.multi_dot(parts), TALL @ G @ TALL.T)
    close(L.multi_dot([parts[1][0], parts[1], parts[1][2]]), G[0] @ G @ G[2])
    close(L.vecdot(parts[1], parts[1][:1]), (G * G[0]).sum(1))
    with pytest.raises(norch.ShapeError, match=r"multi_dot.*\(4, 3\), \(4, 3\)"):
        L.multi_dot([parts[0], parts[0]])


@pytest.mark.parametrize(("equation", "total"), [("ii", 12), ("ij->", 36), ("ij->i", [3, 12, 21])])
def test_einsum_that_sums_integers_gives_int64(equation, total):
    found = norch.einsum(equation, norch.arange(9, dtype=norch.int8).reshape(3, 3))
    assert found.dtype is norch.int64
    assert found.tolist() == total


def test_methods_and_functions_of_norch():
    a = norch.tensor(G)
    for got, expected in ((a.inverse(), norch.inverse(a)), (a.det(), norch.det(a)), (a.pinverse(), norch.pinverse(a))):
        assert norch.equal(got, expected)
    close(a.logdet().exp(), abs(np.linalg.det(G)) if np.linalg.det(G) > 0 else np.nan)
    assert norch.slogdet(a).sign.item() == np.sign(np.linalg.det(G))
    skew = np.diag([4.0, 1.0, 1e-6])
    for cut in (1e-3, 0.5):
        for got in (norch.pinverse(norch.tensor(skew), cut), norch.tensor(skew).pinverse(rcond=cut)):
            close(got, np.linalg.pinv(skew, rcond=cut))
    close(norch.pinverse(norch.tensor(skew).float()), np.linalg.inv(skew))  # whose cutoff knows no dtype


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: L.inv(norch.ones(2, 2)), L.LinAlgError, r"linalg.inv.*\(2, 2\)"),
        (lambda: L.cholesky(-norch.eye(2)), L.LinAlgError, "linalg.cholesky"),
        (lambda: L.det(norch.ones(2, 3)), norch.ShapeError, r"square.*\(2, 3\)"),
        (lambda: L.inv(norch.ones(2, 2).half()), norch.DTypeError, "float16"),
        (lambda: L.solve(norch.eye(3), norch.ones(2, 2)), norch.ShapeError, r"\(3, 3\) and \(2, 2\)"),
        (lambda: L.qr(norch.eye(2), "full"), ValueError, "reduced"),
        (lambda: L.qr(norch.ones(3, 2, requires_grad=True), "complete"), norch.AutogradError, "reduced"),
        (lambda: L.matrix_norm(norch.eye(2), 3), ValueError, "nuc"),
        (lambda: L.norm(norch.ones(2, 2, 2), 2), norch.ShapeError, "dim given"),
    ],
)
def test_errors(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_other_devices_need_leave_to_use_the_cpu():
    a = norch.tensor(G, device=strict_device())
    assert L.norm(a).item() == pytest.approx(np.linalg.norm(G))
    with pytest.raises(norch.BackendError, match=r"linalg.inv.*set_cpu_fallback"):
        L.inv(a)
    norch.set_cpu_fallback(True)
    try:
        found = L.inv(a)
    finally:
        norch.set_cpu_fallback(False)
    assert found.device == a.device
    close(found, np.linalg.inv(G))


@pytest.mark.parametrize("shape", [(0, 0), (0, 0, 0), (2, 0, 0), (2, 0, 3), (0, 3, 3)])
def test_factors_of_matrices_without_elements(shape):
    factors, pivots = L.lu_factor(norch.zeros(shape))
    assert factors.shape == shape
    assert pivots.shape == (*shape[:-2], min(shape[-2:]))
    assert pivots.dtype is norch.int32
    assert L.lu(norch.zeros(shape)).P.shape == (*shape[:-2], shape[-2], shape[-2])


def test_old_names():
    u, s, v = norch.svd(norch.tensor(TALL))
    close((u * s) @ v.mT, TALL)
    alone = norch.svd(norch.tensor(TALL), compute_uv=False)
    close(alone.S, s.cpu().numpy())
    assert (alone.U.shape, alone.V.shape) == ((len(TALL),) * 2, (len(TALL[0]),) * 2)
    assert not alone.U.any()
    assert not alone.V.any()
    q, r = norch.qr(norch.tensor(TALL))
    close(q @ r, TALL)
    close(norch.cholesky(norch.tensor(POSITIVE), upper=True), np.linalg.cholesky(POSITIVE).T)


@pytest.mark.parametrize(
    "equation",
    [
        "bld,bln,bld->bldn",
        "ij,ji,ij->ij",
        "ab,bc,ba,cb->ac",
        "i,i,i->",
        "ij,j,ij,j->i",
        "ii,ii,ii->i",
        "...i,...i,j->...j",
    ],
)
def test_einsum_multiplies_operands_of_the_same_dims_first(equation):
    sizes, rng = dict(zip("abcdijln", (3, 4, 5, 6, 4, 4, 7, 2), strict=True)), np.random.default_rng(0)
    terms = equation.split("->")[0].split(",")
    arrays = [rng.standard_normal([sizes[c] for c in term.replace("...", "ab")]) for term in terms]
    found = norch.einsum(equation, *[norch.tensor(a) for a in arrays])
    np.testing.assert_allclose(found.cpu().numpy(), np.einsum(equation, *arrays), atol=1e-12)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bij,bjk->bki", ((3, 2, 3), (3, 3, 4))), ("ij,jk->ki", ((2, 3), (3, 4))), ("i,j->ji", ((2,), (3,))),
        ("ecm,sec->sm", ((2, 4, 2), (4, 2, 4))), ("becd,bsec->bsd", ((3, 2, 4, 5), (3, 4, 2, 4))),
    ],
)  # fmt: skip
def test_einsum_gives_rows_in_the_order_of_the_output(equation, shapes):
    operands = [norch.tensor(np.random.RandomState(i).randn(*shape)) for i, shape in enumerate(shapes)]
    found = norch.einsum(equation, *operands)
    np.testing.assert_allclose(found.numpy(), np.einsum(equation, *[x.numpy() for x in operands]), rtol=1e-12)
    assert found.view(-1).shape == (found.numel(),)


def test_einsum_broadcasts_what_has_the_same_labels_and_other_sizes():
    a, b = np.random.default_rng(0).standard_normal((2, 3, 4))
    x, y = norch.tensor(a), norch.tensor(b)
    found = norch.einsum("ij,ij,ij->ij", x, y[:1], y[:, :1])
    np.testing.assert_allclose(found.cpu().numpy(), a * b[:1] * b[:, :1], atol=1e-12)


def test_errors_have_the_words_that_programs_look_for():
    zeros = norch.zeros(2, 3, 3)
    for call in (lambda: L.inv(zeros), lambda: L.solve(zeros, zeros), lambda: norch.inverse(zeros[0])):
        with pytest.raises(L.LinAlgError, match="singular"):
            call()
    with pytest.raises(RuntimeError, match="not positive-definite"):
        L.cholesky(-norch.eye(2))


def test_the_error_of_singular_matrices_by_its_older_name() -> None:
    with pytest.raises(norch._C._LinAlgError):
        L.solve(norch.zeros(2, 2), norch.ones(2))
