"""multi_margin_rows against NumPy: values, gradients and errors."""

from __future__ import annotations

import numpy as np
import pytest

import norch

RNG = np.random.default_rng(2)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("shape", [(1, 1), (0, 3), (5, 4), (40, 33)])
def test_values_and_gradients(shape: tuple[int, int], p: int) -> None:
    rows, classes = shape
    values, target = RNG.standard_normal(shape), RNG.integers(0, classes, rows)
    grads, at = RNG.standard_normal(rows), (np.arange(rows), target)
    excess = np.maximum(0, 0.7 - values[at][:, None] + values)
    excess[at] = 0
    x = norch.tensor(values).requires_grad_()
    found = norch.multi_margin_rows(x, norch.tensor(target), p, 0.7)
    np.testing.assert_allclose(found.detach().numpy(), (excess**p).sum(1) / classes, rtol=1e-12)
    steps = p * excess ** (p - 1) * (excess > 0) * grads[:, None] / classes
    steps[at] = -steps.sum(1)
    found.backward(norch.tensor(grads))
    np.testing.assert_allclose(x.grad.numpy(), steps, rtol=1e-12, atol=1e-15)


def test_errors() -> None:
    x = norch.zeros(2, 3)
    with pytest.raises(norch.ShapeError, match="does not fit"):
        norch.multi_margin_rows(x, norch.tensor([0]))
    with pytest.raises(norch.DTypeError):
        norch.multi_margin_rows(x, norch.zeros(2))
    with pytest.raises(norch.DTypeError):
        norch.multi_margin_rows(x.long(), norch.tensor([0, 1]))
    with pytest.raises(ValueError, match="p must be 1 or 2"):
        norch.multi_margin_rows(x, norch.tensor([0, 1]), p=3)
    for target in (3, -1):
        with pytest.raises(norch.IndexError, match="outside"):
            norch.multi_margin_rows(x, norch.tensor([0, target]))
