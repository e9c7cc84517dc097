"""The ops that torchaudio's Python calls, against loops over samples, paths and alignments."""

from __future__ import annotations

from itertools import combinations, groupby, product

import numpy as np
import pytest

import norch
from norch.compat import audio_ops


def filtered(x: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    y = np.zeros_like(x)
    for n, c, t in np.ndindex(x.shape):
        past = [(k, t - k) for k in range(a.shape[1]) if t >= k]
        total = sum(b[c, k] * x[n, c, i] for k, i in past)
        y[n, c, t] = (total - sum(a[c, k] * y[n, c, i] for k, i in past if k)) / a[c, 0]
    return y


@pytest.mark.parametrize(("order", "length"), [(1, 5), (2, 130), (4, 64), (6, 3), (70, 150)])
def test_filters_are_their_recursion(order: int, length: int) -> None:
    rng = np.random.default_rng(order)
    x, b = rng.standard_normal((2, 3, length)), rng.standard_normal((3, order + 1))
    a = np.concatenate([rng.uniform(1, 2, (3, 1)), rng.uniform(-1, 1, (3, order)) / order], 1)
    wanted = filtered(x, a, b)
    found = norch.ops.torchaudio._lfilter(norch.tensor(x), norch.tensor(a), norch.tensor(b))
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-9, atol=1e-12)
    padded = norch.zeros(2, 3, length + order, dtype=norch.float64)
    norch.ops.torchaudio._lfilter_core_loop(norch.tensor(x), norch.tensor(a / a[:, :1]).flip(1), padded)
    np.testing.assert_allclose(padded.numpy()[:, :, order:], filtered(x, a / a[:, :1], np.eye(order + 1)[[0] * 3]))


def test_gradients_of_filters() -> None:
    rng = np.random.default_rng(0)
    x, a = norch.tensor(rng.standard_normal((2, 2, 70))), norch.tensor([[1.5, 0.3, -0.2], [1, 0.1, 0.4]]).double()
    b = norch.tensor(rng.standard_normal((2, 3)))
    inputs = [t.requires_grad_() for t in (x, a, b)]
    assert norch.autograd.gradcheck(norch.ops.torchaudio._lfilter, inputs)


def test_overdrive_is_its_recursion() -> None:
    rng = np.random.default_rng(0)
    x, temp, last_in, last_out = (rng.standard_normal(s).astype("f") for s in ((2, 150), (2, 150), 2, 2))
    out = norch.zeros(2, 150)
    norch.ops.torchaudio._overdrive_core_loop(*map(norch.tensor, (x, temp, last_in, last_out)), out)
    for i in range(150):
        last_out = temp[:, i] - last_in + 0.995 * last_out
        last_in = temp[:, i]
        np.testing.assert_allclose(out[:, i].numpy(), x[:, i] * 0.5 + last_out * 0.75, rtol=2e-5, atol=2e-6)


def transducer(log_probs: norch.Tensor, labels: list[int], blank: int) -> norch.Tensor:
    """Minus the log of the sum over all paths, each the steps at which it takes its labels."""
    times, ways = len(log_probs), []
    for steps in combinations(range(times - 1 + len(labels)), len(labels)):
        t = u = 0
        total = log_probs.new_zeros(())
        for step in range(times - 1 + len(labels)):
            if step in steps:
                total, u = total + log_probs[t, u, labels[u]], u + 1
            else:
                total, t = total + log_probs[t, u, blank], t + 1
        ways.append(total + log_probs[t, u, blank])
    return -norch.stack(ways).logsumexp(0)


@pytest.mark.parametrize("fused", [True, False])
def test_rnnt_loss_sums_over_all_paths(fused: bool) -> None:
    rng = np.random.default_rng(1)
    logits = norch.tensor(rng.standard_normal((3, 4, 4, 5)), requires_grad=True)
    targets, lengths = norch.tensor([[1, 2, 1], [3, 3, 4], [1, 1, 1]]).int(), ([4, 3, 1], [3, 2, 0])
    args = targets, norch.tensor(lengths[0]).int(), norch.tensor(lengths[1]).int()
    costs, _ = norch.ops.torchaudio.rnnt_loss(logits, *args, blank=0, clamp=-1, fused_log_softmax=fused)
    weights = norch.tensor([1.0, 2.0, 3.0]).double()
    (found,) = norch.autograd.grad((costs * weights).sum(), logits)
    log_probs = logits.log_softmax(-1) if fused else logits
    wanted = norch.stack([
        transducer(log_probs[i, :t], targets[i, :u].tolist(), 0) for i, (t, u) in enumerate(zip(*lengths, strict=True))
    ])  # fmt: skip
    np.testing.assert_allclose(costs.detach().numpy(), wanted.detach().numpy(), rtol=1e-10)
    (wanted,) = norch.autograd.grad((wanted * weights).sum(), logits)
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), atol=1e-10)
    _, grads = norch.ops.torchaudio.rnnt_loss_forward(logits, *args, 0, 0.1, fused)
    assert grads.abs().max().item() <= 0.1


@pytest.mark.parametrize("labels", [[1, 2], [2, 2], [1], [1, 2, 1], []])
def test_forced_alignment_is_the_likeliest(labels: list[int]) -> None:
    log_probs = norch.tensor(np.random.default_rng(2).standard_normal((1, 5, 3))).log_softmax(-1)
    args = norch.tensor([5]), norch.tensor([len(labels)])
    path, scores = norch.ops.torchaudio.forced_align(log_probs, norch.tensor([labels]).long().reshape(1, -1), *args, 0)
    assert scores is log_probs

    def score(path: tuple[int, ...]) -> float:
        return sum(log_probs[0, t, k].item() for t, k in enumerate(path))

    fits = [p for p in product(range(3), repeat=5) if [k for k, _ in groupby(p) if k] == labels]
    assert tuple(path[0].tolist()) == max(fits, key=score)


def test_alignments_that_are_none() -> None:
    log_probs = norch.zeros(1, 2, 3)
    align = norch.ops.torchaudio.forced_align
    with pytest.raises(ValueError, match="2 steps are too few for 2 labels, 1 repeated"):
        align(log_probs, norch.tensor([[1, 1]]), norch.tensor([2]), norch.tensor([2]), 0)
    with pytest.raises(ValueError, match="one sequence is aligned at a time, got 2"):
        align(norch.zeros(2, 2, 3), norch.tensor([[1], [1]]), norch.tensor([2]), norch.tensor([1]), 0)


def test_what_older_versions_ask_for() -> None:
    assert audio_ops._FFMPEG_INITIALIZED is audio_ops._IS_KALDI_AVAILABLE is False
    assert not audio_ops.lazy_import_sox_ext().is_available()
    with pytest.raises(NotImplementedError, match="norch has no torchaudio.play; read audio files"):
        audio_ops.fail_if_no_sox(play)()
    with pytest.raises(AttributeError):
        audio_ops.nothing


def play() -> None:
    pass
