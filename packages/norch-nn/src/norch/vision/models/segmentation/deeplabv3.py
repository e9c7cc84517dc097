"""DeepLabV3: convolutions of several dilations side by side (Chen et al., 2017)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import norch
from norch import nn

from .._utils import IntermediateLayerGetter
from ..building import builder
from ..mobilenetv3 import mobilenet_v3_large, stages
from ..resnet import resnet50, resnet101
from ._utils import GIVES, _SimpleSegmentationModel, as_large_as, dilated_resnet
from .fcn import FCNHead


class DeepLabV3(_SimpleSegmentationModel):
    """A classifier of a backbone's last map that looks at several distances, and another for training."""


def _normed(in_channels: int, out_channels: int, size: int = 1, **options: Any) -> list[nn.Module]:
    conv = nn.Conv2d(in_channels, out_channels, size, bias=False, **options)
    return [conv, nn.BatchNorm2d(out_channels), nn.ReLU()]


class ASPPConv(nn.Sequential):
    """A dilated 3 x 3 convolution with norm and activation."""

    def __init__(self, in_channels: int, out_channels: int, dilation: int) -> None:
        super().__init__(*_normed(in_channels, out_channels, 3, padding=dilation, dilation=dilation))


class ASPPPooling(nn.Sequential):
    """The mean of a map, convolved, for each of its pixels."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(nn.AdaptiveAvgPool2d(1), *_normed(in_channels, out_channels))

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        return as_large_as(super().forward(x), x)


class ASPP(nn.Module):
    """A 1 x 1 convolution, one of each of atrous_rates and the map's mean, projected to out_channels."""

    def __init__(self, in_channels: int, atrous_rates: Sequence[int], out_channels: int = 256) -> None:
        super().__init__()
        dilated = [ASPPConv(in_channels, out_channels, rate) for rate in atrous_rates]
        first, mean = nn.Sequential(*_normed(in_channels, out_channels)), ASPPPooling(in_channels, out_channels)
        self.convs = nn.ModuleList([first, *dilated, mean])
        self.project = nn.Sequential(*_normed(len(self.convs) * out_channels, out_channels), nn.Dropout(0.5))

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        return self.project(norch.cat([conv(x) for conv in self.convs], dim=1))


class DeepLabHead(nn.Sequential):
    """`ASPP`, a 3 x 3 convolution and a 1 x 1 one to num_classes."""

    def __init__(self, in_channels: int, num_classes: int, atrous_rates: Sequence[int] = (12, 24, 36)) -> None:
        super().__init__(
            ASPP(in_channels, atrous_rates), *_normed(256, 256, 3, padding=1), nn.Conv2d(256, num_classes, 1)
        )


def _deeplabv3_resnet(
    resnet: Callable[..., nn.Module],
    *,
    num_classes: int | None = None,
    aux_loss: bool | None = None,
    weights_backbone: Any = None,
) -> DeepLabV3:
    classes = 21 if num_classes is None else num_classes
    backbone = dilated_resnet(resnet, weights_backbone, aux_loss)
    return DeepLabV3(backbone, DeepLabHead(2048, classes), FCNHead(1024, classes) if aux_loss else None)


def _deeplabv3_mobilenetv3(
    *, num_classes: int | None = None, aux_loss: bool | None = None, weights_backbone: Any = None
) -> DeepLabV3:
    classes = 21 if num_classes is None else num_classes
    features = mobilenet_v3_large(weights=weights_backbone, dilated=True).features
    aux, out = (stages(features)[i] for i in (-4, -1))
    backbone = IntermediateLayerGetter(features, {str(out): "out", **({str(aux): "aux"} if aux_loss else {})})
    other = FCNHead(features[aux].out_channels, classes) if aux_loss else None
    return DeepLabV3(backbone, DeepLabHead(features[out].out_channels, classes), other)


_made = partial(builder, gives=GIVES, with_weights={"aux_loss": True})
deeplabv3_resnet50 = _made("deeplabv3_resnet50", _deeplabv3_resnet, resnet50, doc="DeepLabV3 on ResNet-50")
deeplabv3_resnet101 = _made("deeplabv3_resnet101", _deeplabv3_resnet, resnet101, doc="DeepLabV3 on ResNet-101")
deeplabv3_mobilenet_v3_large = _made(
    "deeplabv3_mobilenet_v3_large", _deeplabv3_mobilenetv3, doc="DeepLabV3 on MobileNetV3 Large"
)
