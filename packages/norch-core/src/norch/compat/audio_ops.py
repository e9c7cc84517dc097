"""The ops of torchaudio's compiled library, computed on the host, so that torchaudio's own Python runs on norch.

With norch in place of PyTorch an installed torchaudio imports this module where it would load its library.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import ops
from ..autograd.function import Function
from ..library import composite_op
from ..ops.from_data import as_tensor
from .lacks import lacking

if TYPE_CHECKING:
    from ..tensor import Tensor

_IS_TORCHAUDIO_EXT_AVAILABLE = _IS_ALIGN_AVAILABLE = True
_BLOCK = 64
"""Samples of a recursion that are computed at once."""


def fail_if_no_align(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _check_cuda_version() -> None:
    pass


def __getattr__(name: str) -> Any:
    """What older versions ask for: the other libraries, of which none is there."""
    if name.startswith("fail_if_no_"):
        return lambda function: lacking("torchaudio", function.__name__, "read audio files by the package soundfile")
    if name.startswith("lazy_import_"):
        return lambda: SimpleNamespace(is_available=lambda: False)
    if name.endswith("_INITIALIZED") or name.startswith("_IS_"):
        return False
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _host(tensor: Tensor, dtype: Any = np.float64) -> np.ndarray:
    return np.asarray(tensor.detach().cpu().numpy(), dtype)


def _like(values: np.ndarray, tensor: Tensor) -> Tensor:
    return as_tensor(values).to(tensor)


def _recursion(x: np.ndarray, a: np.ndarray, before: np.ndarray) -> np.ndarray:
    """y[t] = x[t] - a[1] y[t - 1] - a[2] y[t - 2] ..., by blocks: (n, c, t), (c, 1 + order), (n, c, order) -> (n, c, t)

    A block is the impulse response's triangular Toeplitz matrix times its input, less what comes of the block before.
    """
    channels, order = a.shape[0], a.shape[1] - 1
    size = max(_BLOCK, order)
    response = np.zeros((channels, size))
    response[:, 0] = 1
    for i in range(1, size):
        last = response[:, max(i - order, 0) : i][:, ::-1]
        response[:, i] = -(a[:, 1 : last.shape[1] + 1] * last).sum(1)
    lag = np.subtract.outer(np.arange(size), np.arange(size))
    toeplitz = np.where(lag >= 0, response[:, np.maximum(lag, 0)], 0)
    carried = np.zeros((channels, size, order))
    for i in range(order):
        carried[:, i, i:] = -a[:, :i:-1]
    y = np.empty_like(x)
    for start in range(0, x.shape[2], size):
        block = x[:, :, start : start + size]
        count = block.shape[2]
        block = block + np.einsum("cij,ncj->nci", carried[:, :count], before)
        y[:, :, start : start + count] = np.einsum("cij,ncj->nci", toeplitz[:, :count, :count], block)
        before = np.concatenate([before, y[:, :, start : start + count]], 2)[:, :, count:]
    return y


def _lfilter_core_loop(waveform: Tensor, a_flipped: Tensor, padded: Tensor) -> None:
    order = a_flipped.shape[1] - 1
    x, a = _host(waveform), _host(a_flipped)[:, ::-1]
    padded[:, :, order:] = _like(_recursion(x, a, np.zeros((*x.shape[:2], order))), padded)


class _Recursion(Function):
    """The recursive half of a filter, (n, c, t) and (c, 1 + order), whose gradient is the same filter run backwards."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, a: Tensor) -> Tensor:
        y = _recursion(_host(x), _host(a), np.zeros((*x.shape[:2], a.shape[1] - 1)))
        out = _like(y, x)
        ctx.save_for_backward(a, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        a, out = ctx.saved_tensors
        order = a.shape[1] - 1
        y = _host(out)
        back = _recursion(_host(grad)[:, :, ::-1], _host(a), np.zeros((*y.shape[:2], order)))[:, :, ::-1]
        lags = [-(back[:, :, k:] * y[:, :, : y.shape[2] - k]).sum((0, 2)) for k in range(1, order + 1)]
        return _like(back, grad), _like(np.stack([np.zeros(len(a)), *lags], 1), a)


def _lfilter(waveform: Tensor, a_coeffs: Tensor, b_coeffs: Tensor) -> Tensor:
    """The filter of a rational transfer function, (n, c, t) and twice (c, 1 + order), with gradients."""
    first = a_coeffs[:, :1]
    padded = ops.pad(waveform, (b_coeffs.shape[1] - 1, 0))
    sums = ops.conv1d(padded, (b_coeffs / first).flip(1).unsqueeze(1), groups=waveform.shape[1])
    filtered: Tensor = _Recursion.apply(sums, a_coeffs / first)
    return filtered


def _overdrive_core_loop(waveform: Tensor, temp: Tensor, last_in: Tensor, last_out: Tensor, output: Tensor) -> None:
    x, before = _host(temp), _host(last_in)[:, None]
    steps = np.diff(x, axis=1, prepend=before)[:, None]
    y = _recursion(steps, np.array([[1, -0.995]]), _host(last_out)[:, None, None])[:, 0]
    output[:] = waveform * 0.5 + _like(y * 0.75, output)


def _log_softmax(x: np.ndarray) -> np.ndarray:
    x = x - x.max(-1, keepdims=True)
    found: np.ndarray = x - np.log(np.exp(x).sum(-1, keepdims=True))
    return found


def _rnnt_loss_forward(
    logits: Tensor,
    targets: Tensor,
    logit_lengths: Tensor,
    target_lengths: Tensor,
    blank: int,
    clamp: float,
    fused_log_softmax: bool,
) -> tuple[Tensor, Tensor]:
    """The losses (n,) and their gradients, by the forward and the backward recursion of Graves (2012), diagonal by
    diagonal of (time, label).
    """
    x = _host(logits)
    labels = _host(targets, np.int64)
    costs, grads = np.empty(len(x)), np.zeros_like(x)
    for i, (times, count) in enumerate(zip(_host(logit_lengths, int), _host(target_lengths, int), strict=True)):
        log_probs = x[i, :times, : count + 1]
        log_probs = _log_softmax(log_probs) if fused_log_softmax else log_probs
        costs[i], grad = _transducer(log_probs, labels[i, :count], blank)
        if fused_log_softmax:
            grad -= np.exp(log_probs) * grad.sum(-1, keepdims=True)
        grads[i, :times, : count + 1] = grad if clamp <= 0 else grad.clip(-clamp, clamp)
    return _like(costs, logits), _like(grads, logits)


class _Transducer(Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, *rest: Any) -> Tensor:
        costs, grads = _rnnt_loss_forward(logits, *rest)
        ctx.save_for_backward(grads)
        return costs

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return grad.reshape(-1, 1, 1, 1) * ctx.saved_tensors[0], *[None] * 6


def _rnnt_loss(
    logits: Tensor,
    targets: Tensor,
    logit_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = -1,
    clamp: float = -1,
    fused_log_softmax: bool = True,
) -> tuple[Tensor, None]:
    args = logits, targets, logit_lengths, target_lengths, blank, clamp, fused_log_softmax
    return _Transducer.apply(*args), None


def _transducer(log_probs: np.ndarray, labels: np.ndarray, blank: int) -> tuple[float, np.ndarray]:
    count = len(labels)
    blanks = log_probs[:, :, blank]
    emits = log_probs[:, np.arange(count), labels]
    alpha = _lattice(blanks[:-1], emits, 0.0)
    beta = _lattice(blanks[:-1][::-1, ::-1], emits[::-1, ::-1], blanks[-1, -1])[::-1, ::-1]
    total = beta[0, 0]
    grad = np.zeros_like(log_probs)
    after = np.concatenate([beta[1:], np.full((1, count + 1), -np.inf)])
    after[-1, -1] = 0
    grad[:, :, blank] = -np.exp(alpha + blanks + after - total)
    grad[:, np.arange(count), labels] -= np.exp(alpha[:, :-1] + emits + beta[:, 1:] - total)
    return -total, grad


def _lattice(down: np.ndarray, right: np.ndarray, start: float) -> np.ndarray:
    """Log of the sum over all ways from the first cell, whose value is `start`, to each (t, u): (t - 1, u), (t, u - 1)
    -> (t, u).
    """
    times, count = right.shape[0], right.shape[1]
    sums = np.full((times, count + 1), -np.inf)
    sums[0, 0] = start
    for diagonal in range(1, times + count):
        t = np.arange(max(0, diagonal - count), min(diagonal, times - 1) + 1)
        u = diagonal - t
        above, beside = t > 0, u > 0
        sums[t[above], u[above]] = sums[t[above] - 1, u[above]] + down[t[above] - 1, u[above]]
        left = sums[t[beside], u[beside] - 1] + right[t[beside], u[beside] - 1]
        sums[t[beside], u[beside]] = np.logaddexp(sums[t[beside], u[beside]], left)
    return sums


def _forced_align(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int
) -> tuple[Tensor, Tensor]:
    """The label of each step of the likeliest alignment of CTC, (1, t), by Viterbi's algorithm, and `log_probs`.

    Raises ValueError for a batch, or where the steps are too few for the labels.
    """
    if len(log_probs) != 1:
        raise ValueError(f"forced_align(): one sequence is aligned at a time, got {len(log_probs)}")
    scores = _host(log_probs)[0, : int(input_lengths.item())]
    labels = _host(targets, np.int64)[0, : int(target_lengths.item())]
    repeats = int((labels[1:] == labels[:-1]).sum())
    if len(scores) < len(labels) + repeats:
        raise ValueError(
            f"forced_align(): {len(scores)} steps are too few for {len(labels)} labels, {repeats} repeated"
        )
    states = np.full(2 * len(labels) + 1, blank)
    states[1::2] = labels
    skips = np.zeros(len(states), bool)
    skips[3::2] = labels[1:] != labels[:-1]
    best = np.full(len(states), -np.inf)
    best[:2] = scores[0, states[:2]]
    came = np.zeros((len(scores), len(states)), np.int64)
    for t in range(1, len(scores)):
        padded = np.concatenate([[-np.inf] * 2, best])
        ways = np.stack([best, padded[1:-1], np.where(skips, padded[:-2], -np.inf)])
        came[t] = ways.argmax(0)
        best = ways.max(0) + scores[t, states]
    state = len(states) - 1 if len(states) < 2 or best[-1] > best[-2] else len(states) - 2
    path = np.empty((1, len(scores)), np.int64)
    for t in range(len(scores) - 1, -1, -1):
        path[0, t] = states[state]
        state -= came[t, state]
    return _like(path, targets), log_probs


_OPS: dict[str, Callable[..., Any]] = {
    "_lfilter_core_loop": _lfilter_core_loop,
    "_lfilter": _lfilter,
    "_overdrive_core_loop": _overdrive_core_loop,
    "rnnt_loss_forward": _rnnt_loss_forward,
    "rnnt_loss": _rnnt_loss,
    "forced_align": _forced_align,
}
for _name, _function in _OPS.items():
    composite_op(f"torchaudio::{_name}", _function)
