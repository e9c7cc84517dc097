"""Lite R-ASPP: two maps of a MobileNetV3, classified and added (Howard et al., 2019)."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import norch
from norch import nn

from .._utils import IntermediateLayerGetter
from ..building import builder
from ..mobilenetv3 import mobilenet_v3_large, stages
from ._utils import GIVES, as_large_as


class LRASPP(nn.Module):
    """`LRASPPHead` on a backbone's maps "low" and "high", brought to the image's size.

    low_channels, high_channels: of the two maps. inter_channels: between.
    """

    def __init__(
        self, backbone: nn.Module, low_channels: int, high_channels: int, num_classes: int, inter_channels: int = 128
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.classifier = LRASPPHead(low_channels, high_channels, num_classes, inter_channels)

    def forward(self, input: norch.Tensor) -> dict[str, norch.Tensor]:
        """The classes of each pixel, (n, num_classes, h, w), as "out"."""
        return OrderedDict(out=as_large_as(self.classifier(self.backbone(input)), input))


class LRASPPHead(nn.Module):
    """The map "high", each channel times a number found from its mean, and the larger map "low", classified."""

    def __init__(self, low_channels: int, high_channels: int, num_classes: int, inter_channels: int) -> None:
        super().__init__()
        self.cbr = nn.Sequential(
            nn.Conv2d(high_channels, inter_channels, 1, bias=False), nn.BatchNorm2d(inter_channels), nn.ReLU(True)
        )
        self.scale = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(high_channels, inter_channels, 1, bias=False), nn.Sigmoid()
        )
        self.low_classifier = nn.Conv2d(low_channels, num_classes, 1)
        self.high_classifier = nn.Conv2d(inter_channels, num_classes, 1)

    def forward(self, input: dict[str, norch.Tensor]) -> norch.Tensor:
        low, high = input["low"], input["high"]
        wide = as_large_as(self.cbr(high) * self.scale(high), low)
        return self.low_classifier(low) + self.high_classifier(wide)


def _lraspp(*, num_classes: int | None = None, aux_loss: bool | None = None, weights_backbone: Any = None) -> LRASPP:
    if aux_loss:
        raise NotImplementedError("lraspp_mobilenet_v3_large has no auxiliary loss")
    features = mobilenet_v3_large(weights=weights_backbone, dilated=True).features
    low, high = (stages(features)[i] for i in (-4, -1))
    backbone = IntermediateLayerGetter(features, {str(low): "low", str(high): "high"})
    channels = features[low].out_channels, features[high].out_channels
    return LRASPP(backbone, *channels, 21 if num_classes is None else num_classes)


lraspp_mobilenet_v3_large = builder(
    "lraspp_mobilenet_v3_large",
    _lraspp,
    doc="Lite R-ASPP on MobileNetV3 Large",
    gives=GIVES,
)
