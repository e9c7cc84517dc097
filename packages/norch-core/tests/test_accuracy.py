"""float32 against float64 where rounding is easily lost control of, and functions at infinities, NaN, zeros and limits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import norch

INF, NAN = math.inf, math.nan


def near(got: Any, want: Any, rtol: float) -> None:
    np.testing.assert_allclose(got.detach().double().numpy(), want, rtol)


# --- A mean that is large next to the deviations ----------------------------------------------------------------------

FEW = np.array([1e6, 1e6 + 0.0625])  # their mean is no float32


@pytest.mark.parametrize("x", [FEW, 1e6 + np.random.default_rng(0).standard_normal(10_000)], ids=["few", "many"])
def test_spread_about_a_large_mean(x):
    x = x.astype(np.float32).astype(np.float64)
    t = norch.tensor(x, dtype=norch.float32)
    near(t.var(), x.var(ddof=1), 1e-6)
    near(t.std(correction=0), x.std(), 1e-6)
    near(norch.var_mean(t)[0], x.var(ddof=1), 1e-6)
    near(t.cov(), x.var(ddof=1), 1e-5)
    near(t.cov(fweights=norch.ones(x.size, dtype=norch.int64)), x.var(ddof=1), 1e-5)
    for dims in ((1,), (0, 1)):
        near(norch.stack([t, t]).var(dims, correction=0), np.stack([x, x]).var(dims), 1e-6)


@pytest.mark.parametrize("shape", [(2, 8, 4, 4), (4, 8), (3, 4, 100), (2, 4, 4096)], ids=str)
def test_normalisation_about_a_large_mean(shape):
    rng = np.random.default_rng(0)
    x, g = 1e4 + rng.standard_normal(shape), rng.standard_normal(shape)
    w = rng.uniform(0.5, 1, shape[1])
    functions = {
        "batch_norm": lambda x, w: norch.batch_norm(x, None, None, w, w, training=True),
        "layer_norm": lambda x, w: norch.layer_norm(x, shape[1:]) * w.sum(),
        "layer_norm of weights": lambda x, w: norch.layer_norm(x.movedim(1, -1), shape[1], w, w).movedim(-1, 1),
        "group_norm": lambda x, w: norch.group_norm(x, 2, w, w),
    }

    def found(function, dtype):
        leaves = [norch.tensor(v.astype(np.float32), dtype=dtype, requires_grad=True) for v in (x, w)]
        y = function(*leaves)
        y.backward(norch.tensor(g, dtype=dtype))
        return [t.double().numpy() for t in (y.detach(), *[leaf.grad for leaf in leaves])]

    for name, function in functions.items():
        for got, want in zip(found(function, norch.float32), found(function, norch.float64), strict=True):
            np.testing.assert_allclose(got, want, 0, 5e-6 * np.abs(want).max(), err_msg=name)
