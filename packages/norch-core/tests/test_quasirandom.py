"""Sobol sequences beside their first points, by hand, and PyTorch's."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import norch
from norch.quasirandom import SobolEngine


def test_points_in_order() -> None:
    pytest.importorskip("scipy")
    engine = SobolEngine(2)
    assert engine.draw(3).tolist() == [[0, 0], [0.5, 0.5], [0.75, 0.25]]
    assert engine.draw(1, dtype=norch.float64).dtype is norch.float64
    assert engine.num_generated == 4
    engine.reset().fast_forward(1)
    out = norch.empty(1, 2)
    assert engine.draw(1, out=out) is out
    assert out.tolist() == [[0.5, 0.5]]
    assert SobolEngine(2).draw_base2(2).shape == (4, 2)
    with pytest.raises(ValueError, match=r"2 points and 2 \*\* 2 more are no power of 2"):
        engine.draw_base2(2)
    assert repr(SobolEngine(3, True, 5)) == "SobolEngine(dimension=3, scramble=True, seed=5)"


def test_scrambled_points_are_of_the_seed_and_even() -> None:
    pytest.importorskip("scipy")
    points = SobolEngine(3, scramble=True, seed=1).draw(256)
    assert norch.equal(points, SobolEngine(3, scramble=True, seed=1).draw(256))
    for column in points.unbind(1):
        assert (column * 16).long().bincount().tolist() == [16] * 16


def test_beside_pytorch() -> None:
    pytest.importorskip("scipy")
    torch = pytest.importorskip("torch")
    for dimension in (1, 7, 200):
        expected = torch.quasirandom.SobolEngine(dimension).draw(33)
        np.testing.assert_array_equal(SobolEngine(dimension).draw(33).numpy(), expected.numpy())


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="from 1 to 21201, got 0"):
        SobolEngine(0)
    monkeypatch.setitem(sys.modules, "scipy.stats.qmc", None)
    with pytest.raises(ImportError, match="needs SciPy: pip install scipy"):
        SobolEngine(1)
