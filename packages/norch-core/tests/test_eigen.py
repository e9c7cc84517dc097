"""`linalg.eig` and `eigvals`, by what eigenvalues are and by matrices that are made of known ones."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch import AutogradError
from norch.linalg import LinAlgError

TOLERANCE = {norch.float32: 2e-5, norch.float64: 1e-12}


@pytest.fixture(autouse=True)
def _on_the_host():
    """What NumPy computes; other devices may take it from there."""
    before = norch.is_cpu_fallback_allowed()
    norch.set_cpu_fallback(True)
    yield
    norch.set_cpu_fallback(before)


def complex_of(pair):
    parts = norch.view_as_real(pair).detach().cpu().numpy()
    return parts[..., 0] + 1j * parts[..., 1]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (2, 5, 5), (2, 0, 3, 3), (0, 0)])
def test_matrices_times_vectors_are_values_times_vectors(shape, dtype):
    a = np.random.default_rng(1).normal(size=shape)
    values, vectors = norch.linalg.eig(norch.tensor(a, dtype=dtype))
    assert values.dtype is norch.view_as_complex(norch.zeros(2, dtype=dtype)).dtype
    assert tuple(values.shape) == shape[:-1]
    assert tuple(vectors.shape) == shape
    w, v = complex_of(values), complex_of(vectors)
    np.testing.assert_allclose(a @ v, v * w[..., None, :], atol=TOLERANCE[dtype])
    np.testing.assert_allclose(np.linalg.norm(v, axis=-2), 1, atol=TOLERANCE[dtype])
    alone = complex_of(norch.linalg.eigvals(norch.tensor(a, dtype=dtype)))
    np.testing.assert_allclose(np.sort_complex(alone), np.sort_complex(w), atol=TOLERANCE[dtype])


def test_the_values_of_a_turn_and_of_a_companion():
    turn = norch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=norch.float64)
    assert sorted(complex_of(norch.linalg.eigvals(turn)), key=lambda z: z.imag) == [-1j, 1j]
    companion = norch.tensor([[6.0, -11.0, 6.0], [1, 0, 0], [0, 1, 0]], dtype=norch.float64)
    np.testing.assert_allclose(sorted(complex_of(norch.linalg.eigvals(companion)).real), [1, 2, 3], rtol=1e-12)


def a_leaf(n=4):
    a = np.random.default_rng(n).normal(size=(n, n))
    return norch.tensor(a, dtype=norch.float64, requires_grad=True)


def test_the_gradient_of_sums_of_powers_is_that_of_traces():
    """The sum of the cubes of the values is the trace of A**3, with gradient 3 (A**2).T; their sum has the identity."""
    a = a_leaf()
    values = norch.linalg.eigvals(a)
    (values * values * values).real.sum().backward()
    np.testing.assert_allclose(a.grad.cpu().numpy(), 3 * np.linalg.matrix_power(a.detach().cpu().numpy(), 2).T)
    one = norch.eye(3, dtype=norch.float64).requires_grad_()  # all its values are equal
    norch.linalg.eigvals(one).real.sum().backward()
    np.testing.assert_array_equal(one.grad.cpu().numpy(), np.eye(3))


def squares_of_parts(a):
    _, vectors = norch.linalg.eig(a)
    weights = norch.arange(float(a.numel()), dtype=a.dtype, device=a.device).reshape(a.shape)
    return (vectors.real.square() + vectors.imag.square()) * weights


def test_gradients_by_differences():
    for function in (
        squares_of_parts,
        lambda a: norch.linalg.eigvals(a).imag.abs(),
        lambda a: norch.linalg.eig(a)[0].real,
    ):
        assert norch.autograd.gradcheck(function, (a_leaf(),))
        assert norch.autograd.gradgradcheck(lambda a, f=function: f(a).sin(), (a_leaf(3),), fast_mode=True)


def test_what_depends_on_the_phase_has_no_gradient():
    turn = norch.tensor([[0.0, -1.0], [2.0, 0.0]], dtype=norch.float64, requires_grad=True)
    with pytest.raises(AutogradError, match="phase"):
        norch.linalg.eig(turn)[1].imag.sum().backward()


def test_what_has_no_answer():
    with pytest.raises(norch.ShapeError, match="square"):
        norch.linalg.eig(norch.ones(2, 3))
    with pytest.raises(norch.DTypeError, match="float32 or float64"):
        norch.linalg.eigvals(norch.ones(2, 2, dtype=norch.int64))
    with pytest.raises(LinAlgError):
        norch.linalg.eig(norch.full((2, 2), float("nan")))
    jordan = norch.tensor([[1.0, 1.0], [0.0, 1.0]], dtype=norch.float64, requires_grad=True)
    values, _ = norch.linalg.eig(jordan)
    assert values.real.tolist() == [1, 1]


def test_some_eigenvalues_of_a_pair_of_matrices():
    square = norch.randn(5, 5, dtype=norch.float64)
    A, B = square + square.mT, square @ square.mT + norch.eye(5, dtype=norch.float64)
    values, vectors = norch.lobpcg(A, 2)
    assert norch.allclose(values, norch.linalg.eigvalsh(A).flip(-1)[:2])
    assert norch.allclose(A @ vectors, vectors * values)
    values, vectors = norch.lobpcg(A, B=B, X=norch.ones(5, 3), largest=False)
    assert vectors.shape == (5, 3)
    assert values.tolist() == sorted(values.tolist())
    assert norch.allclose(A @ vectors, B @ vectors * values)
