"""VGG (Simonyan and Zisserman, 2014), with and without batch normalization."""

from __future__ import annotations

from collections.abc import Sequence

import norch
from norch import nn

from .building import builder, he_fan_out_relu, initialise, small_normal

cfgs: dict[str, list[int | str]] = {
    "A": [64, "M", 128, "M", *[256] * 2, "M", *[512] * 2, "M", *[512] * 2, "M"],
    "B": [64, 64, "M", 128, 128, "M", *[256] * 2, "M", *[512] * 2, "M", *[512] * 2, "M"],
    "D": [64, 64, "M", 128, 128, "M", *[256] * 3, "M", *[512] * 3, "M", *[512] * 3, "M"],
    "E": [64, 64, "M", 128, 128, "M", *[256] * 4, "M", *[512] * 4, "M", *[512] * 4, "M"],
}
"""The columns of the paper's table 1: channels of each convolution, and M, where a pooling halves the size."""


def make_layers(cfg: Sequence[int | str], batch_norm: bool = False) -> nn.Sequential:
    """The convolutions and poolings of a column of `cfgs`."""
    layers: list[nn.Module] = []
    channels = 3
    for entry in cfg:
        if isinstance(entry, str):
            layers.append(nn.MaxPool2d(2, 2))
            continue
        layers.append(nn.Conv2d(channels, entry, 3, padding=1))
        if batch_norm:
            layers.append(nn.BatchNorm2d(entry))
        layers.append(nn.ReLU(inplace=True))
        channels = entry
    return nn.Sequential(*layers)


class VGG(nn.Module):
    """`features`, pooled to 7 x 7, and three linear layers: (n, 3, h, w) -> (n, num_classes)."""

    def __init__(
        self, features: nn.Module, num_classes: int = 1000, init_weights: bool = True, dropout: float = 0.5
    ) -> None:
        super().__init__()
        self.features, self.avgpool = features, nn.AdaptiveAvgPool2d((7, 7))
        hidden = [nn.ReLU(True), nn.Dropout(dropout)]
        self.classifier = nn.Sequential(
            *[nn.Linear(512 * 7 * 7, 4096), *hidden, nn.Linear(4096, 4096), nn.ReLU(True), nn.Dropout(dropout)],
            nn.Linear(4096, num_classes),
        )
        if init_weights:
            initialise(self, he_fan_out_relu, small_normal)

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        return self.classifier(norch.flatten(self.avgpool(self.features(x)), 1))


def _vgg(column: str, batch_norm: bool, **options: object) -> VGG:
    return VGG(make_layers(cfgs[column], batch_norm), **options)  # type: ignore[arg-type]


vgg11, vgg11_bn = builder("vgg11", _vgg, "A", False), builder("vgg11_bn", _vgg, "A", True)
vgg13, vgg13_bn = builder("vgg13", _vgg, "B", False), builder("vgg13_bn", _vgg, "B", True)
vgg16, vgg16_bn = builder("vgg16", _vgg, "D", False), builder("vgg16_bn", _vgg, "D", True)
vgg19, vgg19_bn = builder("vgg19", _vgg, "E", False), builder("vgg19_bn", _vgg, "E", True)
