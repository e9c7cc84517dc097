"""Functions of complex numbers, against NumPy's."""

from __future__ import annotations

from operator import attrgetter

import numpy as np
import pytest

import norch
from norch.testing.gradcheck import gradcheck

RNG = np.random.default_rng(11)
NA = RNG.standard_normal((4, 4)) + 1j * RNG.standard_normal((4, 4))
NB = RNG.standard_normal((4, 4)) + 1j * RNG.standard_normal((4, 4))
NX = np.abs(RNG.standard_normal((4, 4))) + 0.1
A, B, X = norch.tensor(NA), norch.tensor(NB), norch.tensor(NX)

ELEMENTWISE = {
    name: (getattr(np, name), name)
    for name in ("log", "log2", "log10", "sqrt", "square", "sin", "cos", "tan", "sinh", "cosh", "tanh", "reciprocal")
} | {
    "sgn": (lambda z: z / np.abs(z), "sgn"),
    "rsqrt": (lambda z: 1 / np.sqrt(z), "rsqrt"),
    "sigmoid": (lambda z: 1 / (1 + np.exp(-z)), "sigmoid"),
}  # fmt: skip


@pytest.mark.parametrize(("expected", "name"), ELEMENTWISE.values(), ids=ELEMENTWISE)
def test_elementwise(expected, name):
    np.testing.assert_allclose(getattr(A, name)().numpy(), expected(NA), 1e-12)
    np.testing.assert_allclose(getattr(norch, name)(A).numpy(), expected(NA), 1e-12)
    parts = norch.tensor(np.stack([NA.real, NA.imag], -1)[:2, :2], requires_grad=True)
    assert gradcheck(lambda p: norch.view_as_real(getattr(norch.view_as_complex(p), name)()), (parts,))


@pytest.mark.parametrize("z", [4.0, -4.0, 2j, -2j, 0j, -3 + 4j, complex(-4, -0.0), 1e300 * (1 + 1j), 1e-300j])
def test_the_root_is_numpys_at_the_edges(z):
    np.testing.assert_allclose(
        norch.tensor([complex(z)], dtype=norch.cdouble).sqrt().numpy(), np.sqrt([complex(z)]), 1e-14
    )


@pytest.mark.parametrize("exponent", [0, 1, 2, 5, -1, -3, 2.0, 0.5, -1.5, 1 + 2j])
def test_powers(exponent):
    np.testing.assert_allclose((A**exponent).numpy(), NA**exponent, 1e-12)
    np.testing.assert_allclose(norch.pow(A, exponent).numpy(), NA**exponent, 1e-12)


def test_the_zeroth_power_is_one_of_anything():
    np.testing.assert_array_equal((norch.tensor([complex(np.inf, np.nan), 0j]) ** 0).numpy(), [1, 1])


def test_powers_of_other_bases():
    np.testing.assert_allclose((2**A).numpy(), 2**NA, 1e-12)
    np.testing.assert_allclose((A**B).numpy(), NA**NB, 1e-11)
    np.testing.assert_allclose(norch.pow(X, A).numpy(), NX**NA, 1e-12)


def test_comparisons():
    same = A + (B - A) * (X > 0.5)
    expected = np.where(NX > 0.5, NB, NA) == NA
    np.testing.assert_array_equal((A == A + 0).numpy(), np.ones((4, 4), bool))
    np.testing.assert_array_equal(same.isclose(A).numpy(), expected)
    np.testing.assert_array_equal((norch.tensor([1j, 2.0]) != 1j).numpy(), [False, True])
    np.testing.assert_array_equal(
        norch.eq(norch.tensor([1 + 0j, 1 + 1j]), norch.tensor([1.0, 1.0])).numpy(), [True, False]
    )
    assert norch.allclose(A, A + 1e-12)
    assert not norch.allclose(A, B)
    assert norch.equal(A, A.clone())
    assert not norch.equal(A, A[:2])
    odd = norch.tensor([complex(1, np.nan), complex(np.inf, 0), 0j])
    for name, found in (("isnan", [1, 0, 0]), ("isinf", [0, 1, 0]), ("isfinite", [0, 0, 1]), ("bool", [1, 1, 0])):
        assert getattr(odd, name)().tolist() == [bool(v) for v in found], name
    assert A.any()
    assert not norch.zeros(2, dtype=norch.cfloat).any()
    missing = norch.tensor([complex(np.nan, 0)])
    assert norch.isclose(missing, norch.tensor([np.nan]).double(), equal_nan=True).item()
    assert not norch.isclose(missing, missing).item()
    assert {A: 1}[A] == 1  # hashed by identity, as tensors are


def test_reductions():
    for found, expected in (
        (A.cumsum(0), NA.cumsum(0)), (norch.cumsum(A, 1), NA.cumsum(1)), (A.prod(), NA.prod()), (A.prod(1), NA.prod(1)),
        (A.prod(0, keepdim=True), NA.prod(0, keepdims=True)), (A.trace(), NA.trace()), (A.diff(), np.diff(NA)),
        (A.var(0), NA.var(0, ddof=1)), (norch.std(A), NA.std(ddof=1)), (A.norm(), np.linalg.norm(NA)),
        (norch.linalg.vector_norm(A, 1, 0), np.abs(NA).sum(0)), (norch.linalg.norm(A), np.linalg.norm(NA)),
        (A.norm(1, 0), np.abs(NA).sum(0)), (A.count_nonzero(), 16),
    ):  # fmt: skip
        np.testing.assert_allclose(found.numpy(), expected, 1e-12)
    np.testing.assert_allclose(norch.linalg.norm(A, 2).item(), np.linalg.norm(NA, 2))


def test_reductions_in_another_dtype():
    values = np.array([[1j, 1 + 1j, 2 + 1j], [3 + 1j, 4 + 1j, 5 + 1j]], dtype=np.complex64)
    z = norch.from_numpy(values)
    for name in ("sum", "mean", "prod", "cumsum", "cumprod"):
        found = getattr(norch, name)(z, 0, dtype=norch.complex128)
        assert found.dtype == norch.complex128
        assert np.array_equal(found.numpy(), getattr(np, name)(values, 0, dtype=complex))
        assert norch.equal(getattr(z, name)(0, dtype=norch.complex128), found)
    assert z.prod(dtype=norch.complex128).item() == -190 - 90j
    with pytest.warns(UserWarning, match="imaginary"):
        assert [getattr(norch, name)(z, 1, dtype=norch.float32).tolist() for name in ("sum", "prod")] == [
            [3.0, 12.0],
            [0.0, 60.0],
        ]


def test_norms_of_a_number_are_of_the_elements():
    size = np.abs(NA)
    for found, expected in (
        (A.norm(2), np.sqrt((size**2).sum())), (A.norm(1), size.sum()), (A.norm(3), (size**3).sum() ** (1 / 3)),
        (A.norm(0), 16.0), (A.norm(np.inf), size.max()), (norch.dist(A, B), np.sqrt((np.abs(NA - NB) ** 2).sum())),
        (A.norm("nuc"), np.linalg.svd(NA)[1].sum()), (A.norm(1, (0, 1)), size.sum()),
        (norch.linalg.norm(A, 1), np.linalg.norm(NA, 1)), (norch.linalg.norm(A, -2), np.linalg.norm(NA, -2)),
    ):  # fmt: skip
        np.testing.assert_allclose(found.numpy(), expected, 1e-12)


def test_statistics_of_rows():
    variance, mean = norch.var_mean(A, 0)
    np.testing.assert_allclose(variance.numpy(), NA.var(0, ddof=1), 1e-12)
    np.testing.assert_allclose(mean.numpy(), NA.mean(0), 1e-12)
    np.testing.assert_allclose(norch.cov(A).numpy(), np.cov(NA), 1e-12)
    np.testing.assert_allclose(norch.corrcoef(A).numpy(), np.corrcoef(NA), 1e-12)
    assert norch.cov(A[0]).shape == ()


def test_logic_is_elementwise():
    z = norch.tensor([0j, 0j, 2j, 1 + 0j])
    other = norch.tensor([0j, 1j, 0j, 1j])
    assert norch.logical_and(z, other).tolist() == [False, False, False, True]
    assert norch.logical_or(z, other).tolist() == [False, True, True, True]
    assert norch.logical_xor(z, other).tolist() == [False, True, True, False]
    assert bool(z[2])
    assert not bool(z[0])
    with pytest.raises(norch.ShapeError, match="ambiguous"):
        bool(z)


def test_losses_and_vectors():
    size = np.abs(NA - NB)
    for reduction, expected in (("mean", size.mean()), ("sum", size.sum()), ("none", size)):
        np.testing.assert_allclose(norch.ops.l1_loss(A, B, reduction).numpy(), expected, 1e-12)
    np.testing.assert_allclose(norch.ops.l1_loss(A, X).item(), np.abs(NA - NX).mean(), 1e-12)
    lengths = np.linalg.norm(NA, axis=1, keepdims=True)
    np.testing.assert_allclose(norch.ops.normalize(A).numpy(), NA / lengths, 1e-12)
    np.testing.assert_allclose(norch.linalg.vecdot(A, B).numpy(), (NA.conj() * NB).sum(-1), 1e-12)
    np.testing.assert_allclose(norch.linalg.cross(A[:, :3], B[:, :3]).numpy(), np.cross(NA[:, :3], NB[:, :3]), 1e-12)
    np.testing.assert_allclose(norch.gradient(A, dim=0)[0].numpy(), np.gradient(NA, axis=0), 1e-12)


def test_a_single_number_has_no_dims_to_split():
    z = norch.tensor(1 + 2j)
    assert norch.cumprod(z, 0).item() == 1 + 2j
    assert norch.prod(z, 0).item() == 1 + 2j
    for wrong in (z.unbind, lambda: z.select(0, 0), lambda: z.chunk(2), lambda: z.narrow(0, 0, 1)):
        with pytest.raises(norch.ShapeError, match="at least one dim"):
            wrong()
    with pytest.raises(norch.ShapeError, match="pairs along the last dim"):
        norch.view_as_complex(norch.ones(3, 2)) * type(z)(norch.tensor(1.0))


def test_dtypes_that_complex_numbers_are_promoted_to():
    assert norch.promote_types(norch.complex64, norch.float64) is norch.complex128
    assert norch.promote_types(norch.int64, norch.complex64) is norch.complex64
    assert norch.can_cast(norch.float32, norch.complex64)
    assert not norch.can_cast(norch.complex64, norch.float32)


def test_products():
    for found, expected in (
        (A @ B, NA @ NB), (A @ X, NA @ NX), (X @ A, NX @ NA), (norch.mm(A, B), NA @ NB), (A.mv(B[0]), NA @ NB[0]),
        (norch.bmm(A[None], B[None]), (NA @ NB)[None]), (norch.dot(A[0], B[0]), NA[0] @ NB[0]),
        (norch.vdot(A[0], B[0]), np.vdot(NA[0], NB[0])), (norch.outer(A[0], B[0]), np.outer(NA[0], NB[0])),
        (norch.kron(A, B), np.kron(NA, NB)), (norch.inner(A, B), np.inner(NA, NB)),
        (norch.einsum("ij,jk,kl->il", A, B, X), NA @ NB @ NX), (norch.einsum("ij,jk,kl->il", A, B, A), NA @ NB @ NA),
        (norch.linalg.inv(A), np.linalg.inv(NA)), (norch.linalg.solve(A, B), np.linalg.solve(NA, NB)),
        (norch.linalg.solve(A, B[0]), np.linalg.solve(NA, NB[0])), (norch.linalg.solve(A, X), np.linalg.solve(NA, NX)),
    ):  # fmt: skip
        np.testing.assert_allclose(found.numpy(), expected, 1e-10)


def test_a_wrong_equation_is_told_as_it_was_given():
    with pytest.raises(norch.ShapeError, match="'i,ij->j': term 'ij' does not fit"):
        norch.einsum("i,ij->j", A[0], B[0])


def test_elements():
    index, mask = norch.tensor([[0, 1], [2, 0], [3, 3], [1, 1]]), X > 0.5
    for found, expected in (
        (A.T, NA.T), (A.mT, NA.T), (A.mH, NA.conj().T), (A.H, NA.conj().T), (A.adjoint(), NA.conj().T), (+A, NA),
        (A.gather(1, index), np.take_along_axis(NA, index.numpy(), 1)), (A.diagonal(), NA.diagonal()),
        (A.masked_fill(mask, 1j), np.where(mask.numpy(), 1j, NA)), (A.repeat_interleave(2, 0), NA.repeat(2, 0)),
        (norch.hstack([A, B]), np.hstack([NA, NB])),
        (norch.broadcast_tensors(A[0], X)[0], np.broadcast_to(NA[0], (4, 4))),
        (X[:1].cdouble().expand_as(A), np.broadcast_to(NX[:1], (4, 4))), (A.conj_physical(), NA.conj()),
        (abs(A), np.abs(NA)), (A.cfloat(), NA.astype(np.complex64)), (A.type(norch.cfloat), NA.astype(np.complex64)),
        (X.cfloat(memory_format=norch.contiguous_format), NX.astype(np.complex64)), (X.clone().conj_physical_(), NX),
        (X.type(norch.cdouble), NX + 0j), (A.new_zeros(2), np.zeros(2)), (A.double(), NA.real),
    ):  # fmt: skip
        np.testing.assert_allclose(found.numpy(), expected, 1e-12)
    for parts, expected in (
        (A.chunk(2, 1), np.split(NA, 2, 1)),
        (norch.unbind(A), NA),
        (A.split([1, 3]), np.split(NA, [1])),
    ):
        assert len(parts) == len(expected)
        for found, part in zip(parts, expected, strict=True):
            np.testing.assert_array_equal(found.numpy(), part)


def test_arrays_and_numbers_of_numpy():
    mask, number = np.arange(4.0), np.complex64(2 - 1j)
    for found, expected in (
        (A * mask, NA * mask), (mask * A, mask * NA), (A / (mask + 1), NA / (mask + 1)), (A + NB, NA + NB),
        (NB - A, NB - NA), (A * number, NA * number), (number * A, number * NA), (A - np.float32(2), NA - 2),
    ):  # fmt: skip
        np.testing.assert_allclose(found.numpy(), expected, 1e-12)


def test_written_in_place():
    z = norch.zeros(3, dtype=norch.cdouble)
    same = z
    z += 1j
    z *= norch.tensor([1.0, 2.0, 3.0]).double()
    assert same is z
    np.testing.assert_array_equal(z.numpy(), [1j, 2j, 3j])
    z[:2].copy_(norch.tensor([5.0, 6.0]).double())
    np.testing.assert_array_equal(z.numpy(), [5, 6, 3j])
    np.testing.assert_array_equal(z.fill_(2 - 1j).numpy(), [2 - 1j] * 3)
    np.testing.assert_array_equal(z.zero_().numpy(), [0] * 3)
    norch.manual_seed(0)
    drawn = norch.zeros(20_000, dtype=norch.cdouble).normal_(1j, 2.0)
    assert abs(drawn.std().item() - 2) < 0.05
    assert abs(drawn.mean().item() - 1j) < 0.05


def test_gradients_are_those_of_the_parts():
    """As PyTorch's: of a real loss, d/dx + i d/dy. Of |z|**2 that is 2 z."""
    z = A.clone().requires_grad_()
    assert z.is_leaf
    assert z.grad is None
    (z.abs() ** 2).sum().backward()
    np.testing.assert_allclose(z.grad.numpy(), 2 * NA, 1e-12)
    z.grad = None
    (z * B).backward(norch.ones_like(A))
    np.testing.assert_allclose(z.grad.numpy(), NB.conj(), 1e-12)
    assert (z * 2).grad_fn is not None


def test_requires_grad_can_be_set():
    z = A.clone()
    z.requires_grad = True
    (z * z.conj()).real.sum().backward()
    assert z.requires_grad
    np.testing.assert_allclose(z.grad.numpy(), 2 * NA, rtol=1e-6)


I, HALF, DOUBLE = norch.tensor([1j]), norch.ones(2, dtype=norch.float16), norch.ones(2, dtype=norch.float64)


@pytest.mark.parametrize(
    ("operands", "expected"),
    [
        ((norch.ones(2), 1j), norch.complex64), ((DOUBLE, 1j), norch.complex128), ((HALF, 1j), norch.complex32),
        ((norch.ones(2, dtype=norch.int64), 1j), norch.complex64), ((1, 1j), norch.complex64),
        ((DOUBLE, I), norch.complex128), ((DOUBLE[0], I), norch.complex64), ((DOUBLE, I[0]), norch.complex128),
        ((I, 2.0), norch.complex64), ((I, norch.tensor([1j], dtype=norch.complex128)), norch.complex128),
    ],
)  # fmt: skip
def test_result_type_of_complex_numbers(operands, expected):
    assert norch.result_type(*operands) is expected


@pytest.mark.parametrize("size", [0, 2])
def test_results_are_written_into_complex_numbers(size):
    z, n = norch.tensor([1 + 2j, 3 - 1j]), np.array([1 + 2j, 3 - 1j])
    r = norch.tensor([1.0, 2.0])
    eye, pair = np.diag(n).astype(np.complex64), np.stack([n, n])
    calls = [
        (lambda out: norch.add(z, z, out=out), n + n), (lambda out: norch.mul(z, r, out=out), n * [1, 2]),
        (lambda out: norch.exp(z, out=out), np.exp(n)), (lambda out: norch.add(r, r, out=out), [2, 4]),
        (lambda out: norch.matmul(norch.tensor(eye), z, out=out), eye @ n),
        (lambda out: norch.pow(z, 2, out=out), n**2),
        (lambda out: norch.sum(norch.tensor(pair), 0, out=out), 2 * n),
        (lambda out: norch.cumsum(z, 0, out=out), n.cumsum()),
        (lambda out: norch.fft.fft(r, out=out), [3, -1]), (lambda out: norch.complex(r, r, out=out), [1 + 1j, 2 + 2j]),
        (lambda out: norch.linalg.solve(norch.tensor(eye), z, out=out), [1, 1]),
        (lambda out: norch.zeros(2, out=out), [0, 0]), (lambda out: norch.cat([z[:1], z[1:]], out=out), n),
    ]  # fmt: skip
    for call, expected in calls:
        out = norch.empty(size, dtype=norch.complex64)
        assert call(out) is out
        np.testing.assert_allclose(out.real.numpy() + 1j * out.imag.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_magnitudes_are_written_into_real_numbers_alone():
    z = norch.tensor([3 + 4j, 1j])
    assert norch.abs(z, out=norch.empty(0)).tolist() == [5.0, 1.0]
    assert norch.linalg.vector_norm(z, dim=0, out=norch.empty(0)).item() == pytest.approx(26**0.5)
    assert norch.linalg.vector_norm(z, dim=0, out=norch.empty(0, dtype=norch.complex64)).real.item() == pytest.approx(
        26**0.5
    )
    with pytest.raises(norch.DTypeError, match="cannot hold"):
        norch.add(z, z, out=norch.empty(2))


@pytest.mark.parametrize("name", ["sum", "linalg.cholesky", "linalg.inv", "linalg.det", "fft.fft"])
def test_no_out_is_as_if_it_were_not_given(name: str) -> None:
    """asteroid's beamformers pass on the `out=None` that they were called with."""
    function = attrgetter(name)(norch)
    numbers = norch.tensor([[2.0, 1j], [-1j, 3.0]])
    assert function(numbers, out=None).tolist() == function(numbers).tolist()


def test_uniform_draws_are_of_the_parts() -> None:
    norch.manual_seed(0)
    drawn = norch.zeros(4000, dtype=norch.complex64).uniform_(-1.0, 3.0)
    for part in (drawn.real, drawn.imag):
        assert -1 <= part.min() < -0.9 < 2.9 < part.max() <= 3
        assert abs(part.mean().item() - 1) < 0.1
    assert abs((drawn.real * drawn.imag).mean().item() - 1) < 0.1
