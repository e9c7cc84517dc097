"""What the models of segmentation share: a backbone's maps, classified and brought to the image's size."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import norch
from norch import nn
from norch.nn import functional

from .._utils import IntermediateLayerGetter

GIVES = """a dict: "out" and, with aux_loss=True, "aux", (n, num_classes, h, w) each.
    num_classes: by default 21. weights_backbone: of the backbone alone, as weights"""


def as_large_as(x: norch.Tensor, other: norch.Tensor) -> norch.Tensor:
    return functional.interpolate(x, size=other.shape[-2:], mode="bilinear", align_corners=False)


class _SimpleSegmentationModel(nn.Module):
    """A classifier of a backbone's map "out", and another of "aux" for training."""

    def __init__(self, backbone: nn.Module, classifier: nn.Module, aux_classifier: nn.Module | None = None) -> None:
        super().__init__()
        self.backbone, self.classifier, self.aux_classifier = backbone, classifier, aux_classifier

    def forward(self, x: norch.Tensor) -> dict[str, norch.Tensor]:
        """The classes of each pixel, (n, num_classes, h, w), as "out", and as "aux" where there is aux_classifier."""
        features = self.backbone(x)
        result = OrderedDict(out=as_large_as(self.classifier(features["out"]), x))
        if self.aux_classifier is not None:
            result["aux"] = as_large_as(self.aux_classifier(features["aux"]), x)
        return result


def dilated_resnet(resnet: Callable[..., nn.Module], weights_backbone: Any, aux_loss: bool | None) -> nn.Module:
    """The stages of a ResNet, the last two dilated in place of their strides."""
    backbone = resnet(weights=weights_backbone, replace_stride_with_dilation=[False, True, True])
    return IntermediateLayerGetter(backbone, {"layer4": "out", **({"layer3": "aux"} if aux_loss else {})})
