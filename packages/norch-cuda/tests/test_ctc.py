"""ctc_alphas and ctc_grad beside their decompositions on the CPU, and the loss of whole batches."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch.ops.families import by_name
from norch.ops.nn.ctc import ctc_alphas, ctc_grad, ctc_loss
from norch.testing import assert_close

RNG = np.random.default_rng(0)
FORWARD, BACKWARD = (by_name()[name].decompose for name in ("ctc_alphas", "ctc_grad"))


@pytest.mark.parametrize("dtype", [norch.float32, norch.float64])
@pytest.mark.parametrize(
    "shape",
    [
        (7, 5, 4, 3),
        (40, 9, 6, 17),
        (90, 3, 30, 70),
        (3, 2, 2, 0),
        (1, 1, 3, 1),
        (0, 2, 3, 2),
        (4, 0, 3, 2),
        (4, 2, 3, 1100),
    ],
)
@pytest.mark.parametrize("blank", [0, 1])
def test_kernels_agree_with_the_decompositions(cuda, dtype, shape, blank):
    steps, count, classes, longest = shape
    logs = norch.tensor(RNG.standard_normal((steps, count, classes)), dtype=dtype).log_softmax(2)
    if logs.numel():
        logs[steps // 2, 0, blank] = float("-inf")
    labels = RNG.integers(0, classes - 1, (count, longest))
    labels += labels >= blank
    sizes, times = RNG.integers(0, longest + 1, count), RNG.integers(0, steps + 1, count)
    labels[np.arange(longest) >= sizes[:, None]] = blank
    rest = [norch.tensor(v) for v in (labels, times, sizes)]
    tolerance = 1e-4 if dtype is norch.float32 else 1e-11
    wanted, alphas = FORWARD(logs, *rest, blank)
    there = [t.to(cuda) for t in rest]
    for given in (logs.to(cuda), logs.to(cuda).transpose(0, 2).clone().transpose(0, 2)):
        loss, found = ctc_alphas(given, *there, blank)
        assert_close(loss.cpu(), wanted, rtol=tolerance, atol=tolerance)
        for n, time in enumerate(times.tolist()):
            assert_close(found[: time + 1, n].cpu(), alphas[: time + 1, n], rtol=tolerance, atol=tolerance)
    grad = norch.tensor(RNG.standard_normal(count), dtype=dtype)
    expected = BACKWARD(grad, *rest, alphas, classes, blank)
    results = [ctc_grad(grad.to(cuda), *there, found, classes, blank).cpu() for _ in range(2)]
    assert_close(results[0], expected, rtol=tolerance, atol=tolerance)
    assert norch.equal(*results)


def test_a_label_outside_is_reported(cuda):
    logs = norch.randn(5, 2, 4, device=cuda).log_softmax(2)
    with pytest.raises(IndexError):
        ctc_loss(logs, norch.tensor([[1, 4], [1, 2]], device=cuda), [5, 5], [2, 2])
        norch.cuda.synchronize()
