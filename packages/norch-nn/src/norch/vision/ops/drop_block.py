"""Dropout of squares of a map (Ghiasi et al., 2018)."""

from __future__ import annotations

import math

import norch
from norch import nn
from norch.nn import functional


def drop_block2d(
    input: norch.Tensor, p: float, block_size: int, inplace: bool = False, eps: float = 1e-06, training: bool = True
) -> norch.Tensor:
    """In training blocks of side `block_size` of (n, c, h, w) become 0, and the rest grows by what is lost.

    p: the part of the elements that is to become 0. block_size: odd, at most h and w. inplace: changes the input. eps:
    added to the number of what remains. After Ghiasi et al. (2018). Raises ValueError for other p, block_size or dims.
    """
    return _drop_block(input, p, block_size, inplace, eps, training, 2)


def drop_block3d(
    input: norch.Tensor, p: float, block_size: int, inplace: bool = False, eps: float = 1e-06, training: bool = True
) -> norch.Tensor:
    """`drop_block2d` of inputs (n, c, d, h, w), in cubes."""
    return _drop_block(input, p, block_size, inplace, eps, training, 3)


def _drop_block(
    input: norch.Tensor, p: float, block_size: int, inplace: bool, eps: float, training: bool, dims: int
) -> norch.Tensor:
    if not 0 <= p <= 1:
        raise ValueError(f"drop_block{dims}d(): p must be from 0 to 1, got {p}")
    if input.ndim != dims + 2:
        raise ValueError(f"drop_block{dims}d(): expected {dims + 2} dims, got shape {tuple(input.shape)}")
    if not training or p == 0:
        return input
    sizes = input.shape[2:]
    block = min(block_size, *sizes)
    if block % 2 == 0:
        raise ValueError(f"drop_block{dims}d(): block_size must be odd, got {block}")
    centres = [size - block + 1 for size in sizes]  # of blocks that lie within
    gamma = p * math.prod(sizes) / block**dims / math.prod(centres)
    drawn = norch.full((*input.shape[:2], *centres), min(gamma, 1.0), dtype=input.dtype, device=input.device)
    seeds = functional.pad(norch.bernoulli(drawn), [block // 2] * (2 * dims))
    spread = functional.max_pool2d if dims == 2 else functional.max_pool3d
    kept = 1 - spread(seeds, block, stride=1, padding=block // 2)
    scale = kept.numel() / (eps + kept.sum())
    return input.mul_(kept).mul_(scale) if inplace else input * kept * scale


class DropBlock2d(nn.Module):
    """`drop_block2d` with these p, block_size, inplace and eps."""

    def __init__(self, p: float, block_size: int, inplace: bool = False, eps: float = 1e-06) -> None:
        super().__init__()
        self.p, self.block_size, self.inplace, self.eps = p, block_size, inplace, eps

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return drop_block2d(input, self.p, self.block_size, self.inplace, self.eps, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}, block_size={self.block_size}, inplace={self.inplace}"


class DropBlock3d(DropBlock2d):
    """`drop_block3d` with these p, block_size, inplace and eps."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return drop_block3d(input, self.p, self.block_size, self.inplace, self.eps, self.training)
