"""MobileNetV3 (Howard et al., 2019)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import norch
from norch import nn

from ..ops.misc import Conv2dNormActivation, SqueezeExcitation, make_divisible
from .building import builder, he_fan_out, initialise, small_normal

_excited = partial(SqueezeExcitation, scale_activation=nn.Hardsigmoid)
_norm = partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)


class InvertedResidualConfig:
    """A row of the paper's tables: channels in, expanded and out times `width_mult`; activation "RE" or "HS"."""

    def __init__(
        self,
        input_channels: int,
        kernel: int,
        expanded_channels: int,
        out_channels: int,
        use_se: bool,
        activation: str,
        stride: int,
        dilation: int,
        width_mult: float,
    ) -> None:
        self.input_channels = self.adjust_channels(input_channels, width_mult)
        self.kernel, self.use_se, self.use_hs = kernel, use_se, activation == "HS"
        self.expanded_channels = self.adjust_channels(expanded_channels, width_mult)
        self.out_channels = self.adjust_channels(out_channels, width_mult)
        self.stride, self.dilation = stride, dilation

    @staticmethod
    def adjust_channels(channels: int, width_mult: float) -> int:
        return make_divisible(channels * width_mult, 8)


class InvertedResidual(nn.Module):
    """Expanded, convolved by channel, squeezed and excited, and narrowed; added to what came in where it fits."""

    def __init__(
        self,
        cnf: InvertedResidualConfig,
        norm_layer: Callable[..., nn.Module],
        se_layer: Callable[..., nn.Module] = _excited,
    ) -> None:
        super().__init__()
        self.use_res_connect = cnf.stride == 1 and cnf.input_channels == cnf.out_channels
        conv = partial(Conv2dNormActivation, norm_layer=norm_layer)
        activation, wide = nn.Hardswish if cnf.use_hs else nn.ReLU, cnf.expanded_channels
        layers: list[nn.Module] = []
        if wide != cnf.input_channels:
            layers.append(conv(cnf.input_channels, wide, 1, activation_layer=activation))
        layers.append(
            conv(
                *(wide, wide, cnf.kernel, 1 if cnf.dilation > 1 else cnf.stride),
                dilation=cnf.dilation,
                groups=wide,
                activation_layer=activation,
            )
        )
        if cnf.use_se:
            layers.append(se_layer(wide, make_divisible(wide // 4, 8)))
        layers.append(conv(wide, cnf.out_channels, 1, activation_layer=None))
        self.block, self.out_channels = nn.Sequential(*layers), cnf.out_channels
        self._is_cn = cnf.stride > 1

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        out = self.block(input)
        return out + input if self.use_res_connect else out


class MobileNetV3(nn.Module):
    """Blocks as `inverted_residual_setting` says, and two linear layers: (n, 3, h, w) -> (n, num_classes).

    last_channel: between the two linear layers. Raises ValueError for an empty setting.
    """

    def __init__(
        self,
        inverted_residual_setting: Sequence[InvertedResidualConfig],
        last_channel: int,
        num_classes: int = 1000,
        block: Callable[..., nn.Module] | None = None,
        norm_layer: Callable[..., nn.Module] | None = None,
        dropout: float = 0.2,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        make, norm, setting = block or InvertedResidual, norm_layer or _norm, inverted_residual_setting
        if not setting:
            raise ValueError("MobileNetV3: inverted_residual_setting must not be empty")
        conv = partial(Conv2dNormActivation, norm_layer=norm, activation_layer=nn.Hardswish)
        last = setting[-1].out_channels
        self.features = nn.Sequential(
            conv(3, setting[0].input_channels, 3, 2), *[make(row, norm) for row in setting], conv(last, 6 * last, 1)
        )
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            *[nn.Linear(6 * last, last_channel), nn.Hardswish(inplace=True), nn.Dropout(dropout, inplace=True)],
            nn.Linear(last_channel, num_classes),
        )
        initialise(self, he_fan_out, small_normal)

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        return self.classifier(norch.flatten(self.avgpool(self.features(x)), 1))


_LARGE = (
    (16, 3, 16, 16, False, "RE", 1),
    (16, 3, 64, 24, False, "RE", 2),
    (24, 3, 72, 24, False, "RE", 1),
    (24, 5, 72, 40, True, "RE", 2),
    (40, 5, 120, 40, True, "RE", 1),
    (40, 5, 120, 40, True, "RE", 1),
    (40, 3, 240, 80, False, "HS", 2),
    (80, 3, 200, 80, False, "HS", 1),
    (80, 3, 184, 80, False, "HS", 1),
    (80, 3, 184, 80, False, "HS", 1),
    (80, 3, 480, 112, True, "HS", 1),
    (112, 3, 672, 112, True, "HS", 1),
    (112, 5, 672, 160, True, "HS", 2),
    (160, 5, 960, 160, True, "HS", 1),
    (160, 5, 960, 160, True, "HS", 1),
)
_SMALL = (
    (16, 3, 16, 16, True, "RE", 2),
    (16, 3, 72, 24, False, "RE", 2),
    (24, 3, 88, 24, False, "RE", 1),
    (24, 5, 96, 40, True, "HS", 2),
    (40, 5, 240, 40, True, "HS", 1),
    (40, 5, 240, 40, True, "HS", 1),
    (40, 5, 120, 48, True, "HS", 1),
    (48, 5, 144, 48, True, "HS", 1),
    (48, 5, 288, 96, True, "HS", 2),
    (96, 5, 576, 96, True, "HS", 1),
    (96, 5, 576, 96, True, "HS", 1),
)
"""Tables 1 and 2: channels in, kernel, expanded, out, squeeze-and-excite, activation, stride."""


def stages(features: nn.Sequential) -> list[int]:
    """The numbers of the blocks that halve the size or would, had they no dilation; of the first and the last."""
    halving = [i for i, block in enumerate(features) if getattr(block, "_is_cn", False)]
    return [0, *halving, len(features) - 1]


def _mobilenet_v3(
    table: Sequence[Any],
    last: int,
    *,
    width_mult: float = 1.0,
    reduced_tail: bool = False,
    dilated: bool = False,
    **options: Any,
) -> MobileNetV3:
    """reduced_tail: half the channels in the last stage. dilated: which is dilated in place of its stride."""
    divisor, tail = 2 if reduced_tail else 1, len(table) - 3
    rows = []
    for i, (inputs, kernel, expanded, outputs, excite, activation, stride) in enumerate(table):
        if i >= tail:
            outputs //= divisor
        if i > tail:
            inputs, expanded = inputs // divisor, expanded // divisor
        dilation = 2 if dilated and i >= tail else 1
        shape = (inputs, kernel, expanded, outputs, excite, activation, stride, dilation)
        rows.append(InvertedResidualConfig(*shape, width_mult))
    last = InvertedResidualConfig.adjust_channels(last // divisor, width_mult)
    return MobileNetV3(rows, last, **options)


mobilenet_v3_large = builder("mobilenet_v3_large", _mobilenet_v3, _LARGE, 1280, doc="MobileNetV3 Large")
mobilenet_v3_small = builder("mobilenet_v3_small", _mobilenet_v3, _SMALL, 1024, doc="MobileNetV3 Small")
