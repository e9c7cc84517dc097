"""Branches left out at random while a model is trained: "Deep Networks with Stochastic Depth" (Huang et al., 2016)."""

from __future__ import annotations

import norch
from norch import nn


def stochastic_depth(input: norch.Tensor, p: float, mode: str, training: bool = True) -> norch.Tensor:
    """In training 0 with probability `p`, else divided by 1 - p: the whole input ("batch") or each sample ("row").

    Raises ValueError for a p that is no probability and for another mode. After Huang et al. (2016).
    """
    if not 0 <= p <= 1:
        raise ValueError(f"stochastic_depth(): p must be from 0 to 1, got {p}")
    if mode not in ("batch", "row"):
        raise ValueError(f"stochastic_depth(): mode must be 'batch' or 'row', got {mode!r}")
    if not training or not p:
        return input
    kept = 1 - p
    shape = (input.shape[0] if mode == "row" else 1, *[1] * (input.ndim - 1))
    noise = norch.bernoulli(norch.full(shape, kept, dtype=input.dtype, device=input.device))
    return input * (noise / kept if kept else noise)


class StochasticDepth(nn.Module):
    """`stochastic_depth` with these p and mode."""

    def __init__(self, p: float, mode: str) -> None:
        super().__init__()
        self.p, self.mode = p, mode

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return stochastic_depth(input, self.p, self.mode, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}, mode={self.mode}"
