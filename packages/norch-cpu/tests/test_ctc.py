"""ctc_alphas and ctc_grad: the kernels beside the decompositions."""

import numpy as np
import pytest

import norch
from norch.ops.families import by_name
from norch.ops.nn.ctc import ctc_alphas, ctc_grad
from norch.testing import assert_close

RNG = np.random.default_rng(0)
FORWARD, BACKWARD = (by_name()[name].decompose for name in ("ctc_alphas", "ctc_grad"))


@pytest.fixture(autouse=True)
def unrecorded():
    with norch.no_grad():
        yield


def batch(dtype, steps, count, classes, longest, blank):
    logs = norch.tensor(RNG.standard_normal((steps, count, classes)), dtype=dtype).log_softmax(2)
    labels = RNG.integers(0, classes - 1, (count, longest))
    labels += labels >= blank
    sizes = RNG.integers(0, longest + 1, count)
    labels[np.arange(longest) >= sizes[:, None]] = blank
    times = RNG.integers(0, steps + 1, count)
    return logs, *(norch.tensor(v) for v in (labels, times, sizes))


@pytest.mark.parametrize("dtype", [norch.float32, norch.float64])
@pytest.mark.parametrize(
    "shape", [(7, 5, 4, 3), (40, 9, 6, 17), (3, 2, 2, 0), (1, 1, 3, 1), (0, 2, 3, 2), (4, 0, 3, 2)]
)
@pytest.mark.parametrize("blank", [0, 1])
def test_kernels_agree_with_the_decompositions(dtype, shape, blank):
    logs, *rest = batch(dtype, *shape, blank)
    if logs.numel():
        logs[shape[0] // 2, 0, blank] = float("-inf")
    tolerance = 1e-4 if dtype is norch.float32 else 1e-11
    wanted, alphas = FORWARD(logs, *rest, blank)
    for given in (
        logs,
        logs.transpose(0, 1).contiguous().transpose(0, 1),
        logs.transpose(0, 2).clone().transpose(0, 2),
    ):
        loss, found = ctc_alphas(given, *rest, blank)
        assert_close(loss, wanted, rtol=tolerance, atol=tolerance)
        for n, time in enumerate(rest[1].tolist()):
            assert_close(found[: time + 1, n], alphas[: time + 1, n], rtol=tolerance, atol=tolerance)
    grad = norch.tensor(RNG.standard_normal(shape[1]), dtype=dtype)
    assert_close(
        ctc_grad(grad, *rest, found, shape[2], blank), BACKWARD(grad, *rest, alphas, shape[2], blank),
        rtol=tolerance, atol=tolerance,
    )  # fmt: skip


def test_labels_outside_are_refused():
    logs, labels, times, sizes = batch(norch.float32, 5, 3, 4, 2, 0)
    alphas = ctc_alphas(logs, labels, times, sizes, 0)[1]
    for wrong in (-1, 4):
        labels = norch.full((3, 2), wrong)
        with pytest.raises(IndexError):
            ctc_alphas(logs, labels, times, sizes, 0)
        with pytest.raises(IndexError):
            ctc_grad(norch.ones(3), labels, times, sizes, alphas, 4, 0)


def test_bits_do_not_depend_on_the_number_of_threads():
    logs, *rest = batch(norch.float32, 60, 37, 30, 20, 0)
    before, found = norch.get_num_threads(), []
    try:
        for threads in (1, 2):
            norch.set_num_threads(threads)
            loss, alphas = ctc_alphas(logs, *rest, 0)
            grad = ctc_grad(norch.ones(37), *rest, alphas, 30, 0)
            found.append([t.numpy().tobytes() for t in (loss, alphas, grad)])
    finally:
        norch.set_num_threads(before)
    assert found[0] == found[1]
