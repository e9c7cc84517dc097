"""SqueezeNet (Iandola et al., 2016)."""

from __future__ import annotations

import norch
from norch import nn

from .building import builder, initialise


class Fire(nn.Module):
    """A 1 x 1 convolution to few channels, then 1 x 1 and 3 x 3 ones side by side."""

    def __init__(self, inplanes: int, squeeze_planes: int, expand1x1_planes: int, expand3x3_planes: int) -> None:
        super().__init__()
        self.inplanes = inplanes
        self.squeeze, self.squeeze_activation = nn.Conv2d(inplanes, squeeze_planes, 1), nn.ReLU(inplace=True)
        self.expand1x1 = nn.Conv2d(squeeze_planes, expand1x1_planes, 1)
        self.expand1x1_activation = nn.ReLU(inplace=True)
        self.expand3x3 = nn.Conv2d(squeeze_planes, expand3x3_planes, 3, padding=1)
        self.expand3x3_activation = nn.ReLU(inplace=True)

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        x = self.squeeze_activation(self.squeeze(x))
        near, far = self.expand1x1_activation(self.expand1x1(x)), self.expand3x3_activation(self.expand3x3(x))
        return norch.cat([near, far], 1)


_FIRES = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
_VERSIONS = {"1_0": ((96, 7), (0, 3, 7)), "1_1": ((64, 3), (0, 2, 4))}
"""Channels and kernel of the first convolution, and before which of the eight Fires a pooling stands."""


class SqueezeNet(nn.Module):
    """(n, 3, h, w) -> (n, num_classes). version: "1_0" or "1_1", which has fewer computations.

    Raises ValueError for another version.
    """

    def __init__(self, version: str = "1_0", num_classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        if version not in _VERSIONS:
            raise ValueError(f"SqueezeNet: version must be one of {', '.join(_VERSIONS)}, got {version!r}")
        self.num_classes = num_classes
        (channels, kernel), pooled = _VERSIONS[version]
        layers: list[nn.Module] = [nn.Conv2d(3, channels, kernel, 2), nn.ReLU(inplace=True)]
        for i, (squeeze, expand) in enumerate(_FIRES):
            if i in pooled:
                layers.append(nn.MaxPool2d(3, 2, ceil_mode=True))
            layers.append(Fire(channels, squeeze, expand, expand))
            channels = 2 * expand
        self.features = nn.Sequential(*layers)
        last = nn.Conv2d(512, num_classes, 1)
        self.classifier = nn.Sequential(nn.Dropout(dropout), last, nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d((1, 1)))
        initialise(self, nn.init.kaiming_uniform_)
        nn.init.normal_(last.weight, 0.0, 0.01)

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        return norch.flatten(self.classifier(self.features(x)), 1)


squeezenet1_0 = builder("squeezenet1_0", SqueezeNet, "1_0", doc="SqueezeNet 1.0")
squeezenet1_1 = builder("squeezenet1_1", SqueezeNet, "1_1", doc="SqueezeNet 1.1")
