"""A softmax over very many classes, of which the rare ones cost little."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import norch

from . import functional as F
from .container import ModuleList, Sequential
from .linear import Linear
from .module import Module


class ASMoutput(NamedTuple):
    """output: the log probability of each sample's target. loss: minus their mean."""

    output: norch.Tensor
    loss: norch.Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """The log probability of the target among `n_classes`, sorted from frequent to rare: after Grave et al. (2017).

    The head has the classes below `cutoffs[0]` and one for each cluster of rarer ones, between one cutoff and the next;
    the cluster i computes from in_features // div_value ** (i + 1) features. head_bias: whether the head has one.
    Raises ValueError unless cutoffs are ints that grow, from 1 on and below n_classes.
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        cutoffs = list(cutoffs)
        whole = all(int(c) == c for c in cutoffs)
        if not cutoffs or not whole or any(a >= b for a, b in pairwise([0, *cutoffs, n_classes])):
            raise ValueError(
                f"AdaptiveLogSoftmaxWithLoss: cutoffs must be ints that grow, from 1 on and below n_classes="
                f"{n_classes}, got {cutoffs}"
            )
        self.in_features, self.n_classes, self.div_value, self.head_bias = in_features, n_classes, div_value, head_bias
        self.cutoffs = [*cutoffs, n_classes]
        self.shortlist_size, self.n_clusters = cutoffs[0], len(cutoffs)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, head_bias, device, dtype)
        self.tail = ModuleList()
        for i, (low, high) in enumerate(pairwise(self.cutoffs)):
            inner = int(in_features // div_value ** (i + 1))
            parts = Linear(in_features, inner, False, device, dtype), Linear(inner, high - low, False, device, dtype)
            self.tail.append(Sequential(*parts))

    def reset_parameters(self) -> None:
        """Draws the weights again from the default generator."""
        self.head.reset_parameters()
        for first, second in self.tail:  # type: ignore[misc]
            first.reset_parameters()
            second.reset_parameters()

    def forward(self, input_: norch.Tensor, target_: norch.Tensor) -> ASMoutput:
        """Of `input_` (N, in_features) or (in_features,), and classes `target_` (N,) or (). Raises ShapeError for
        others, IndexError for a target that is no class."""
        alone = input_.ndim == 1
        if input_.ndim not in (1, 2) or tuple(target_.shape) != tuple(input_.shape[:-1]):
            raise norch.ShapeError(
                "AdaptiveLogSoftmaxWithLoss: expected input (N, in_features) and target (N), or (in_features) and (), "
                f"got {tuple(input_.shape)} and {tuple(target_.shape)}"
            )
        input, target = (input_.unsqueeze(0), target_.unsqueeze(0)) if alone else (input_, target_)
        if bool(((target < 0) | (target >= self.n_classes)).any()):
            raise norch.IndexError(f"AdaptiveLogSoftmaxWithLoss: targets must be from 0 to {self.n_classes - 1}")
        head = F.log_softmax(self.head(input), 1)
        place = target
        parts = []
        for i, (low, high) in enumerate(pairwise(self.cutoffs)):
            inside = (target >= low) & (target < high)
            rows = inside.nonzero().squeeze(1)
            if rows.numel():
                place = place.masked_fill(inside, self.shortlist_size + i)
                found = F.log_softmax(self.tail[i](input.index_select(0, rows)), 1)
                parts.append((rows, found.gather(1, (target.index_select(0, rows) - low).unsqueeze(1)).squeeze(1)))
        output = head.gather(1, place.unsqueeze(1)).squeeze(1)
        for rows, found in parts:
            output = output.index_add(0, rows, found)
        loss = (-output).mean()
        return ASMoutput(output.squeeze(0) if alone else output, loss)

    def log_prob(self, input: norch.Tensor) -> norch.Tensor:
        """The log probabilities of all classes: (N, in_features) -> (N, n_classes)."""
        head = F.log_softmax(self.head(input), 1)
        short = self.shortlist_size
        parts = [
            F.log_softmax(cluster(input), 1) + head[:, short + i].unsqueeze(1) for i, cluster in enumerate(self.tail)
        ]
        return norch.cat([head[:, :short], *parts], 1)

    def predict(self, input: norch.Tensor) -> norch.Tensor:
        """The likeliest class: (N, in_features) -> (N), as `log_prob(input).argmax(1)`, but clusters are computed for
        those samples alone whose class is in one."""
        found = self.head(input).argmax(1)
        rows = (found >= self.shortlist_size).nonzero().squeeze(1)
        if not rows.numel():
            return found
        return found.index_copy(0, rows, self.log_prob(input.index_select(0, rows)).argmax(1))
