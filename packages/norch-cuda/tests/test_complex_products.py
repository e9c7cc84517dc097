"""Products of complex numbers against NumPy's, of any layout."""

from __future__ import annotations

import numpy as np
import pytest

import norch
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
