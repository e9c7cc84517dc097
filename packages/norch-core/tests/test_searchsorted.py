"""searchsorted and bucketize against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import norch


@pytest.mark.parametrize("size", [1, 2, 3, 8, 33, 64])
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_searchsorted_at_edges(size: int, dtype: Any) -> None:
    draw = np.random.default_rng(size)
    sequence, wanted = np.sort(draw.integers(-5, 6, size).astype(dtype)), draw.integers(-7, 8, 40).astype(dtype)
    if dtype is np.float32:
        sequence[-1], sequence[0] = (np.nan, -np.inf) if size > 2 else (np.inf, 0)
        sequence.sort()
        wanted[:4] = np.nan, np.inf, -np.inf, np.nan
    for side in ("left", "right"):
        found = norch.searchsorted(norch.tensor(sequence), norch.tensor(wanted), side=side)
        np.testing.assert_array_equal(found.numpy(), np.searchsorted(sequence, wanted, side))


@pytest.mark.parametrize("value", [2.5, -0.5, 2, 9.0, float("inf")])
def test_searchsorted_for_a_number_among_integers(value):
    sequence = norch.tensor([0, 1, 2, 2, 3])
    for right in (False, True):
        expected = np.searchsorted(sequence.cpu().numpy(), value, "right" if right else "left")
        assert norch.searchsorted(sequence, value, right=right).item() == expected
        assert norch.bucketize(value, sequence, right=right).item() == expected


def test_searchsorted_refuses_what_does_not_fit() -> None:
    x = norch.tensor([1.0, 2.0, 3.0])
    for error, options in [
        (ValueError, {"side": "middle"}), (ValueError, {"side": "left", "right": True}),
        (norch.ShapeError, {"sorter": norch.tensor([0, 1])}),
    ]:  # fmt: skip
        with pytest.raises(error, match=r"searchsorted\(\): s"):
            norch.searchsorted(x, x, **options)
    with pytest.raises(norch.ShapeError, match="1 dim"):
        norch.bucketize(x, x.expand(2, 3))
    assert norch.searchsorted(x, x, side="right", right=True).tolist() == [1, 2, 3]
