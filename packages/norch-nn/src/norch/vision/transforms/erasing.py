"""Rectangles of an image that are wiped out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import norch
from norch import nn
from norch.nn.layer import layer
from norch.utils.data import sample_rng as generator

from .images import probability


def erase(
    img: norch.Tensor, i: int, j: int, h: int, w: int, v: norch.Tensor | float, inplace: bool = False
) -> norch.Tensor:
    """`img`, a tensor (..., C, H, W), with `v` in the h x w pixels from row `i` and column `j` on; else TypeError."""
    if not isinstance(img, norch.Tensor):
        raise TypeError(f"erase: expected a tensor, got {type(img).__name__}: put ToTensor first")
    out = img if inplace else img.clone()
    out[..., i : i + h, j : j + w] = v
    return out


@layer()
class RandomErasing(nn.Module):
    """With probability `p`, wipes out a rectangle of a tensor image (..., C, H, W).

    It covers a share of the image between the two numbers of `scale`, and is between the two of `ratio` times as high
    as wide. value: a number, one a channel, or "random" for normal noise. Source: https://arxiv.org/abs/1708.04896.
    Raises ValueError for numbers out of range, ShapeError for an image of fewer dims.
    """

    p: float = 0.5
    scale: Sequence[float] = (0.02, 0.33)
    ratio: Sequence[float] = (0.3, 3.3)
    value: float | Sequence[float] | str = 0
    inplace: bool = False
    _shown = ("p", "scale", "ratio", "value", "inplace")

    def __post_init__(self) -> None:
        value, scale, ratio = self.value, self.scale, self.ratio
        if isinstance(value, str) and value != "random":
            raise ValueError(f"RandomErasing: value must be a number, one a channel, or 'random', got {value!r}")
        if not 0 <= scale[0] <= scale[1] <= 1:
            raise ValueError(f"RandomErasing: scale must be (low, high) between 0 and 1, got {scale!r}")
        if not 0 < ratio[0] <= ratio[1]:
            raise ValueError(f"RandomErasing: ratio must be (low, high), got {ratio!r}")
        probability(self.p, "RandomErasing")

    def forward(self, img: norch.Tensor) -> norch.Tensor:
        if not isinstance(img, norch.Tensor) or img.ndim < 3:
            raise norch.ShapeError("RandomErasing: expected a tensor of shape (..., C, H, W): put ToTensor first")
        draws = generator()
        if draws.random() >= self.p:
            return img
        channels, height, width = img.shape[-3:]
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        for _ in range(10):
            area = height * width * draws.uniform(self.scale[0], self.scale[1])
            aspect = math.exp(draws.uniform(low, high))
            h, w = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if h < height and w < width:
                i, j = int(draws.integers(height - h + 1)), int(draws.integers(width - w + 1))
                if isinstance(self.value, str):
                    noise = draws.standard_normal((channels, h, w))
                    return erase(img, i, j, h, w, norch.from_numpy(noise).to(img.device, img.dtype), self.inplace)
                values = self.value if isinstance(self.value, Sequence) else (self.value,)
                if len(values) not in (1, channels):
                    raise norch.ShapeError(f"RandomErasing: {len(values)} values for {channels} channels")
                patch = norch.tensor(values, dtype=img.dtype, device=img.device).view(-1, 1, 1)
                return erase(img, i, j, h, w, patch, self.inplace)
        return img
