"""The loss of scores of which each process has those of some classes."""

from __future__ import annotations

from typing import Any

from norch import Tensor

from ...nn import functional as D
from ...reduce_op import ReduceOp
from ...world import get_rank
from . import regions


def vocab_parallel_cross_entropy(
    input: Tensor, target: Tensor, group: Any = None, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    """functional.cross_entropy of scores (*, classes / processes), as ColwiseParallel() leaves them, and `target` (*),
    of which `ignore_index` does not count. Raises ValueError for another reduction.

    No process ever has all scores of a position: three numbers of each are exchanged. reduction: "mean", "sum", "none".
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"vocab_parallel_cross_entropy(): reduction must be mean, sum or none, got {reduction!r}")
    classes = input.shape[-1]
    start = classes * get_rank(group)
    most = D.all_reduce(input.detach().amax(-1), ReduceOp.MAX, group)
    total = regions.leave((input - most.unsqueeze(-1)).exp().sum(-1), group)
    here = (target >= start) & (target < start + classes)
    chosen = input.gather(-1, ((target - start) * here).unsqueeze(-1)).squeeze(-1)
    scores = regions.leave(chosen * here.to(input.dtype), group)
    counted = target != ignore_index
    losses = (total.log() + most - scores) * counted.to(input.dtype)
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / counted.sum().to(input.dtype)
