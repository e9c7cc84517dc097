"""Connectionist temporal classification (Graves et al., 2006)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import norch

from .loss_arguments import check_reduction, floating

Lengths = norch.Tensor | Sequence[int] | int

# Stands for log(0): sums of it stay finite, so that no difference of two is NaN.
_NEVER = -1e30


def ctc_loss(
    log_probs: norch.Tensor,
    targets: norch.Tensor,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> norch.Tensor:
    """Minus the log-probability that a sequence of labels and blanks reads as target, once repeats and blanks go
    (Graves et al., 2006).

    log_probs: (T, N, C) or (T, C), logarithms of probabilities. targets: labels in [0, C) without the blank, (N, S)
    with padding of any value, or one after another, (sum(target_lengths)). The lengths, `input_lengths` and
    `target_lengths`, (N) or (), are tensors, tuples or lists. reduction: "mean" divides each loss by its target's
    length before the mean over N. A target that does not fit its input has loss inf, or 0 with `zero_infinity`, and in
    both cases no gradient (PyTorch's is NaN without zero_infinity). The gradient is that by log_probs as such;
    PyTorch's is that by the input of the log_softmax. Raises ShapeError for shapes and lengths that do not fit,
    DTypeError unless log_probs are floating and targets integers, IndexError for a label outside [0, C), ValueError for
    such a `blank`, and AutogradError for second derivatives, as PyTorch does.
    """
    op = "ctc_loss"
    check_reduction(op, reduction)
    floating(op, "log_probs", log_probs)
    if targets.is_floating_point() or targets.dtype is norch.bool:
        raise norch.DTypeError(f"{op}(): targets must hold labels (integers), got {targets.dtype}")
    if log_probs.ndim not in (2, 3):
        raise norch.ShapeError(f"{op}(): log_probs must be (T, N, C) or (T, C), got {tuple(log_probs.shape)}")
    batched = log_probs.ndim == 3
    logs = log_probs if batched else log_probs.unsqueeze(1)
    steps, count, classes = logs.shape
    if not 0 <= blank < classes:
        raise ValueError(f"{op}(): blank must be in [0, {classes}), the classes of log_probs, got {blank}")
    times = _lengths("input_lengths", input_lengths, count)
    sizes = _lengths("target_lengths", target_lengths, count)
    if max(times, default=0) > steps:
        raise norch.ShapeError(f"{op}(): input_lengths up to {max(times)} for {steps} steps of log_probs")
    labels = _labels(targets.to(log_probs.device), sizes, blank, batched)
    loss = _Alignments.apply(logs, labels, times, sizes, blank)
    if zero_infinity:
        loss = norch.where(loss == math.inf, 0.0, loss)
    if reduction == "mean":
        return (loss / loss.new_tensor([max(n, 1) for n in sizes])).mean()
    return loss.sum() if reduction == "sum" else loss if batched else loss.squeeze(0)


def _lengths(name: str, lengths: Lengths, count: int) -> list[int]:
    """The lengths as numbers: how long the loop is depends on them."""
    if isinstance(lengths, norch.Tensor):
        if lengths.is_floating_point():
            raise norch.DTypeError(f"ctc_loss(): {name} must hold integers, got {lengths.dtype}")
        lengths = lengths.reshape(-1).tolist()
    found = [lengths] if isinstance(lengths, int) else [int(n) for n in lengths]
    if len(found) != count:
        raise norch.ShapeError(f"ctc_loss(): {len(found)} {name} for a batch of {count}")
    if min(found, default=0) < 0:
        raise norch.ShapeError(f"ctc_loss(): {name} must not be negative, got {min(found)}")
    return found


def _labels(targets: norch.Tensor, sizes: list[int], blank: int, batched: bool) -> norch.Tensor:
    """The labels as (N, S), blank behind each target's end."""
    longest, count, shape = max(sizes, default=0), len(sizes), tuple(targets.shape)
    places = norch.arange(longest, device=targets.device)
    used = places < targets.new_tensor(sizes, dtype=norch.int64).unsqueeze(1)
    if targets.ndim == 1:
        if shape[0] != sum(sizes):
            raise norch.ShapeError(
                f"ctc_loss(): targets {shape} one after another, but target_lengths add up to {sum(sizes)}"
            )
        starts = [sum(sizes[:i]) for i in range(count)]
        index = norch.where(used, places + targets.new_tensor(starts, dtype=norch.int64).unsqueeze(1), 0)
        rows = targets.long().take(index) if shape[0] else index
    elif targets.ndim == 2 and shape[0] == count and batched:
        if shape[1] < longest:
            raise norch.ShapeError(f"ctc_loss(): target_lengths up to {longest} for targets {shape}")
        rows = targets.long().narrow(1, 0, longest)
    else:
        expected = f"({count}, S) or (sum of target_lengths)" if batched else "(S)"
        raise norch.ShapeError(f"ctc_loss(): targets {shape} do not fit a batch of {count}: expected {expected}")
    return norch.where(used, rows, blank)


class _Lattice:
    """Where each sample may be: before the start, and at the states blank, label, blank, ..., label, blank.

    Paths step to the same state, the next, or, if that is a label other than the last, the next but one. Tensors over
    places have two more than states: one before the start, and one from which nothing comes.
    """

    def __init__(self, logs: norch.Tensor, labels: norch.Tensor, blank: int) -> None:
        steps, self.count, classes = logs.shape
        width = labels.shape[1]
        blanks = labels.new_full((self.count, width + 1), blank)
        # A negative label is out of range; gather would count it from the end.
        known = norch.where(labels < 0, classes, labels)
        states = norch.stack([blanks.narrow(1, 0, width), known], 2).reshape(self.count, 2 * width)
        states = norch.cat([states, blanks.narrow(1, 0, 1)], 1)
        self.states = 2 * width + 1
        self.index = states.unsqueeze(0).expand(steps, self.count, self.states)

        never = logs.new_full((self.count, width + 1), _NEVER)
        skip = logs.new_zeros((self.count, width))
        if width > 1:
            same = labels.narrow(1, 1, width - 1) == labels.narrow(1, 0, width - 1)
            skip = norch.cat([skip.narrow(1, 0, 1), norch.where(same, _NEVER, skip.narrow(1, 1, width - 1))], 1)
        skips = norch.stack([never.narrow(1, 0, width), skip], 2).reshape(self.count, 2 * width)
        skips = norch.cat([skips, never.narrow(1, 0, 1)], 1)
        free = norch.zeros_like(skips)
        self.cost = norch.stack([skips, free, free], 1)


class _Alignments(norch.autograd.Function):
    """The loss of each sample: inf where no path reads as the target."""

    @staticmethod
    def forward(
        ctx: Any, logs: norch.Tensor, labels: norch.Tensor, times: list[int], sizes: list[int], blank: int
    ) -> norch.Tensor:
        given, dtype, shape = logs, logs.dtype, logs.shape
        logs = logs.float() if dtype.itemsize < 4 else logs
        lattice = _Lattice(logs, labels, blank)
        try:
            emissions = norch.gather(logs, 2, lattice.index).clamp(min=_NEVER)
        except norch.IndexError:
            raise norch.IndexError(f"ctc_loss(): a label is outside [0, {shape[2]}), log_probs' classes") from None

        count, states, longest = lattice.count, lattice.states, max(times, default=0)
        # How likely it is to be at each place after each step.
        alphas = logs.new_full((longest + 1, count, states + 2), _NEVER)
        alphas[0, :, 1] = 0.0
        written = alphas.narrow(2, 2, states)
        transitions: list[norch.Tensor] = []
        for step in range(longest):
            paths = alphas[step].unfold(1, states, 1) + lattice.cost
            shares = paths.log_softmax(1)
            # The largest share is minus the logarithm of how much more the sum is than the largest path.
            written[step + 1].copy_(paths.amax(1) - shares.amax(1) + emissions[step])
            transitions.append(shares)

        last = labels.new_tensor([[2 * n + 1, 2 * n + 2] for n in sizes]).reshape(-1, 2)
        end = labels.new_tensor(times).reshape(1, -1, 1).expand(1, count, states + 2)
        ends = alphas.gather(0, end).squeeze(0).gather(1, last)
        shares = ends.log_softmax(1)
        chance = ends.amax(1) - shares.amax(1)
        possible = chance > 0.5 * _NEVER
        ctx.save_for_backward(given, shares.exp(), last, possible, lattice.index, *transitions)
        ctx.times, ctx.shape, ctx.dtype = times, shape, dtype
        return norch.where(possible, -chance, math.inf).to(dtype)

    @staticmethod
    def backward(ctx: Any, grad: norch.Tensor) -> tuple[norch.Tensor | None, ...]:
        given, *saved = ctx.saved_tensors
        with norch.no_grad():
            found = _posterior(ctx, grad, *saved)
        return _Once.apply(grad, given, found), None, None, None, None


def _posterior(
    ctx: Any,
    grad: norch.Tensor,
    ends: norch.Tensor,
    last: norch.Tensor,
    possible: norch.Tensor,
    index: norch.Tensor,
    *transitions: norch.Tensor,
) -> norch.Tensor:
    """The gradient by the log-probabilities: minus how likely each label is at each step, given the target."""
    steps, count, states = index.shape
    weight = norch.where(possible, -grad.to(ends.dtype), 0.0).unsqueeze(1)
    finish = ends.new_zeros((count, states + 2)).scatter_add(1, last, ends * weight)
    times = last.new_tensor(ctx.times).unsqueeze(1)
    emissions = ends.new_zeros((steps, count, states))
    at = norch.zeros_like(finish)
    # Rows of zeros around what came from each of three places; a view slanted by one sums it where it came from.
    width = states + 4
    parts = ends.new_zeros((count, 3, width))
    inner = parts.narrow(2, 2, states)
    slanted = norch.as_strided(parts, (count, 3, states + 2), (3 * width, width - 1, 1), 2)
    for step in range(len(transitions), 0, -1):
        if step in ctx.times:
            at = at + norch.where(times == step, finish, 0.0)
        here = at.narrow(1, 2, states)
        emissions[step - 1].copy_(here)
        inner.copy_(transitions[step - 1].exp() * here.unsqueeze(1))
        at = slanted.sum(1)
    return ends.new_zeros(ctx.shape).scatter_add(2, index, emissions).to(ctx.dtype)


class _Once(norch.autograd.Function):
    """Hands on a gradient that cannot be differentiated again."""

    @staticmethod
    def forward(ctx: Any, grad: norch.Tensor, logs: norch.Tensor, found: norch.Tensor) -> norch.Tensor:
        return found

    @staticmethod
    def backward(ctx: Any, grad: norch.Tensor) -> tuple[norch.Tensor | None, ...]:
        raise norch.AutogradError("ctc_loss(): the second derivative is not there, as in PyTorch")
