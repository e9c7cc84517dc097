"""multi_margin_rows and its gradient on the GPU against the CPU in float64."""

from __future__ import annotations

import numpy as np
import pytest

import norch

RNG = np.random.default_rng(4)
EPS = {"float64": 2.0**-50, "float32": 2.0**-21, "float16": 2.0**-10, "bfloat16": 2.0**-7}


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("shape", [(1, 1), (0, 3), (5, 4), (300, 33), (40, 1000), (3000, 7)])
def test_losses_and_gradients(cuda, shape, dtype, p):
    rows, classes = shape
    for lies in (lambda x: x, lambda x: x.T.contiguous().T):
        x = norch.tensor(RNG.standard_normal(shape), device=cuda).to(getattr(norch, dtype))
        target = norch.tensor(RNG.integers(0, classes, rows), device=cuda)
        x = lies(x).requires_grad_()
        wide = x.detach().cpu().double().requires_grad_()
        found = norch.multi_margin_rows(x, target.to(norch.int32 if p == 1 else norch.int64), p, 0.7)
        wanted = norch.multi_margin_rows(wide, target.cpu(), p, 0.7)
        assert found.dtype is x.dtype
        grads = norch.tensor(RNG.standard_normal(rows), device=cuda).to(x.dtype)
        found.backward(grads)
        wanted.backward(grads.cpu().double())
        for result, expected in ((found.detach(), wanted.detach()), (x.grad, wide.grad)):
            most = max(1.0, np.abs(expected.numpy()).max(initial=0.0))
            np.testing.assert_allclose(result.cpu().double().numpy(), expected.numpy(), rtol=0, atol=EPS[dtype] * most)


def test_a_target_outside_the_classes_is_reported(cuda):
    x = norch.zeros(3, 4, device=cuda)
    for target in (4, -1):
        with pytest.raises(IndexError):
            norch.multi_margin_rows(x, norch.tensor([0, target, 1], device=cuda)).cpu()
