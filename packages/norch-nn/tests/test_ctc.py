"""The CTC loss, against all alignments one by one and, where it is installed, PyTorch."""

import itertools
import math

import numpy as np
import pytest
from index_reports import reports_at_once

import norch
import norch.nn.functional as F
from norch import nn
from norch.testing.gradcheck import gradcheck


def chances(steps, count, classes, seed=0):
    x = np.random.default_rng(seed).standard_normal((steps, count, classes))
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def read(path, blank):
    """What a path says: its labels without repeats and blanks."""
    return [c for i, c in enumerate(path) if c != blank and (not i or c != path[i - 1])]


def enumerated(logs, target, blank=0):
    """The loss of one sample and its gradient, by all classes ** steps paths."""
    steps, classes = logs.shape
    total, parts = 0.0, np.zeros(logs.shape)
    for path in itertools.product(range(classes), repeat=steps):
        if read(path, blank) == list(target):
            chance = math.exp(sum(logs[t, c] for t, c in enumerate(path)))
            total += chance
            for t, c in enumerate(path):
                parts[t, c] += chance
    return (-math.log(total), -parts / total) if total else (math.inf, np.zeros(logs.shape))


TARGETS = [
    ([1, 2], 4), ([1, 1], 4), ([], 4), ([2], 1), ([1, 2, 1], 4), ([2, 2], 3), ([], 0), ([3, 3, 3], 5), ([1], 3),
    ([1, 1], 2), ([1], 0),  # these two fit no path
]  # fmt: skip


def batch(blank=0):
    """log_probs (5, N, 4), padded targets, both lengths, the expected losses and their gradients."""
    logs = chances(5, len(TARGETS), 4)
    moved = [[(c + blank) % 4 for c in target] for target, _ in TARGETS]
    padded = np.full((len(TARGETS), 4), -7)
    losses, grads = [], np.zeros(logs.shape)
    for n, (target, steps) in enumerate(zip(moved, [s for _, s in TARGETS], strict=True)):
        padded[n, : len(target)] = target
        loss, grads[:steps, n] = enumerated(logs[:steps, n], target, blank)
        losses.append(loss)
    return logs, padded, [s for _, s in TARGETS], [len(t) for t in moved], np.array(losses), grads


@pytest.mark.parametrize("blank", [0, 2, 3])
@pytest.mark.parametrize("form", ["padded", "joined"])
@pytest.mark.parametrize("kind", ["tuple", "list", "int64", "int32"])
def test_losses_and_gradients_are_those_of_all_alignments(blank, form, kind):
    logs, padded, times, sizes, losses, grads = batch(blank)
    targets = padded if form == "padded" else np.concatenate([row[:n] for row, n in zip(padded, sizes, strict=True)])
    lengths = {"tuple": tuple, "list": list}.get(kind, lambda n: norch.tensor(n, dtype=getattr(norch, kind)))
    x = norch.tensor(logs, requires_grad=True)
    got = F.ctc_loss(x, norch.tensor(targets), lengths(times), lengths(sizes), blank, "none")
    np.testing.assert_allclose(got.detach().cpu().numpy(), losses, rtol=1e-12, atol=1e-12)
    factors = np.linspace(0.5, 2, len(losses))
    (got * norch.tensor(factors)).sum().backward()
    np.testing.assert_allclose(x.grad.cpu().numpy(), grads * factors[:, None], rtol=1e-10, atol=1e-12)


def test_reductions():
    logs, padded, times, sizes, losses, _ = batch()
    finite = np.where(np.isinf(losses), 0, losses)
    args = norch.tensor(logs), norch.tensor(padded), times, sizes
    expected = {"none": finite, "sum": finite.sum(), "mean": (finite / np.maximum(sizes, 1)).mean()}
    for reduction, want in expected.items():
        got = nn.CTCLoss(reduction=reduction, zero_infinity=True)(*args)
        np.testing.assert_allclose(got.cpu().numpy(), want, rtol=1e-12, atol=1e-12)
    assert F.ctc_loss(*args).item() == math.inf
    with pytest.raises(ValueError, match="average"):
        F.ctc_loss(*args, reduction="average")


def test_one_sequence():
    logs, target = chances(4, 1, 3)[:, 0], [1, 2]
    want, grad = enumerated(logs, target)
    for size in ((2,), 2, norch.tensor(2), norch.tensor([2])):
        x = norch.tensor(logs, requires_grad=True)
        loss = F.ctc_loss(x, norch.tensor(target), (4,), size, reduction="none")
        assert loss.shape == ()
        assert loss.item() == pytest.approx(want)
        loss.backward()
        np.testing.assert_allclose(x.grad.cpu().numpy(), grad, atol=1e-12)
    assert F.ctc_loss(norch.tensor(logs), norch.tensor(target), (4,), (2,)).item() == pytest.approx(want / 2)


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_targets_that_fit_no_path_have_no_gradient(zero_infinity):
    x = norch.tensor(chances(2, 2, 3), requires_grad=True)
    loss = F.ctc_loss(x, norch.tensor([[1, 1], [1, 2]]), (2, 2), (2, 2), reduction="none", zero_infinity=zero_infinity)
    assert loss[0].item() == (0 if zero_infinity else math.inf)
    assert math.isfinite(loss[1].item())
    loss.sum().backward()
    assert bool((x.grad[:, 0] == 0).all())
    assert bool(norch.isfinite(x.grad).all())
    assert bool((x.grad[:, 1] != 0).any())


def test_labels_that_never_come():
    """log_probs of -inf are paths that do not happen: no NaN comes of them."""
    logs = chances(4, 1, 3)
    logs[1, 0, 0] = logs[2, 0, 1] = -math.inf
    want, grad = enumerated(logs[:, 0], [1, 2])
    x = norch.tensor(logs, requires_grad=True)
    loss = F.ctc_loss(x, norch.tensor([[1, 2]]), (4,), (2,), reduction="sum")
    assert loss.item() == pytest.approx(want)
    loss.backward()
    np.testing.assert_allclose(x.grad[:, 0].cpu().numpy(), grad, atol=1e-12)
    never = norch.full((3, 1, 2), -math.inf, requires_grad=True)
    loss = F.ctc_loss(never, norch.tensor([[1]]), (3,), (1,))
    assert loss.item() == math.inf
    loss.backward()
    assert bool((never.grad == 0).all())


def test_nan_is_no_path_that_never_comes():
    logs = chances(4, 2, 3)
    logs[1, 0, 1] = math.nan
    x = norch.tensor(logs, requires_grad=True)
    for zero_infinity in (False, True):
        args = norch.tensor([[1], [2]]), (4, 4), (1, 1), 0, "none", zero_infinity
        loss = F.ctc_loss(x, *args)
        assert loss.isnan().tolist() == [True, False]
        x.grad = None
        loss.sum().backward()
        assert x.grad[:, 0].isnan().any().item()
        assert not x.grad[:, 1].isnan().any().item()


def test_reductions_by_pytorchs_numbers():
    logs, padded, times, sizes, _, _ = batch()
    args = norch.tensor(logs), norch.tensor(padded), times, sizes, 0
    for number, name in enumerate(("none", "mean", "sum")):
        found = norch.ctc_loss(*args, number, True)
        norch.testing.assert_close(found, F.ctc_loss(*args, name, True))
    with pytest.raises(ValueError, match="reduction"):
        norch.ctc_loss(*args, 3)


def test_gradients_are_those_of_differences():
    if norch.get_default_device().type != "cpu":
        pytest.skip("differences are taken in memory that NumPy sees")
    x = norch.tensor(np.random.default_rng(3).standard_normal((4, 2, 3)), requires_grad=True)
    target = norch.tensor([[1, 2], [1, 1]])
    for reduction in ("none", "mean", "sum"):
        assert gradcheck(lambda v, r=reduction: F.ctc_loss(v, target, (4, 3), (2, 2), reduction=r), [x])
        assert gradcheck(lambda v, r=reduction: F.ctc_loss(v.log_softmax(2), target, (4, 4), (1, 2), reduction=r), [x])


def test_second_derivatives_are_refused():
    x = norch.tensor(chances(3, 1, 3), requires_grad=True)
    loss = F.ctc_loss(x, norch.tensor([[1]]), (3,), (1,))
    (first,) = norch.autograd.grad(loss, [x], create_graph=True)
    with pytest.raises(norch.AutogradError, match="ctc_loss"):
        norch.autograd.grad(first.sum(), [x])


def test_long_sequences():
    """The chances of single paths underflow; their logarithms do not."""
    x = norch.zeros(600, 2, 5, requires_grad=True)
    loss = F.ctc_loss(x.log_softmax(2), norch.tensor([[1], [2]]), (600, 600), (1, 1), reduction="none")
    # Paths that read as one label: runs of it between blanks, 600 * 601 / 2 of them.
    assert loss.tolist() == pytest.approx([600 * math.log(5) - math.log(600 * 601 / 2)] * 2, rel=1e-5)
    loss.sum().backward()
    np.testing.assert_allclose(x.grad.sum(2).cpu().numpy(), 0, atol=1e-4)


@pytest.mark.parametrize("dtype", [norch.float16, norch.bfloat16])
def test_16_bit_floats_are_computed_in_float32(dtype):
    logs, padded, times, sizes, losses, _ = batch()
    x = norch.tensor(logs).to(dtype).requires_grad_()
    got = F.ctc_loss(x, norch.tensor(padded), times, sizes, reduction="none")
    assert got.dtype is dtype
    np.testing.assert_allclose(got.detach().double().cpu().numpy(), losses, rtol=0.02)
    got.sum().backward()
    assert x.grad.dtype is dtype
    assert bool(norch.isfinite(x.grad).all())


def test_batches_of_nothing():
    x = norch.zeros(3, 0, 4)
    assert F.ctc_loss(x, norch.zeros(0, 2, dtype=norch.int64), (), (), reduction="none").shape == (0,)
    x = norch.zeros(3, 2, 4, requires_grad=True)
    loss = F.ctc_loss(x, norch.zeros(0, dtype=norch.int64), (3, 2), (0, 0), reduction="none")
    assert loss.tolist() == [0, 0]
    loss.sum().backward()
    assert x.grad[:, :, 0].tolist() == [[-1, -1], [-1, -1], [-1, 0]]


def test_what_does_not_fit_is_refused():
    x, t = norch.zeros(3, 2, 4), norch.tensor([[1, 2], [3, 1]])
    for match, error, args in (
        ("input_lengths up to 4 for 3", norch.ShapeError, (x, t, (4, 3), (2, 2))),
        ("1 input_lengths for a batch of 2", norch.ShapeError, (x, t, (3,), (2, 2))),
        ("target_lengths up to 3 for targets", norch.ShapeError, (x, t, (3, 3), (3, 2))),
        ("add up to 3", norch.ShapeError, (x, norch.tensor([1, 2]), (3, 3), (1, 2))),
        ("negative", norch.ShapeError, (x, t, (3, 3), (-1, 2))),
        (r"targets \(1, 2\) do not fit", norch.ShapeError, (x, t[:1], (3, 3), (2, 2))),
        (r"targets \(1, 2\) do not fit", norch.ShapeError, (x[:, 0], t[:1], (3,), (2,))),
        (r"log_probs must be", norch.ShapeError, (x[0, 0], t, (3, 3), (2, 2))),
        ("targets must hold", norch.DTypeError, (x, t > 1, (3, 3), (2, 2))),
        ("log_probs must", norch.DTypeError, (x.long(), t, (3, 3), (2, 2))),
        ("input_lengths must hold integers", norch.DTypeError, (x, t, norch.ones(2), (2, 2))),
        (r"blank must be in \[0, 4\)", ValueError, (x, t, (3, 3), (2, 2), 4)),
        (r"outside \[0, 4\)", norch.IndexError, (x, t + 1, (3, 3), (2, 2))),
        (r"outside \[0, 4\)", norch.IndexError, (x, t - 2, (3, 3), (2, 2))),
    ):
        if error is norch.IndexError and not reports_at_once():
            continue
        with pytest.raises(error, match=match):
            F.ctc_loss(*args)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("shape", [(6, 3, 4, 2), (12, 4, 5, 5), (40, 8, 20, 10)])
def test_losses_are_pytorchs(shape, dtype):
    torch = pytest.importorskip("torch")
    steps, count, classes, longest = shape
    draw = np.random.default_rng(5)
    scores = draw.standard_normal((steps, count, classes)).astype(dtype)
    targets, sizes = draw.integers(1, classes, (count, longest)), draw.integers(0, longest + 1, count)
    times = draw.integers(steps // 2, steps + 1, count)
    for reduction in ("none", "mean", "sum"):
        for zero_infinity in (False, True):
            results = []
            for library in (norch, torch):
                x = library.tensor(scores, requires_grad=True)
                loss = library.nn.functional.ctc_loss(
                    x.log_softmax(2), library.tensor(targets), library.tensor(times), library.tensor(sizes),
                    reduction=reduction, zero_infinity=zero_infinity,
                )  # fmt: skip
                loss.sum().backward()
                results.append((loss.detach().cpu().numpy(), x.grad.cpu().numpy()))
            (loss, grad), (expected, wanted) = results
            tolerance = 1e-10 if dtype == "float64" else 1e-4
            np.testing.assert_allclose(loss, expected, rtol=tolerance)
            # Where no path fits PyTorch's gradients are NaN, unless zero_infinity; norch's are 0.
            np.testing.assert_allclose(grad, np.nan_to_num(wanted), rtol=tolerance, atol=tolerance / 10)


def test_labels_may_be_floating():
    log_probs, labels = norch.randn(6, 2, 4).log_softmax(-1), norch.tensor([[1, 2], [3, 1]])
    losses = [F.ctc_loss(log_probs, t, (6, 6), (2, 2)).item() for t in (labels, labels.float(), labels.bfloat16())]
    assert losses[0] == losses[1] == losses[2]
