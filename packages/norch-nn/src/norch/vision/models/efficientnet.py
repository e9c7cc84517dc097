"""EfficientNet (Tan and Le, 2019) and EfficientNetV2 (Tan and Le, 2021)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import norch
from norch import nn

from ..ops.misc import Conv2dNormActivation, SqueezeExcitation, make_divisible
from ..ops.stochastic_depth import StochasticDepth
from .building import builder, he_fan_out, initialise

Norm = Callable[..., nn.Module]


class _Stage(NamedTuple):
    """A row of the papers' tables: blocks of one kind."""

    fused: bool
    expand: float
    kernel: int
    stride: int
    inputs: int
    outputs: int
    layers: int


class MBConv(nn.Module):
    """Expanded, convolved by channel, squeezed and excited, and narrowed; added to what came in where it fits."""

    def __init__(self, stage: _Stage, stochastic_depth_prob: float, norm_layer: Norm) -> None:
        super().__init__()
        self.use_res_connect = stage.stride == 1 and stage.inputs == stage.outputs
        self.block = nn.Sequential(*self._layers(stage, make_divisible(stage.inputs * stage.expand), norm_layer))
        self.stochastic_depth = StochasticDepth(stochastic_depth_prob, "row")
        self.out_channels = stage.outputs

    def _layers(self, stage: _Stage, wide: int, norm: Norm) -> list[nn.Module]:
        conv = partial(Conv2dNormActivation, norm_layer=norm, activation_layer=nn.SiLU)
        expanded = [] if wide == stage.inputs else [conv(stage.inputs, wide, 1)]
        return [
            *expanded,
            conv(wide, wide, stage.kernel, stage.stride, groups=wide),
            SqueezeExcitation(wide, max(1, stage.inputs // 4), partial(nn.SiLU, inplace=True)),
            conv(wide, stage.outputs, 1, activation_layer=None),
        ]

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        out = self.block(input)
        return self.stochastic_depth(out) + input if self.use_res_connect else out


class FusedMBConv(MBConv):
    """An MBConv whose first two convolutions are one, and which does not squeeze and excite."""

    def _layers(self, stage: _Stage, wide: int, norm: Norm) -> list[nn.Module]:
        conv = partial(Conv2dNormActivation, norm_layer=norm, activation_layer=nn.SiLU)
        if wide == stage.inputs:
            return [conv(stage.inputs, stage.outputs, stage.kernel, stage.stride)]
        return [
            conv(stage.inputs, wide, stage.kernel, stage.stride),
            conv(wide, stage.outputs, 1, activation_layer=None),
        ]


class EfficientNet(nn.Module):
    """The stages of `inverted_residual_setting` and a linear layer: (n, 3, h, w) -> (n, num_classes).

    stochastic_depth_prob: that of the last block; the first has 0. last_channel: by default four times the last
    stage's. Raises ValueError for an empty setting.
    """

    def __init__(
        self,
        inverted_residual_setting: Sequence[_Stage],
        dropout: float,
        stochastic_depth_prob: float = 0.2,
        num_classes: int = 1000,
        norm_layer: Norm | None = None,
        last_channel: int | None = None,
    ) -> None:
        super().__init__()
        norm, setting = norm_layer or nn.BatchNorm2d, inverted_residual_setting
        if not setting:
            raise ValueError("EfficientNet: inverted_residual_setting must not be empty")
        conv = partial(Conv2dNormActivation, norm_layer=norm, activation_layer=nn.SiLU)
        parts: list[nn.Module] = [conv(3, setting[0].inputs, 3, 2)]
        total, made = sum(stage.layers for stage in setting), 0
        for stage in setting:
            kind = FusedMBConv if stage.fused else MBConv
            blocks: list[nn.Module] = []
            for _ in range(stage.layers):
                blocks.append(kind(stage, stochastic_depth_prob * made / total, norm))
                stage, made = stage._replace(stride=1, inputs=stage.outputs), made + 1
            parts.append(nn.Sequential(*blocks))
        channels = setting[-1].outputs
        last = 4 * channels if last_channel is None else last_channel
        self.features = nn.Sequential(*parts, conv(channels, last, 1))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(dropout, inplace=True), nn.Linear(last, num_classes))
        initialise(self, he_fan_out, _uniform)

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        return self.classifier(norch.flatten(self.avgpool(self.features(x)), 1))


def _uniform(weight: norch.Tensor) -> None:
    bound = 1 / math.sqrt(weight.shape[0])
    nn.init.uniform_(weight, -bound, bound)


_B0 = (
    (1, 3, 1, 32, 16, 1),
    (6, 3, 2, 16, 24, 2),
    (6, 5, 2, 24, 40, 2),
    (6, 3, 2, 40, 80, 3),
    (6, 5, 1, 80, 112, 3),
    (6, 5, 2, 112, 192, 4),
    (6, 3, 1, 192, 320, 1),
)
"""Table 1 of the first paper: expansion, kernel, stride, channels in and out, layers."""


def _scaled(width: float, depth: float, dropout: float, norm_layer: Norm | None = None, **options: Any) -> EfficientNet:
    rows = [
        _Stage(False, e, k, s, make_divisible(i * width), make_divisible(o * width), math.ceil(n * depth))
        for e, k, s, i, o, n in _B0
    ]
    return EfficientNet(rows, **{"dropout": dropout, "norm_layer": norm_layer, **options})


_V2_S = (
    (True, 1, 3, 1, 24, 24, 2),
    (True, 4, 3, 2, 24, 48, 4),
    (True, 4, 3, 2, 48, 64, 4),
    (False, 4, 3, 2, 64, 128, 6),
    (False, 6, 3, 1, 128, 160, 9),
    (False, 6, 3, 2, 160, 256, 15),
)
_V2_M = (
    (True, 1, 3, 1, 24, 24, 3),
    (True, 4, 3, 2, 24, 48, 5),
    (True, 4, 3, 2, 48, 80, 5),
    (False, 4, 3, 2, 80, 160, 7),
    (False, 6, 3, 1, 160, 176, 14),
    (False, 6, 3, 2, 176, 304, 18),
    (False, 6, 3, 1, 304, 512, 5),
)
_V2_L = (
    (True, 1, 3, 1, 32, 32, 4),
    (True, 4, 3, 2, 32, 64, 7),
    (True, 4, 3, 2, 64, 96, 7),
    (False, 4, 3, 2, 96, 192, 10),
    (False, 6, 3, 1, 192, 224, 19),
    (False, 6, 3, 2, 224, 384, 25),
    (False, 6, 3, 1, 384, 640, 7),
)


def _v2(rows: Sequence[Any], dropout: float, **options: Any) -> EfficientNet:
    norm = partial(nn.BatchNorm2d, eps=1e-3)
    stages = [_Stage(*row) for row in rows]
    return EfficientNet(stages, **{"dropout": dropout, "norm_layer": norm, "last_channel": 1280, **options})


_tf_norm = partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)
efficientnet_b0 = builder("efficientnet_b0", _scaled, 1.0, 1.0, dropout=0.2, doc="EfficientNet B0")
efficientnet_b1 = builder("efficientnet_b1", _scaled, 1.0, 1.1, dropout=0.2, doc="EfficientNet B1")
efficientnet_b2 = builder("efficientnet_b2", _scaled, 1.1, 1.2, dropout=0.3, doc="EfficientNet B2")
efficientnet_b3 = builder("efficientnet_b3", _scaled, 1.2, 1.4, dropout=0.3, doc="EfficientNet B3")
efficientnet_b4 = builder("efficientnet_b4", _scaled, 1.4, 1.8, dropout=0.4, doc="EfficientNet B4")
efficientnet_b5 = builder("efficientnet_b5", _scaled, 1.6, 2.2, dropout=0.4, norm_layer=_tf_norm, doc="EfficientNet B5")
efficientnet_b6 = builder("efficientnet_b6", _scaled, 1.8, 2.6, dropout=0.5, norm_layer=_tf_norm, doc="EfficientNet B6")
efficientnet_b7 = builder("efficientnet_b7", _scaled, 2.0, 3.1, dropout=0.5, norm_layer=_tf_norm, doc="EfficientNet B7")
efficientnet_v2_s = builder("efficientnet_v2_s", _v2, _V2_S, dropout=0.2, doc="EfficientNetV2-S")
efficientnet_v2_m = builder("efficientnet_v2_m", _v2, _V2_M, dropout=0.3, doc="EfficientNetV2-M")
efficientnet_v2_l = builder("efficientnet_v2_l", _v2, _V2_L, dropout=0.4, doc="EfficientNetV2-L")
