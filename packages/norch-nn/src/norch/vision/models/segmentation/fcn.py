"""Fully convolutional networks on dilated ResNets (Long et al., 2015)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from norch import nn

from ..building import builder
from ..resnet import resnet50, resnet101
from ._utils import GIVES, _SimpleSegmentationModel, dilated_resnet


class FCN(_SimpleSegmentationModel):
    """A classifier of a backbone's last map, and another for training."""


class FCNHead(nn.Sequential):
    """A 3 x 3 convolution to a quarter of in_channels, and a 1 x 1 one to `channels`."""

    def __init__(self, in_channels: int, channels: int) -> None:
        between = in_channels // 4
        super().__init__(
            nn.Conv2d(in_channels, between, 3, padding=1, bias=False),
            nn.BatchNorm2d(between),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Conv2d(between, channels, 1),
        )


def _fcn_resnet(
    resnet: Callable[..., nn.Module],
    *,
    num_classes: int | None = None,
    aux_loss: bool | None = None,
    weights_backbone: Any = None,
) -> FCN:
    classes = 21 if num_classes is None else num_classes
    backbone = dilated_resnet(resnet, weights_backbone, aux_loss)
    return FCN(backbone, FCNHead(2048, classes), FCNHead(1024, classes) if aux_loss else None)


fcn_resnet50 = builder(
    "fcn_resnet50", _fcn_resnet, resnet50, doc="FCN on ResNet-50", gives=GIVES, with_weights={"aux_loss": True}
)
fcn_resnet101 = builder(
    "fcn_resnet101", _fcn_resnet, resnet101, doc="FCN on ResNet-101", gives=GIVES, with_weights={"aux_loss": True}
)
