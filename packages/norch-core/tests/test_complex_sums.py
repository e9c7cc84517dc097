"""Functions of complex numbers that add exponentials or products, and that take elements from elsewhere: by NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch.autograd import gradcheck

RNG = np.random.default_rng(3)
NZ = RNG.standard_normal((3, 4)) + 1j * RNG.standard_normal((3, 4))
NW = RNG.standard_normal((3, 4)) + 1j * RNG.standard_normal((3, 4))
Z, W = norch.tensor(NZ), norch.tensor(NW)


def close(found, expected):
    np.testing.assert_allclose(found.detach().numpy(), expected, 1e-10, 1e-10)


def differentiable(function, *given):
    def of_parts(*parts):
        return norch.view_as_real(function(*map(norch.view_as_complex, parts)))

    assert gradcheck(of_parts, [norch.view_as_real(z).detach().clone().requires_grad_() for z in given])


def test_logarithms_of_sums():
    close(norch.logsumexp(Z, 1), np.log(np.exp(NZ).sum(1)))
    close(Z.logsumexp((0, 1), keepdim=True), np.log(np.exp(NZ).sum((0, 1), keepdims=True)))
    close(norch.logsumexp(Z[0, 0] * 0 + 9j, 0), 9j - 2j * np.pi)
    close(norch.logaddexp(Z, W), np.log(np.exp(NZ) + np.exp(NW)))
    close(norch.logaddexp(Z, W.real), np.log(np.exp(NZ) + np.exp(NW.real)))
    close(norch.logcumsumexp(Z, 1).exp(), np.exp(NZ).cumsum(1))
    differentiable(lambda z: z.logsumexp(0), Z)
    differentiable(lambda z: z.logcumsumexp(1), Z)
    differentiable(norch.logaddexp, Z, W)


def test_logarithms_of_sums_beyond_range():
    far = norch.tensor([-2000 + 1j, 3 + 0.5j, 2000 + 3.0j, -np.inf + 0j])
    close(norch.logsumexp(far, 0), 2000 + 3j)
    found = norch.logcumsumexp(far, 0)
    close(found[:3], [-2000 + 1j, 3 + 0.5j, 2000 + 3j])
    none = norch.tensor([-np.inf + 0j, -np.inf + 0j])
    assert none.logsumexp(0).real.item() == -np.inf
    assert norch.logaddexp(none, none).real.tolist() == [-np.inf] * 2
    close(norch.logaddexp(none, norch.tensor([1 + 2j, 3j])), [1 + 2j, 3j])


def test_a_linear_recurrence_by_logarithms():
    """h[t] = a[t] h[t - 1] + b[t] of numbers of either sign, as programs write it (Heinsen, 2023)."""
    a, b = RNG.uniform(-1.5, 1.5, (2, 9)), RNG.standard_normal((2, 9))
    along = norch.tensor(a).to(norch.complex128).log().cumsum(1)
    h = (along + (norch.tensor(b).to(norch.complex128).log() - along).logcumsumexp(1)).exp().real
    expected, last = [], np.zeros(2)
    for t in range(9):
        last = a[:, t] * last + b[:, t]
        expected.append(last)
    np.testing.assert_allclose(h.numpy(), np.stack(expected, 1), 1e-8)


def test_sums_and_products():
    x = np.cumsum(RNG.uniform(0.1, 1, 4))
    pairs = (NZ[:, 1:] + NZ[:, :-1]) / 2
    close(norch.cumulative_trapezoid(Z, dx=0.5), pairs.cumsum(1) * 0.5)
    close(norch.cumulative_trapezoid(Z, norch.tensor(x)), (pairs * np.diff(x)).cumsum(1))
    close(norch.addr(Z, Z[:, 0], W[0], beta=2j, alpha=3), NZ * 2j + 3 * np.outer(NZ[:, 0], NW[0]))
    a, b = norch.stack([Z, W]), norch.stack([W, Z]).mT
    close(norch.addbmm(Z[:, :3], a, b, beta=0), (a.numpy() @ b.numpy()).sum(0))
    close(norch.ldexp(Z, norch.tensor([1, 2, 3, -1])), NZ * 2.0 ** np.array([1, 2, 3, -1]))
    norms = np.abs(NZ).sum(1, keepdims=True)
    close(norch.renorm(Z, 1, 0, 2.0), NZ * np.minimum(1, 2 / (norms + 1e-7)))
    close(norch.rms_norm(Z, (4,), W[0], eps=0.1), NZ / np.sqrt((NZ * NZ).mean(1, keepdims=True) + 0.1) * NW[0])


@pytest.mark.parametrize("weights", [{}, {"fweights": [1, 3, 2, 1]}, {"aweights": [0.5, 0.1, 2.0, 1.0]}])
def test_covariance(weights):
    given = {name: norch.tensor(np.array(v)) for name, v in weights.items()}
    close(norch.cov(Z, correction=1, **given), np.cov(NZ, ddof=1, **weights))


def test_elementwise():
    close(norch.sinc(Z), np.sinc(NZ))
    assert norch.sinc(norch.zeros(2, dtype=norch.cfloat)).tolist() == [1, 1]
    close(norch.softsign(Z), NZ / (1 + np.abs(NZ)))
    assert Z.bool(memory_format=norch.contiguous_format).all()
    assert Z.cfloat(memory_format=norch.contiguous_format).dtype is norch.complex64


def test_elements_from_elsewhere():
    close(norch.index_put(Z, (norch.tensor([1, 1]),), W[:2], accumulate=True)[1], NZ[1] + NW[0] + NW[1])
    index = norch.tensor([[0, 0, 1, 2]])
    expected = NZ.copy()
    np.add.at(expected, (index[0].numpy(), np.arange(4)), NW[0])
    close(Z.scatter(0, index, W[:1], reduce="add"), expected)
    with pytest.raises(norch.DTypeError, match="multiply"):
        Z.scatter(0, index, W[:1], reduce="multiply")
    for numbers in (Z.contiguous(), norch.view_as_complex(norch.view_as_real(Z).clone().contiguous())):
        close(numbers.as_strided((2, 3), (4, 1), 1), NZ[:2, 1:])
    images = norch.view_as_complex(norch.arange(32.0).reshape(1, 4, 2, 2, 2))
    shuffled = norch.pixel_shuffle(images, 2)
    close(shuffled.real, norch.pixel_shuffle(images.real, 2).numpy())
    close(norch.pixel_unshuffle(shuffled, 2), images.numpy())
