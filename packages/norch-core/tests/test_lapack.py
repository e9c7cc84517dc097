"""NumPy's LAPACK in single precision, beside NumPy's public functions of float64."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from norch.linalg import lapack

R = np.random.default_rng(0)
SQUARE = R.standard_normal((2, 12, 12))
SYMMETRIC = SQUARE + SQUARE.swapaxes(-1, -2)


def recomposed(name, found):
    """A matrix out of its factors: those of the other precision may have other signs."""
    if name == "svd":
        u, s, vh = found
        return u[..., : s.shape[-1]] * s[..., None, :] @ vh[..., : s.shape[-1], :]
    values, vectors = found
    return vectors * values[..., None, :] @ np.linalg.inv(vectors)


@pytest.fixture(params=["NumPy's own routines", "the public functions"])
def module(request, monkeypatch):
    if request.param == "the public functions":
        monkeypatch.delattr(np.linalg, "_umath_linalg")
        importlib.reload(lapack)
    yield lapack
    monkeypatch.undo()
    importlib.reload(lapack)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
@pytest.mark.parametrize("flag", [False, True])
def test_factors(module, dtype, flag):
    a, s = SQUARE.astype(dtype), SYMMETRIC.astype(dtype)
    single = np.dtype(dtype).char in "fF"
    tolerance = 2e-4 if single else 1e-10
    for name, operand, routine in (
        ("eigh", s, module.eigh[flag]),
        ("svd", a, module.svd[flag]),
        ("eig", a, module.eig),
    ):
        found = routine(operand)
        assert isinstance(found, tuple)
        np.testing.assert_allclose(recomposed(name, found), operand, tolerance, tolerance)
        if single and name != "eig":
            assert {x.dtype.itemsize for x in found} <= {4, 8}
    exact = np.linalg.eigvalsh(SYMMETRIC)
    np.testing.assert_allclose(module.eigvalsh[flag](s), exact, tolerance, tolerance)
    np.testing.assert_allclose(module.svdvals(a), np.linalg.svd(SQUARE, compute_uv=False), tolerance, tolerance)
    values = np.sort_complex(module.eigvals(a))
    np.testing.assert_allclose(values, np.sort_complex(np.linalg.eigvals(SQUARE)), tolerance, tolerance)


def test_single_precision_is_computed_in_it():
    s = SYMMETRIC.astype(np.float32)
    assert lapack.eigvalsh[False](s).tobytes() != np.linalg.eigvalsh(s).tobytes()  # NumPy's: rounded from float64


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_has_no_answer(module, dtype):
    for bad in (np.nan, np.inf):
        a = np.full((3, 3), bad, dtype)
        for routine in (module.eigh[False], module.eigvalsh[True], module.svd[False], module.eig, module.eigvals):
            with pytest.raises(np.linalg.LinAlgError):
                routine(a)


def test_nothing(module):
    assert [x.shape for x in module.svd[False](np.zeros((2, 0, 3), np.float32))] == [(2, 0, 0), (2, 0), (2, 0, 3)]
    assert [x.shape for x in module.eigh[True](np.zeros((0, 0), np.float32))] == [(0,), (0, 0)]
