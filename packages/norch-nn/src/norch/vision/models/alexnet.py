"""AlexNet, as in "One weird trick for parallelizing convolutional neural networks" (Krizhevsky, 2014)."""

from __future__ import annotations

import norch
from norch import nn

from .building import builder


class AlexNet(nn.Module):
    """Five convolutions, pooled to 6 x 6, and three linear layers: (n, 3, h, w) -> (n, num_classes)."""

    def __init__(self, num_classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for outputs, kernel, stride, padding, pooled in (
            *((64, 11, 4, 2, True), (192, 5, 1, 2, True), (384, 3, 1, 1, False), (256, 3, 1, 1, False)),
            (256, 3, 1, 1, True),
        ):
            layers += [nn.Conv2d(channels, outputs, kernel, stride, padding), nn.ReLU(inplace=True)]
            if pooled:
                layers.append(nn.MaxPool2d(3, 2))
            channels = outputs
        self.features, self.avgpool = nn.Sequential(*layers), nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = nn.Sequential(
            *[nn.Dropout(dropout), nn.Linear(256 * 6 * 6, 4096), nn.ReLU(inplace=True)],
            *[nn.Dropout(dropout), nn.Linear(4096, 4096), nn.ReLU(inplace=True)],
            nn.Linear(4096, num_classes),
        )

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        return self.classifier(norch.flatten(self.avgpool(self.features(x)), 1))


alexnet = builder("alexnet", AlexNet, doc="AlexNet")
