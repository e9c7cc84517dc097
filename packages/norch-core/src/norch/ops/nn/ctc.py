"""Connectionist temporal classification (Graves et al., 2006)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ...autograd.function import Function
from ...autograd.mode import no_grad
from ...dispatch.arguments import check_functions
from ...dtype import bool_, int64
from ...errors import AutogradError, DTypeError, IndexError, ShapeError
from ...spec import Spec
from ...tensor_base import TensorBase
from ..creation import arange, zeros_like
from ..elementwise.arithmetic import where
from ..families import composite
from ..indexing import gather
from ..reduction.reductions import logsumexp
from ..shape.joining import cat, stack
from ..shape.padding import pad
from ..shape.strided import as_strided
from .loss import check_reduction
from .softmax import softmax

if TYPE_CHECKING:
    from ...tensor import Tensor

Lengths: TypeAlias = "Tensor | Sequence[int] | int"

# Stands for log(0): sums of it stay finite, so that no difference of two is NaN.
_NEVER = -1e30


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    reduction: str | int = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Minus the log-probability that a sequence of labels and blanks reads as target, once repeats and blanks go
    (Graves et al., 2006).

    log_probs: (T, N, C) or (T, C), logarithms of probabilities. targets: labels in [0, C) without the blank, as numbers
    of any dtype, (N, S) with padding of any value, or one after another, (sum(target_lengths)). The lengths,
    `input_lengths` and `target_lengths`, (N) or (), are tensors, tuples or lists. reduction: "none", "mean" or "sum",
    or 0, 1 or 2, which stand for them; "mean" divides each loss by its target's length before the mean over N. A target
    that does not fit its input has loss inf, or 0 with `zero_infinity`, and in both cases no gradient (PyTorch's is NaN
    without zero_infinity). The gradient is that by log_probs as such; PyTorch's is that by the input of the
    log_softmax. Raises ShapeError for shapes and lengths that do not fit, DTypeError unless log_probs are floating and
    targets numbers, IndexError for a label outside [0, C), ValueError for such a `blank`, and AutogradError for second
    derivatives, as PyTorch does.
    """
    op = "ctc_loss"
    if type(reduction) is int and 0 <= reduction <= 2:
        reduction = ("none", "mean", "sum")[reduction]
    check_reduction(reduction, op)  # type: ignore[arg-type]
    if not log_probs.is_floating_point():
        raise DTypeError(f"{op}(): log_probs must have a floating dtype, got {log_probs.dtype}")
    if targets.is_floating_point():
        targets = targets.long()
    if targets.dtype is bool_:
        raise DTypeError(f"{op}(): targets must hold labels (integers), got {targets.dtype}")
    if log_probs.ndim not in (2, 3):
        raise ShapeError(f"{op}(): log_probs must be (T, N, C) or (T, C), got {tuple(log_probs.shape)}")
    batched = log_probs.ndim == 3
    logs = log_probs if batched else log_probs.unsqueeze(1)
    steps, count, classes = logs.shape
    if not 0 <= blank < classes:
        raise ValueError(f"{op}(): blank must be in [0, {classes}), the classes of log_probs, got {blank}")
    times = _lengths("input_lengths", input_lengths, count)
    sizes = _lengths("target_lengths", target_lengths, count)
    if max(times, default=0) > steps:
        raise ShapeError(f"{op}(): input_lengths up to {max(times)} for {steps} steps of log_probs")
    labels = _labels(targets.to(log_probs.device), sizes, blank, batched)
    loss: Tensor = _Alignments.apply(logs, labels, times, sizes, blank)
    if zero_infinity:
        loss = where(loss == math.inf, 0.0, loss)
    if reduction == "mean":
        return (loss / loss.new_tensor([max(n, 1) for n in sizes])).mean()
    return loss.sum() if reduction == "sum" else loss if batched else loss.squeeze(0)


def _lengths(name: str, lengths: Lengths, count: int) -> list[int]:
    """The lengths as numbers: how long the loop is depends on them."""
    if isinstance(lengths, TensorBase):
        if lengths.is_floating_point():
            raise DTypeError(f"ctc_loss(): {name} must hold integers, got {lengths.dtype}")
        lengths = lengths.reshape(-1).tolist()
    found = [lengths] if isinstance(lengths, int) else [int(n) for n in lengths]
    if len(found) != count:
        raise ShapeError(f"ctc_loss(): {len(found)} {name} for a batch of {count}")
    if min(found, default=0) < 0:
        raise ShapeError(f"ctc_loss(): {name} must not be negative, got {min(found)}")
    return found


def _labels(targets: Tensor, sizes: list[int], blank: int, batched: bool) -> Tensor:
    """The labels as (N, S), blank behind each target's end."""
    longest, count, shape = max(sizes, default=0), len(sizes), tuple(targets.shape)
    places = arange(longest, device=targets.device)
    used = places < targets.new_tensor(sizes, dtype=int64).unsqueeze(1)
    if targets.ndim == 1:
        if shape[0] != sum(sizes):
            raise ShapeError(
                f"ctc_loss(): targets {shape} one after another, but target_lengths add up to {sum(sizes)}"
            )
        starts = [sum(sizes[:i]) for i in range(count)]
        index = where(used, places + targets.new_tensor(starts, dtype=int64).unsqueeze(1), 0)
        rows = targets.long().take(index) if shape[0] else index
    elif targets.ndim == 2 and shape[0] == count and batched:
        if shape[1] < longest:
            raise ShapeError(f"ctc_loss(): target_lengths up to {longest} for targets {shape}")
        rows = targets.long().narrow(1, 0, longest)
    else:
        expected = f"({count}, S) or (sum of target_lengths)" if batched else "(S)"
        raise ShapeError(f"ctc_loss(): targets {shape} do not fit a batch of {count}: expected {expected}")
    return where(used, rows, blank)


class _Lattice:
    """Where each sample may be: before the start, and at the states blank, label, blank, ..., label, blank.

    Paths step to the same state, the next, or, if that is a label other than the last, the next but one. Tensors over
    places have two more than states: one before the start, and one from which nothing comes. `cost`: (N, 3, states),
    what these paths cost, the longest first.
    """

    def __init__(self, like: Tensor, labels: Tensor, classes: int, blank: int) -> None:
        count, width = labels.spec.shape
        self.states = 2 * width + 1
        blanks = labels.new_full((count, width + 1), blank)
        states = stack([blanks.narrow(1, 0, width), labels], 2).reshape(count, 2 * width)
        self.labels = cat([states, blanks.narrow(1, 0, 1)], 1)

        never = like.new_full((count, width + 1), _NEVER)
        skip = like.new_zeros((count, width))
        if width > 1:
            same = labels.narrow(1, 1, width - 1) == labels.narrow(1, 0, width - 1)
            skip = cat([skip.narrow(1, 0, 1), where(same, _NEVER, skip.narrow(1, 1, width - 1))], 1)
        skips = stack([never.narrow(1, 0, width), skip], 2).reshape(count, 2 * width)
        skips = cat([skips, never.narrow(1, 0, 1)], 1)
        free = zeros_like(skips)
        self.cost = stack([skips, free, free], 1)


class _Alignments(Function):
    """The loss of each sample: inf where no path reads as the target."""

    @staticmethod
    def forward(ctx: Any, logs: Tensor, labels: Tensor, times: list[int], sizes: list[int], blank: int) -> Tensor:
        given, (steps, _, classes) = logs, logs.shape
        logs = logs.float() if logs.dtype.itemsize < 4 else logs
        longest = max(times, default=0)
        if longest < steps:
            logs = logs.narrow(0, 0, longest)
        lengths = labels.new_tensor(times, dtype=int64), labels.new_tensor(sizes, dtype=int64)
        try:
            loss, alphas = ctc_alphas(logs, labels, *lengths, blank)
        except IndexError:
            raise IndexError(f"ctc_loss(): a label is outside [0, {classes}), log_probs' classes") from None
        ctx.save_for_backward(given, labels, *lengths, alphas)
        ctx.blank = blank
        return loss.to(given.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        given, labels, times, sizes, alphas = ctx.saved_tensors
        steps, _, classes = given.shape
        with no_grad():
            found = ctc_grad(grad.to(alphas.dtype), labels, times, sizes, alphas, classes, ctx.blank)
            if len(found) < steps:
                found = pad(found, (0, 0, 0, 0, 0, steps - len(found)))
            found = found.to(given.dtype)
        return _Once.apply(grad, given, found), None, None, None, None


class _Once(Function):
    """Hands on a gradient that cannot be differentiated again."""

    @staticmethod
    def forward(ctx: Any, grad: Tensor, logs: Tensor, found: Tensor) -> Tensor:
        return found

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        raise AutogradError("ctc_loss(): the second derivative is not there, as in PyTorch")


def _infer_alphas(logs: Spec, labels: Spec, times: Spec, sizes: Spec, blank: int) -> tuple[Spec, Spec]:
    steps, count, _ = logs.shape
    return logs.like((count,)), logs.like((steps + 1, count, 2 * labels.shape[1] + 3))


@composite(_infer_alphas, native="floating")
def ctc_alphas(logs: Tensor, labels: Tensor, times: Tensor, sizes: Tensor, blank: int) -> tuple[Tensor, Tensor]:
    """The loss of each sample, and the logarithms of how likely each place is after each step, in which samples that
    have ended may have anything.

    logs: (T, N, C). labels: (N, S), those after a sample's end within range. times, sizes: (N), lengths of both. Places
    are those of `_Lattice`, (T + 1, N, 2 S + 3). Raises IndexError for a label outside [0, C).
    """
    steps, count, classes = logs.spec.shape
    lattice = _Lattice(logs, labels, classes, blank)
    states = lattice.states
    # A negative label is out of range; gather would count it from the end.
    index = where(lattice.labels < 0, classes, lattice.labels).unsqueeze(0).expand(steps, count, states)
    emissions = gather(logs, 2, index).clamp(min=_NEVER)
    alphas = logs.new_full((steps + 1, count, states + 2), _NEVER)
    alphas[0, :, 1] = 0.0
    written = alphas.narrow(2, 2, states)
    for step in range(steps):
        paths = alphas[step].unfold(1, states, 1) + lattice.cost
        written[step + 1].copy_(logsumexp(paths, 1) + emissions[step])
    chance = logsumexp(_ends(alphas, times, sizes)[0], 1)
    return where(chance <= 0.5 * _NEVER, math.inf, -chance), alphas


def _ends(alphas: Tensor, times: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Of each sample the two places where its paths end, after its last step, and which they are: (N, 2)."""
    count, places = alphas.spec.shape[1:]
    last = stack([2 * sizes + 1, 2 * sizes + 2], 1)
    end = times.reshape(1, count, 1).expand(1, count, places)
    return gather(gather(alphas, 0, end).squeeze(0), 1, last), last


def _infer_grad(grad: Spec, labels: Spec, times: Spec, sizes: Spec, alphas: Spec, classes: int, blank: int) -> Spec:
    return alphas.like((alphas.shape[0] - 1, alphas.shape[1], classes))


@composite(_infer_grad, native="floating")
def ctc_grad(
    grad: Tensor, labels: Tensor, times: Tensor, sizes: Tensor, alphas: Tensor, classes: int, blank: int
) -> Tensor:
    """The gradient of logs: minus `grad` times how likely each label is at each step, given the target."""
    steps, (count, places) = alphas.spec.shape[0] - 1, alphas.spec.shape[1:]
    lattice, states = _Lattice(alphas, labels, classes, blank), places - 2
    ends, last = _ends(alphas, times, sizes)
    weight = where(logsumexp(ends, 1) <= 0.5 * _NEVER, 0.0, -grad).unsqueeze(1)
    finish = alphas.new_zeros((count, places)).scatter_add(1, last, softmax(ends, 1) * weight)
    # Where paths come from that are at a place: shares of the last state but one, the last and the same.
    shares = softmax(alphas.narrow(0, 0, steps).unfold(2, states, 1) + lattice.cost, 2)
    emissions = alphas.new_zeros((steps, count, states))
    at, times = zeros_like(finish), times.unsqueeze(1)
    # Rows of zeros around what came from each of three places; a view slanted by one sums it where it came from.
    width = states + 4
    parts = alphas.new_zeros((count, 3, width))
    inner = parts.narrow(2, 2, states)
    slanted = as_strided(parts, (count, 3, places), (3 * width, width - 1, 1), 2)
    for step in range(steps, 0, -1):
        at = at + where(times == step, finish, 0.0)
        here = at.narrow(1, 2, states)
        emissions[step - 1].copy_(here)
        inner.copy_(shares[step - 1] * here.unsqueeze(1))
        at = slanted.sum(1)
    index = lattice.labels.unsqueeze(0).expand(steps, count, states)
    return alphas.new_zeros((steps, count, classes)).scatter_add(2, index, emissions)


check_functions(globals())
