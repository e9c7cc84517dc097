"""norch.histogram and histogramdd beside NumPy's."""

import numpy as np
import pytest

import norch

DRAW = np.random.default_rng(3)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("options", [{}, {"range": (-0.5, 1.0)}])
def test_histogram(options, density, weighted, dtype):
    x = DRAW.normal(size=(20, 3)).astype(dtype)
    weights = DRAW.random(x.shape).astype(dtype) if weighted else None
    expected, edges = np.histogram(x, 7, weights=weights, density=density, **options)
    given = None if weights is None else norch.tensor(weights)
    found = norch.tensor(x).histogram(7, weight=given, density=density, **options)
    tolerance = 1e-12 if dtype == "float64" else 1e-5
    np.testing.assert_allclose(found.bin_edges.cpu().numpy(), edges, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(found.hist.cpu().numpy(), expected, rtol=tolerance, atol=tolerance)
    assert found.hist.dtype is norch.tensor(x).dtype


def test_edges_that_are_given():
    x, edges = DRAW.normal(size=50), np.array([-2.0, -0.3, 0.1, 1.5])
    found, at = norch.histogram(norch.tensor(x), norch.tensor(edges))
    np.testing.assert_array_equal(found.cpu().numpy(), np.histogram(x, edges)[0])
    np.testing.assert_array_equal(at.cpu().numpy(), edges)
    assert norch.histogram(norch.tensor([0.1, 1.5]), norch.tensor([0.1, 1.5])).hist.tolist() == [2]


@pytest.mark.parametrize("density", [False, True])
def test_histogramdd(density):
    x, weights = DRAW.normal(size=(60, 3)), DRAW.random(60)
    for bins, span in (([2, 3, 4], None), (3, (-1, 1, -2, 2, 0, 3)), ([np.array([-1.0, 0, 2])] * 3, None)):
        own = [norch.tensor(b) for b in bins] if isinstance(bins, list) and not isinstance(bins[0], int) else bins
        found = norch.histogramdd(norch.tensor(x), own, range=span, weight=norch.tensor(weights), density=density)
        pairs = None if span is None else np.reshape(span, (3, 2))
        expected, edges = np.histogramdd(x, bins, pairs, density, weights)
        np.testing.assert_allclose(found.hist.cpu().numpy(), expected, rtol=1e-12, atol=1e-15)
        for a, b in zip(found.bin_edges, edges, strict=True):
            np.testing.assert_allclose(a.cpu().numpy(), b, rtol=1e-12, atol=1e-15)


def test_no_elements():
    found = norch.histogram(norch.empty(0), 2)
    assert (found.hist.tolist(), found.bin_edges.tolist()) == ([0, 0], [0, 0.5, 1])


def test_what_is_refused():
    x = norch.ones(4, 2)
    for error, words, call in (
        (norch.DTypeError, "floating", lambda: norch.histogram(norch.tensor([1, 2]), 3)),
        (norch.ShapeError, "weight", lambda: norch.histogram(x, 3, weight=norch.ones(3))),
        (norch.ShapeError, "weight", lambda: norch.histogramdd(x, 3, weight=norch.ones(3))),
        (norch.ShapeError, "dims", lambda: norch.histogramdd(x, [3])),
        (norch.ShapeError, "range", lambda: norch.histogramdd(x, 3, range=(0, 1))),
        (norch.ShapeError, "2 dims", lambda: norch.histogramdd(x[0], 3)),
        (norch.ShapeError, "1-D", lambda: norch.histogram(x, norch.ones(2, 2))),
        (ValueError, "1 bin", lambda: norch.histogram(x, 0)),
        (ValueError, "finite", lambda: norch.histogram(x * float("nan"), 3)),
    ):
        with pytest.raises(error, match=words):
            call()


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_histc_of_integers(dtype):
    """As PyTorch has it on a GPU: how mixtures of experts count their tokens."""
    numbers = DRAW.integers(0, 9, 200)
    for bins, low, high in ((8, 0, 7), (3, 1, 7), (5, 0, 0)):
        found = norch.histc(norch.tensor(numbers, dtype=getattr(norch, dtype)), bins, min=low, max=high)
        expected, _ = np.histogram(numbers, bins, (low, high) if low < high else None)
        assert (found.tolist(), str(found.dtype)) == (expected.tolist(), f"norch.{dtype}")
    with pytest.raises(norch.DTypeError, match="bool"):
        norch.histc(norch.tensor([True]), 2)
