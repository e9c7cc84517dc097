"""ConvNeXt (Liu et al., 2022)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import norch
from norch import nn

from ..ops.misc import Conv2dNormActivation, Permute
from ..ops.stochastic_depth import StochasticDepth
from .building import builder, initialise


class LayerNorm2d(nn.LayerNorm):
    """LayerNorm over the channels of (n, c, h, w)."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return super().forward(input.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


_norm2d = partial(LayerNorm2d, eps=1e-6)


class CNBlockConfig(NamedTuple):
    """A stage: its channels, those of the next (None for the last), how many blocks."""

    input_channels: int
    out_channels: int | None
    num_layers: int


class CNBlock(nn.Module):
    """A 7 x 7 convolution by channel, a norm and two linear layers on each pixel, added to what came in."""

    def __init__(
        self,
        dim: int,
        layer_scale: float,
        stochastic_depth_prob: float,
        norm_layer: Callable[..., nn.Module] | None = None,
    ) -> None:
        super().__init__()
        norm = norm_layer or partial(nn.LayerNorm, eps=1e-6)
        self.block = nn.Sequential(
            *[nn.Conv2d(dim, dim, 7, padding=3, groups=dim), Permute([0, 2, 3, 1]), norm(dim)],
            *[nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim), Permute([0, 3, 1, 2])],
        )
        self.layer_scale = nn.Parameter(norch.ones(dim, 1, 1) * layer_scale)
        self.stochastic_depth = StochasticDepth(stochastic_depth_prob, "row")

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return self.stochastic_depth(self.layer_scale * self.block(input)) + input


class ConvNeXt(nn.Module):
    """The stages of `block_setting`, between them halved sizes: (n, 3, h, w) -> (n, num_classes).

    stochastic_depth_prob: that of the last block; the first has 0. layer_scale: the first factor of each channel.
    Raises ValueError for an empty block_setting.
    """

    def __init__(
        self,
        block_setting: Sequence[CNBlockConfig],
        stochastic_depth_prob: float = 0.0,
        layer_scale: float = 1e-6,
        num_classes: int = 1000,
        block: Callable[..., nn.Module] | None = None,
        norm_layer: Callable[..., nn.Module] | None = None,
    ) -> None:
        super().__init__()
        make, norm = block or CNBlock, norm_layer or _norm2d
        if not block_setting:
            raise ValueError("ConvNeXt: block_setting must not be empty")
        first = block_setting[0].input_channels
        parts: list[nn.Module] = [
            Conv2dNormActivation(3, first, 4, 4, 0, norm_layer=norm, activation_layer=None, bias=True)
        ]
        total, made = sum(stage.num_layers for stage in block_setting), 0
        for channels, after, count in block_setting:
            probabilities = [stochastic_depth_prob * (made + i) / (total - 1.0) for i in range(count)]
            parts.append(nn.Sequential(*[make(channels, layer_scale, p) for p in probabilities]))
            made += count
            if after is not None:
                parts.append(nn.Sequential(norm(channels), nn.Conv2d(channels, after, 2, 2)))
        self.features, self.avgpool = nn.Sequential(*parts), nn.AdaptiveAvgPool2d(1)
        last = block_setting[-1].out_channels or block_setting[-1].input_channels
        self.classifier = nn.Sequential(norm(last), nn.Flatten(1), nn.Linear(last, num_classes))
        narrow = partial(nn.init.trunc_normal_, std=0.02)
        initialise(self, narrow, narrow)

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        return self.classifier(self.avgpool(self.features(x)))


def _convnext(channels: Sequence[int], layers: Sequence[int], **options: float) -> ConvNeXt:
    stages = [CNBlockConfig(*row) for row in zip(channels, [*channels[1:], None], layers)]
    return ConvNeXt(stages, **options)  # type: ignore[arg-type]


_tiny, _deep = (3, 3, 9, 3), (3, 3, 27, 3)
convnext_tiny = builder(
    "convnext_tiny", _convnext, (96, 192, 384, 768), _tiny, stochastic_depth_prob=0.1, doc="ConvNeXt Tiny"
)
convnext_small = builder(
    "convnext_small", _convnext, (96, 192, 384, 768), _deep, stochastic_depth_prob=0.4, doc="ConvNeXt Small"
)
convnext_base = builder(
    "convnext_base", _convnext, (128, 256, 512, 1024), _deep, stochastic_depth_prob=0.5, doc="ConvNeXt Base"
)
convnext_large = builder(
    "convnext_large", _convnext, (192, 384, 768, 1536), _deep, stochastic_depth_prob=0.5, doc="ConvNeXt Large"
)
