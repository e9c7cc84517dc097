"""MobileNetV2 (Sandler et al., 2018)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import norch
from norch import nn

from ..ops.misc import Conv2dNormActivation, make_divisible
from .building import builder, he_fan_out, initialise, small_normal

_SETTING = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""The paper's table 2: expansion, channels, blocks, stride of the first."""


class InvertedResidual(nn.Module):
    """Expanded, convolved by channel, and narrowed; added to what came in where the shape is the same."""

    def __init__(
        self,
        inp: int,
        oup: int,
        stride: int,
        expand_ratio: int,
        norm_layer: Callable[..., nn.Module] | None = None,
    ) -> None:
        super().__init__()
        if stride not in (1, 2):
            raise ValueError(f"InvertedResidual: stride must be 1 or 2, got {stride}")
        norm, hidden = norm_layer or nn.BatchNorm2d, round(inp * expand_ratio)
        self.stride, self.out_channels = stride, oup
        self.use_res_connect = stride == 1 and inp == oup
        layers: list[nn.Module] = []
        if expand_ratio != 1:
            layers.append(Conv2dNormActivation(inp, hidden, 1, norm_layer=norm, activation_layer=nn.ReLU6))
        layers += [
            Conv2dNormActivation(hidden, hidden, 3, stride, None, hidden, norm, nn.ReLU6),
            nn.Conv2d(hidden, oup, 1, bias=False),
            norm(oup),
        ]
        self.conv = nn.Sequential(*layers)

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


class MobileNetV2(nn.Module):
    """(n, 3, h, w) -> (n, num_classes). width_mult: all channels times this, to multiples of `round_nearest`.

    inverted_residual_setting: (expansion, channels, blocks, stride of the first) for each stage. Raises ValueError for
    rows that are not four numbers.
    """

    def __init__(
        self,
        num_classes: int = 1000,
        width_mult: float = 1.0,
        inverted_residual_setting: Sequence[Sequence[int]] | None = None,
        round_nearest: int = 8,
        block: Callable[..., nn.Module] | None = None,
        norm_layer: Callable[..., nn.Module] | None = None,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        make, norm = block or InvertedResidual, norm_layer or nn.BatchNorm2d
        setting = inverted_residual_setting or _SETTING
        if any(len(row) != 4 for row in setting):
            raise ValueError(f"MobileNetV2: inverted_residual_setting must have rows of four numbers, got {setting}")
        channels = make_divisible(32 * width_mult, round_nearest)
        self.last_channel = make_divisible(1280 * max(1.0, width_mult), round_nearest)
        layers: list[nn.Module] = [
            Conv2dNormActivation(3, channels, stride=2, norm_layer=norm, activation_layer=nn.ReLU6)
        ]
        for expansion, wanted, count, stride in setting:
            outputs = make_divisible(wanted * width_mult, round_nearest)
            for i in range(count):
                layers.append(make(channels, outputs, 1 if i else stride, expand_ratio=expansion, norm_layer=norm))
                channels = outputs
        layers.append(Conv2dNormActivation(channels, self.last_channel, 1, norm_layer=norm, activation_layer=nn.ReLU6))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(self.last_channel, num_classes))
        initialise(self, he_fan_out, small_normal)

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        x = nn.functional.adaptive_avg_pool2d(self.features(x), (1, 1))
        return self.classifier(norch.flatten(x, 1))


mobilenet_v2 = builder("mobilenet_v2", MobileNetV2, doc="MobileNetV2")
