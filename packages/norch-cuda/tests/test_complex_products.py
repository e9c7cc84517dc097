"""Products of complex numbers against NumPy's, of any layout."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch.ops.matrix.complex_matmul import complex_matmul
from norch.testing import assert_close

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize(
    "views",
    [
        (lambda z: z, lambda z: z),
        (lambda z: z, lambda z: z[:1]),
        (lambda z: z.T, lambda z: z.T[:, 1:2]),
        (lambda z: z[:, ::2], lambda z: z[:, 1::2]),
        (lambda z: z[1:, 3], lambda z: z[:-1, 5]),
        (lambda z: z[:0], lambda z: z[:0]),
    ],
)
def test_products_of_complex_numbers(cuda, views, dtype):
    def drawn():
        return (RNG.standard_normal((40, 66)) + 1j * RNG.standard_normal((40, 66))).astype(dtype)

    def pair_of(z):
        return norch.tensor(np.stack([z.real, z.imag], -1), device=cuda)

    a, b = drawn(), drawn()
    x, y = (norch.view_as_complex(pair_of(z)) for z in (a, b))
    first, second = views
    bound = 4 * np.finfo(dtype).eps
    for found, wanted in (
        (first(x) * second(y), first(a) * second(b)),
        (first(x) * second(y).conj(), first(a) * second(b).conj()),
    ):
        found = norch.view_as_real(found).cpu().numpy()
        np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], wanted, rtol=bound, atol=10 * bound)
    assert not norch.view_as_real(x * x.conj())[..., 1].any().item()
    planar = norch.complex(x.real.contiguous(), x.imag.contiguous())
    found = norch.view_as_real(planar * y).cpu()
    assert_close(found, norch.view_as_real(x * y).cpu(), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("sizes", [(3, 5, 4), (1, 1, 1), (0, 3, 2), (2, 0, 3), (130, 70, 33)])
def test_products_of_complex_matrices(cuda, sizes, dtype):
    m, k, n = sizes
    a, b = ((RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)).astype(dtype) for shape in ((m, k), (k, n)))

    def planar(z):
        return norch.complex(z.real.contiguous(), z.imag.contiguous())

    for lies in (lambda z: z, lambda z: z.T.clone().T, planar):
        x, y = (lies(norch.tensor(z, device=cuda)).requires_grad_() for z in (a, b))
        found = x @ y
        bound = 4 * np.finfo(dtype).eps * max(k, 1) ** 0.5
        np.testing.assert_allclose(found.detach().cpu().numpy(), a @ b, rtol=0, atol=10 * bound)
        found.backward(norch.tensor(np.conj(a @ b), device=cuda))
        for z, wanted in ((x, np.conj(a @ b) @ b.conj().T), (y, a.conj().T @ np.conj(a @ b))):
            scale = max(1.0, np.abs(wanted).max(initial=0.0))
            np.testing.assert_allclose(z.grad.cpu().numpy(), wanted, rtol=0, atol=20 * bound * scale)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("adjoint_a", [False, True])
@pytest.mark.parametrize("adjoint_b", [False, True])
@pytest.mark.parametrize("sizes", [(3, 5, 4), (1, 6, 1), (7, 1, 5), (1, 1, 1), (65, 33, 130)])
def test_batches_and_conjugate_transposes(cuda, sizes, adjoint_a, adjoint_b, dtype):
    m, k, n = sizes

    def drawn(rows, columns, is_adjoint):
        shape = (2, 3, columns, rows) if is_adjoint else (2, 3, rows, columns)
        return (RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)).astype(dtype)

    def seen(z, is_adjoint):
        return np.conj(np.swapaxes(z, -1, -2)) if is_adjoint else z

    a, b = drawn(m, k, adjoint_a), drawn(k, n, adjoint_b)
    left, right = (norch.tensor(np.stack([z.real, z.imag], -1), device=cuda) for z in (a, b))
    wanted = seen(a, adjoint_a) @ seen(b, adjoint_b)
    bound = 100 * np.finfo(dtype).eps * max(k, 1) ** 0.5

    def misplaced(x):
        """From an odd element on."""
        return norch.cat([x.new_zeros(1), x.reshape(-1)])[1:].reshape(x.shape)

    for lies in (
        lambda x: x,
        lambda x: x.transpose(-2, -3).clone().transpose(-2, -3),
        lambda x: x.permute(4, 0, 1, 2, 3).clone().permute(1, 2, 3, 4, 0),
        lambda x: x.transpose(0, 1).clone().transpose(0, 1),
        misplaced,
    ):
        x, y = (lies(z).detach().requires_grad_() for z in (left, right))
        found = complex_matmul(x, y, adjoint_a, adjoint_b)
        got = found.detach().cpu().numpy()
        np.testing.assert_allclose(got[..., 0] + 1j * got[..., 1], wanted, rtol=0, atol=bound)
    on_host = [z.cpu().clone().requires_grad_() for z in (left, right)]
    found.square().sum().backward()
    complex_matmul(*on_host, adjoint_a, adjoint_b).square().sum().backward()
    for z, expected in zip((x, y), on_host, strict=True):
        scale = max(1.0, expected.grad.abs().max().item())
        assert_close(z.grad.cpu(), expected.grad, rtol=0, atol=10 * bound * scale)


def test_products_of_batches_that_broadcast(cuda):
    a = (RNG.standard_normal((4, 1, 5, 6)) + 1j * RNG.standard_normal((4, 1, 5, 6))).astype(np.complex64)
    b = (RNG.standard_normal((3, 6, 2)) + 1j * RNG.standard_normal((3, 6, 2))).astype(np.complex64)
    x, y = (norch.tensor(z, device=cuda) for z in (a, b))
    np.testing.assert_allclose((x @ y).cpu().numpy(), a @ b, rtol=0, atol=1e-5)
    np.testing.assert_allclose(norch.bmm(x[:3, 0], y).cpu().numpy(), a[:3, 0] @ b, rtol=0, atol=1e-5)
