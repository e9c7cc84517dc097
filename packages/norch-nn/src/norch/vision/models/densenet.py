"""DenseNet (Huang et al., 2017)."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import norch
from norch import nn
from norch.utils.checkpoint import checkpoint

from .building import builder, initialise

_OLD_KEY = re.compile(r"(.*denselayer\d+\.(?:norm|conv))\.(\d\..*)")
"""As the files of torchvision have it, which were made when a layer's parts could have dots in their names."""


class _DenseLayer(nn.Module):
    def __init__(self, inputs: int, growth_rate: int, bn_size: int, drop_rate: float, memory_efficient: bool) -> None:
        super().__init__()
        hidden = bn_size * growth_rate
        self.norm1, self.relu1 = nn.BatchNorm2d(inputs), nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(inputs, hidden, 1, bias=False)
        self.norm2, self.relu2 = nn.BatchNorm2d(hidden), nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(hidden, growth_rate, 3, padding=1, bias=False)
        self.drop_rate, self.memory_efficient = drop_rate, memory_efficient

    def _narrow(self, *features: norch.Tensor) -> norch.Tensor:
        return self.conv1(self.relu1(self.norm1(norch.cat(features, 1))))

    def forward(self, features: list[norch.Tensor]) -> norch.Tensor:
        if self.memory_efficient and any(feature.requires_grad for feature in features):
            narrow = checkpoint(self._narrow, *features, use_reentrant=False)
        else:
            narrow = self._narrow(*features)
        out = self.conv2(self.relu2(self.norm2(narrow)))
        return nn.functional.dropout(out, self.drop_rate, self.training) if self.drop_rate else out


class _DenseBlock(nn.ModuleDict):
    """Layers of which each is given what came in and all that those before it made."""

    def __init__(self, count: int, inputs: int, growth_rate: int, *rest: Any) -> None:
        super().__init__()
        for i in range(count):
            self.add_module(f"denselayer{i + 1}", _DenseLayer(inputs + i * growth_rate, growth_rate, *rest))

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        features = [x]
        for layer in self.values():
            features.append(layer(features))
        return norch.cat(features, 1)


class DenseNet(nn.Module):
    """Blocks of `block_config` layers, each of which adds `growth_rate` channels: (n, 3, h, w) -> (n, num_classes).

    bn_size: how many times growth_rate the 1 x 1 convolutions make. memory_efficient: what they are given is made again
    in the backward pass. num_init_features: the channels of the first convolution. drop_rate: the dropout behind each
    layer.
    """

    def __init__(
        self,
        growth_rate: int = 32,
        block_config: Sequence[int] = (6, 12, 24, 16),
        num_init_features: int = 64,
        bn_size: int = 4,
        drop_rate: float = 0,
        num_classes: int = 1000,
        memory_efficient: bool = False,
    ) -> None:
        super().__init__()
        channels = num_init_features
        parts: OrderedDict[str, nn.Module] = OrderedDict(
            conv0=nn.Conv2d(3, channels, 7, 2, 3, bias=False),
            norm0=nn.BatchNorm2d(channels),
            relu0=nn.ReLU(inplace=True),
            pool0=nn.MaxPool2d(3, 2, 1),
        )
        for i, count in enumerate(block_config, 1):
            if i > 1:
                halves = OrderedDict(
                    norm=nn.BatchNorm2d(channels),
                    relu=nn.ReLU(inplace=True),
                    conv=nn.Conv2d(channels, channels // 2, 1, bias=False),
                    pool=nn.AvgPool2d(2, 2),
                )
                parts[f"transition{i - 1}"] = nn.Sequential(halves)
                channels //= 2
            parts[f"denseblock{i}"] = _DenseBlock(count, channels, growth_rate, bn_size, drop_rate, memory_efficient)
            channels += count * growth_rate
        parts["norm5"] = nn.BatchNorm2d(channels)
        self.features, self.classifier = nn.Sequential(parts), nn.Linear(channels, num_classes)
        initialise(self, nn.init.kaiming_normal_)
        nn.init.zeros_(self.classifier.bias)

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """As that of every module; keys of torchvision's files (`norm.1` for `norm1`) are taken too."""
        return super().load_state_dict({_OLD_KEY.sub(r"\1\2", k): v for k, v in state_dict.items()}, *args, **kwargs)

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        out = nn.functional.relu(self.features(x))
        return self.classifier(norch.flatten(nn.functional.adaptive_avg_pool2d(out, (1, 1)), 1))


densenet121 = builder("densenet121", DenseNet, 32, (6, 12, 24, 16), 64, doc="DenseNet-121")
densenet161 = builder("densenet161", DenseNet, 48, (6, 12, 36, 24), 96, doc="DenseNet-161")
densenet169 = builder("densenet169", DenseNet, 32, (6, 12, 32, 32), 64, doc="DenseNet-169")
densenet201 = builder("densenet201", DenseNet, 32, (6, 12, 48, 32), 64, doc="DenseNet-201")
