"""gradient, norms of old names, and draws at norch's root, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch.testing.gradcheck import gradcheck

RNG = np.random.default_rng(3)
X = RNG.standard_normal((4, 5))
PLACES = np.array([0.0, 1, 3, 4, 7])


@pytest.mark.parametrize("edge_order", [1, 2])
@pytest.mark.parametrize(
    ("spacing", "dim"), [(1, None), (0.5, 1), ((2.0, 3.0), (0, 1)), (PLACES, -1)], ids="unit half two places".split()
)
def test_gradient(spacing, dim, edge_order):
    given = (norch.tensor(spacing),) if spacing is PLACES else spacing
    found = norch.gradient(norch.tensor(X), spacing=given, dim=dim, edge_order=edge_order)
    steps = [spacing] if spacing is PLACES else np.atleast_1d(spacing)
    expected = np.gradient(X, *steps, axis=dim, edge_order=edge_order)
    for ours, theirs in zip(found, expected if isinstance(expected, list | tuple) else [expected], strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs, 1e-12)


def test_gradient_of_integers_and_its_derivative():
    (found,) = norch.gradient(norch.tensor([1, 4, 9]), spacing=None, dim=None)
    assert found.tolist() == [3.0, 4.0, 5.0]
    assert gradcheck(lambda x: norch.gradient(x, edge_order=2), (norch.tensor(X, requires_grad=True),))


def test_places_of_a_wider_dtype_promote():
    values, places = np.linspace(-1, 1, 20, dtype=np.float32), np.random.RandomState(0).randn(20)
    (found,) = norch.gradient(norch.tensor(values), spacing=[norch.tensor(places)])
    assert found.dtype is norch.float64
    np.testing.assert_allclose(found.numpy(), np.gradient(values.astype(np.float64), places), rtol=1e-12)
    assert norch.gradient(norch.arange(4), spacing=[norch.tensor([0, 1, 3, 4])])[0].dtype is norch.float32


def test_gradient_refuses():
    with pytest.raises(norch.ShapeError, match="too small"):
        norch.gradient(norch.ones(2), edge_order=2)
    with pytest.raises(norch.ShapeError, match="spacings"):
        norch.gradient(norch.ones(3, 3), spacing=(1.0,))
    with pytest.raises(norch.ShapeError, match="out of range"):
        norch.gradient(norch.ones(3), dim=1)
    with pytest.raises(norch.ShapeError, match="twice"):
        norch.gradient(norch.ones(3, 3), dim=(1, -1))
    with pytest.raises(ValueError, match="edge_order"):
        norch.gradient(norch.ones(3), edge_order=3)


def test_norms():
    x = norch.tensor(X)
    np.testing.assert_allclose(norch.frobenius_norm(x, [1]).numpy(), np.linalg.norm(X, axis=1), 1e-12)
    np.testing.assert_allclose(norch.frobenius_norm(x).numpy(), np.linalg.norm(X), 1e-12)
    np.testing.assert_allclose(norch.norm_except_dim(x, 2, 1).numpy(), np.linalg.norm(X, axis=0)[None], 1e-12)
    np.testing.assert_allclose(norch.norm_except_dim(x, 2, -1).numpy(), np.linalg.norm(X), 1e-12)


def test_draws():
    norch.manual_seed(0)
    counts = norch.poisson(norch.full((2000,), 3.0))
    assert counts.dtype is norch.float32
    assert abs(float(counts.mean()) - 3) < 0.2
    counts = norch.binomial(norch.full((2000,), 10.0), norch.tensor(0.3))
    assert abs(float(counts.mean()) - 3) < 0.2
    with pytest.raises(norch.DTypeError, match="floating"):
        norch.poisson(norch.tensor([1]))
    with pytest.raises(NotImplementedError, match="generator"):
        norch.poisson(norch.ones(1), norch.Generator())


def test_real_tensors_are_their_own_conjugates():
    x = norch.tensor([1.0, -1.0])
    assert x.conj() is x.resolve_conj() is norch.resolve_neg(x) is norch.conj_physical(x) is x
    assert not x.is_neg()
    assert not norch.is_conj(x)
    assert x.angle().tolist() == [0.0, pytest.approx(np.pi)]
    assert norch.ones(8).stft(4, return_complex=True).shape == norch.stft(norch.ones(8), 4, return_complex=True).shape


def test_a_device_says_whether_it_is_initialized():
    assert norch.cuda._initialized is norch.cuda.is_available()


def test_evenly_spaced_points_take_no_part_in_their_own_derivative():
    inf, nan = float("inf"), float("nan")
    for odd in (inf, nan):
        found = norch.gradient(norch.tensor([1.0, odd, 2, 3, 4]), spacing=2.0)[0].tolist()
        assert found[1] == 0.25
        assert found[3:] == [0.5, 0.5]
        assert not any(np.isfinite(found[i]) for i in (0, 2))
    assert norch.gradient(norch.tensor([inf, inf, -inf, 1, 2]))[0].tolist()[1:] == [-inf, -inf, inf, 1]
