"""Decompositions of complex matrices, beside NumPy's, and their derivatives, beside differences."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch.autograd import gradcheck, gradgradcheck

L = norch.linalg
RNG = np.random.default_rng(5)
SHAPES = [(3, 3), (4, 2), (2, 4), (2, 4, 3)]


def parts(*shape):
    return norch.tensor(RNG.standard_normal((*shape, 2)))


def matrix(*shape):
    return norch.view_as_complex(parts(*shape))


def close(found, expected):
    np.testing.assert_allclose(found.detach().numpy(), expected, 1e-10, 1e-10)


def hermitian(z):
    return z @ z.mH + z + z.mH


def check(f, *shape, twice=True):
    """`f`, of complex numbers, by differences in their real and imaginary parts."""

    def of_parts(x):
        found = f(norch.view_as_complex(x))
        return found if isinstance(found, norch.Tensor) else norch.view_as_real(found)

    x = parts(*shape).requires_grad_()
    assert gradcheck(of_parts, (x,))
    if twice:
        assert gradgradcheck(of_parts, (x,), fast_mode=True)


@pytest.mark.parametrize("shape", SHAPES)
def test_singular_values_and_vectors(shape):
    a = matrix(*shape)
    for full in (False, True):
        u, s, vh = L.svd(a, full)
        k = min(shape[-2:])
        close(u[..., :k] * s.unsqueeze(-2) @ vh[..., :k, :], a.numpy())
        close(u.mH @ u, np.broadcast_to(np.eye(u.shape[-1]), (u.mH @ u).shape))
    close(L.svdvals(a), np.linalg.svd(a.numpy(), compute_uv=False))
    close(L.matrix_norm(a, 2), np.linalg.norm(a.numpy(), 2, (-2, -1)))
    close(L.matrix_norm(a, "nuc"), np.linalg.norm(a.numpy(), "nuc", (-2, -1)))
    close(L.matrix_norm(a, 1, keepdim=True), np.linalg.norm(a.numpy(), 1, (-2, -1), keepdims=True))
    close(L.cond(a), np.linalg.cond(a.numpy()))
    assert L.matrix_rank(a).tolist() == np.linalg.matrix_rank(a.numpy()).tolist()
    u, s, v = norch.svd(a)
    close(u * s.unsqueeze(-2) @ v.mH, a.numpy())


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_derivatives_by_svd(shape, full):
    def by_parts(a):
        u, s, vh = L.svd(a, full_matrices=full)
        u, vh = u[..., : s.shape[-1]], vh[..., : s.shape[-1], :]
        return norch.cat([norch.view_as_real(u * s.sqrt().unsqueeze(-2) @ vh).flatten(), (u @ u.mH).imag.flatten()])

    check(by_parts, *shape, twice=False)
    check(L.svdvals, *shape)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
def test_qr(shape, mode):
    a = matrix(*shape)
    q, r = L.qr(a, mode)
    if mode != "r":
        close(q @ r, a.numpy())
        close(q.mH @ q, np.broadcast_to(np.eye(q.shape[-1]), (q.mH @ q).shape))
    close(r, np.triu(r.numpy()))
    if mode == "reduced":
        check(lambda z: L.qr(z)[0], *shape)
        check(lambda z: L.qr(z)[1], *shape)


def test_eigenvalues_of_hermitian_matrices():
    a = hermitian(matrix(2, 3, 3))
    for triangle in ("L", "U"):
        values, vectors = L.eigh(a, triangle)
        close(vectors * values.unsqueeze(-2) @ vectors.mH, a.numpy())
        close(L.eigvalsh(a, triangle), np.linalg.eigvalsh(a.numpy()))
    check(lambda z: L.eigvalsh(hermitian(z)), 3, 3)

    def vectors_but_for_phases(z):
        values, vectors = L.eigh(hermitian(z))
        return vectors * values.sin().unsqueeze(-2) @ vectors.mH

    check(vectors_but_for_phases, 3, 3)


def test_eigenvalues_of_other_matrices():
    a = matrix(2, 3, 3)
    values, vectors = L.eig(a)
    close(a @ vectors, (vectors * values.unsqueeze(-2)).numpy())
    check(lambda z: L.eigvals(z), 3, 3)

    def of_first_element_1(z):
        vectors = L.eig(z).eigenvectors
        return vectors / vectors[:1]

    check(of_first_element_1, 3, 3)


def test_determinants_inverses_and_systems():
    a, b = matrix(2, 3, 3), matrix(2, 3, 2)
    close(L.det(a), np.linalg.det(a.numpy()))
    sign, log = L.slogdet(a)
    close(sign * log.exp(), np.linalg.det(a.numpy()))
    close(norch.logdet(a).exp(), np.linalg.det(a.numpy()))
    close(L.pinv(b), np.linalg.pinv(b.numpy()))
    close(L.lstsq(b, b[..., :1]).solution, np.linalg.pinv(b.numpy()) @ b.numpy()[..., :1])
    close(L.solve_triangular(a, b, upper=True), np.linalg.solve(np.triu(a.numpy()), b.numpy()))
    lower = np.tril(a.numpy(), -1) + np.eye(3)
    close(L.solve_triangular(a, b, upper=False, unitriangular=True), np.linalg.solve(lower, b.numpy()))
    factor = L.cholesky(hermitian(a) + 9 * norch.eye(3, dtype=norch.float64))
    close(factor @ factor.mH, (hermitian(a) + 9 * norch.eye(3, dtype=norch.float64)).numpy())
    close(L.matrix_exp(a * 0.0), np.broadcast_to(np.eye(3), (2, 3, 3)))
    check(L.det, 3, 3)
    check(lambda z: L.slogdet(z)[0], 3, 3)
    check(lambda z: L.slogdet(z)[1], 3, 3)
    check(L.pinv, 3, 2)
    check(L.pinv, 2, 3)
    check(lambda z: L.cholesky(z @ z.mH + norch.eye(3, dtype=norch.float64)), 3, 3)
    check(norch.matrix_exp, 3, 3)


def test_what_depends_on_phases_has_no_gradient():
    a = matrix(3, 3).requires_grad_()
    for loss in (lambda: L.svd(a).U.imag.sum(), lambda: L.eigh(hermitian(a)).eigenvectors.imag.sum()):
        with pytest.raises(norch.AutogradError, match="phase of vectors"):
            loss().backward()
    with pytest.raises(norch.ShapeError, match="expected square matrices"):
        L.eigh(matrix(2, 3))
    with pytest.raises(norch.DTypeError, match="complex64 or complex128"):
        L.svd(matrix(2, 3).to(norch.complex32))
    with pytest.raises(ValueError, match="UPLO"):
        L.eigh(matrix(3, 3), "X")


def test_gradients_by_complex_inputs():
    z, w = matrix(3).requires_grad_(), norch.ones(3, dtype=norch.float64, requires_grad=True)
    found = norch.autograd.grad((z.abs() ** 2 * w).sum(), (z, w), create_graph=True)
    close(found[0], 2 * z.detach().numpy())
    assert found[0].dtype is norch.complex128
    (again,) = norch.autograd.grad((found[0].abs() ** 2).sum(), z)
    close(again, 8 * z.detach().numpy())
    norch.autograd.backward([z * 2], [norch.view_as_complex(norch.ones(3, 2, dtype=norch.float64))])
    close(z.grad, np.full(3, 2 + 2j))
    assert norch.autograd.grad(w.sum(), (z, w), allow_unused=True)[0] is None


def test_elements_side_by_side():
    z = matrix(2, 3)
    assert z.view(norch.float64).shape == (2, 6)
    assert z.view(norch.float64).view(norch.complex128).tolist() == z.tolist()
    assert z.view(dtype=norch.uint8).view(norch.complex128).tolist() == z.tolist()
    assert z.view(norch.complex128) is z
    assert norch.frombuffer(bytearray(z.numpy().tobytes()), dtype=norch.complex128).tolist() == z.flatten().tolist()
    with pytest.raises(norch.ShapeError, match="even size"):
        norch.ones(3).view(norch.complex64)
    assert norch.full((2,), 1j).tolist() == [1j, 1j]
    with pytest.raises(norch.DTypeError, match="no number of"):
        norch.full((2,), 1j, dtype=norch.float32)


def test_layers_and_lists():
    z, w, b = matrix(2, 4, 6), matrix(3, 6), matrix(3)
    close(norch.linear(z, w, b), z.numpy() @ w.numpy().T + b.numpy())
    found = norch.conv1d(z, matrix(5, 4, 3), matrix(5), padding=1)
    assert found.shape == (2, 5, 6)
    k = matrix(1, 4, 3)
    row = sum(np.convolve(z.numpy()[0, i], k.numpy()[0, i, ::-1], "valid") for i in range(4))
    close(norch.conv1d(z, k)[0, 0], row)
    close(norch.cumprod(b, 0), np.cumprod(b.numpy()))
    integral = np.trapezoid if hasattr(np, "trapezoid") else np.trapz
    close(norch.trapezoid(b), integral(b.numpy()))
    y = matrix(3, 4, 6)
    for dim in (0, 1, -1, -3):
        at = np.cumsum(np.arange(1.0, y.shape[dim] + 1))
        close(norch.trapezoid(y, norch.tensor(at), dim=dim), integral(y.numpy(), at, axis=dim))
    close(norch.block_diag(w, w)[3:, 6:], w.numpy())
    close(norch.meshgrid(b, b, indexing="ij")[0][:, 0], b.numpy())
    close(norch.cartesian_prod(b, b)[:, 1], np.tile(b.numpy(), 3))
    assert norch.dropout(b, 1.0).tolist() == [0, 0, 0]
    close(norch.dropout(b, 0.5, False), b.numpy())


@pytest.mark.parametrize("upper", [False, True])
def test_systems_by_cholesky_factors(upper):
    a, b = hermitian(matrix(3, 3)) + 9 * norch.eye(3).double(), matrix(3, 2)
    factor = L.cholesky(a, upper=upper)
    close(norch.cholesky_solve(b, factor, upper), np.linalg.solve(a.numpy(), b.numpy()))
    close(norch.cholesky_inverse(factor, upper), np.linalg.inv(a.numpy()))


def test_systems_from_the_right_and_of_tensors():
    a, b = matrix(2, 3, 3), matrix(2, 4, 3)
    close(L.solve(a, b, left=False) @ a, b.numpy())
    t = matrix(2, 3, 6)
    close(norch.tensordot(t, L.tensorsolve(t, b[0, :2]), 1), b[0, :2].numpy())
    close(L.tensorinv(t, ind=2), np.linalg.tensorinv(t.numpy(), 2))
    with pytest.raises(norch.ShapeError, match="ind must be from 1 to 3"):
        L.tensorinv(t, ind=0)
    with pytest.raises(norch.ShapeError, match="do not match"):
        L.tensorsolve(t, b)
    x = matrix(3)
    close(L.vander(x, N=4), np.vander(x.numpy(), 4, increasing=True))
    check(lambda a: L.tensorinv(a, ind=2), 2, 2, 4, twice=False)


def test_pseudo_inverses_with_tolerances():
    a = matrix(4, 3)
    small = a * norch.tensor([1.0, 1.0, 1e-5]).double()
    for tolerance in ({"rtol": 1e-3}, {"rtol": norch.tensor(1e-3).double()}, {"atol": 1e-3}):
        close(L.pinv(small, **tolerance), np.linalg.pinv(small.numpy(), 1e-3))
        assert L.matrix_rank(small, **tolerance).item() == 2
    lower = matrix(3, 3)
    whole = lower.tril(-1) + lower.tril(-1).mH + lower.real.diagonal().diag()
    close(L.pinv(lower, hermitian=True), np.linalg.pinv(whole.numpy()))
    assert L.matrix_rank(lower - lower.real.diagonal().diag() - lower.tril(-1), hermitian=True).item() == 0
    check(lambda a: L.pinv(a, atol=1e-9), 4, 3)


def test_least_squares_has_residuals():
    a, b = matrix(5, 3), matrix(5, 2)
    solution, residuals, rank, values = L.lstsq(a, b)
    expected = np.linalg.lstsq(a.numpy(), b.numpy(), rcond=None)
    for found, other in zip((solution, residuals, values), (expected[0], expected[1], expected[3]), strict=True):
        close(found, other)
    assert rank.item() == 3


def test_products_with_jacobians():
    """Forwards, beside the transposed product."""
    x, change = parts(3, 3), parts(3, 3)
    for function in (
        lambda z: L.svd(z).U.abs(),
        lambda z: L.svd(z).Vh.abs(),
        lambda z: L.eigh(z @ z.mH).eigenvectors.abs(),
    ):
        of_parts = lambda p, function=function: function(norch.view_as_complex(p))  # noqa: E731
        result, changed = norch.func.jvp(of_parts, (x,), (change,))
        weights = norch.arange(9.0).double().reshape(3, 3).cos()
        gradient = norch.func.grad(lambda p, f=of_parts, w=weights: (f(p) * w).sum())(x)
        close((changed * weights).sum(), (gradient * change).sum().numpy())
