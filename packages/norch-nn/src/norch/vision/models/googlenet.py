"""GoogLeNet (Szegedy et al., 2014), with batch normalization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import norch
from norch import nn

from .building import builder


class GoogLeNetOutputs(NamedTuple):
    """What the last classifier says (`logits`), and those in the middle (`aux_logits2`, `aux_logits1`), None in
    evaluation: (n, num_classes) each.
    """

    logits: norch.Tensor
    aux_logits2: norch.Tensor | None
    aux_logits1: norch.Tensor | None


class BasicConv2d(nn.Module):
    """A convolution without bias, batch normalization and a ReLU."""

    def __init__(self, in_channels: int, out_channels: int, **kwargs: Any) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, bias=False, **kwargs)
        self.bn = nn.BatchNorm2d(out_channels, eps=0.001)

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        return nn.functional.relu(self.bn(self.conv(x)), inplace=True)


class Inception(nn.Module):
    """Convolutions of several sizes side by side. That of the paper's 5 x 5 is 3 x 3, as in torchvision's weights."""

    def __init__(
        self, in_channels: int, ch1x1: int, ch3x3red: int, ch3x3: int, ch5x5red: int, ch5x5: int, pool_proj: int
    ) -> None:
        super().__init__()

        def narrowed(narrow: int, wide: int) -> nn.Sequential:
            return nn.Sequential(
                BasicConv2d(in_channels, narrow, kernel_size=1), BasicConv2d(narrow, wide, kernel_size=3, padding=1)
            )

        self.branch1 = BasicConv2d(in_channels, ch1x1, kernel_size=1)
        self.branch2, self.branch3 = narrowed(ch3x3red, ch3x3), narrowed(ch5x5red, ch5x5)
        self.branch4 = nn.Sequential(
            nn.MaxPool2d(3, 1, 1, ceil_mode=True), BasicConv2d(in_channels, pool_proj, kernel_size=1)
        )

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        return norch.cat([self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)], 1)


class InceptionAux(nn.Module):
    """A classifier of what an inner layer makes, which helps in training."""

    def __init__(self, in_channels: int, num_classes: int, dropout: float = 0.7) -> None:
        super().__init__()
        self.conv = BasicConv2d(in_channels, 128, kernel_size=1)
        self.fc1, self.fc2 = nn.Linear(2048, 1024), nn.Linear(1024, num_classes)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        x = norch.flatten(self.conv(nn.functional.adaptive_avg_pool2d(x, (4, 4))), 1)
        return self.fc2(self.dropout(nn.functional.relu(self.fc1(x), inplace=True)))


_BLOCKS = {
    "3a": (192, 64, 96, 128, 16, 32, 32),
    "3b": (256, 128, 128, 192, 32, 96, 64),
    "4a": (480, 192, 96, 208, 16, 48, 64),
    "4b": (512, 160, 112, 224, 24, 64, 64),
    "4c": (512, 128, 128, 256, 24, 64, 64),
    "4d": (512, 112, 144, 288, 32, 64, 64),
    "4e": (528, 256, 160, 320, 32, 128, 128),
    "5a": (832, 256, 160, 320, 32, 128, 128),
    "5b": (832, 384, 192, 384, 48, 128, 128),
}
"""The paper's table 1: channels in, and those of each convolution."""


def _trunc_normal(weight: norch.Tensor) -> None:
    nn.init.trunc_normal_(weight, 0.0, 0.01, -2, 2)


class GoogLeNet(nn.Module):
    """(n, 3, h, w) -> (n, num_classes); in training with `aux_logits` a GoogLeNetOutputs of three classifiers.

    transform_input: for images normalised as torchvision's others, where its weights expect -1 to 1. blocks: the
    classes of convolutions, inceptions and classifiers. dropout_aux: of the classifiers in the middle.
    """

    def __init__(
        self,
        num_classes: int = 1000,
        aux_logits: bool = True,
        transform_input: bool = False,
        init_weights: bool | None = None,
        blocks: Any = None,
        dropout: float = 0.2,
        dropout_aux: float = 0.7,
    ) -> None:
        super().__init__()
        conv, block, aux = blocks or (BasicConv2d, Inception, InceptionAux)
        self.aux_logits, self.transform_input = aux_logits, transform_input
        self.conv1 = conv(3, 64, kernel_size=7, stride=2, padding=3)
        self.maxpool1 = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.conv2, self.conv3 = conv(64, 64, kernel_size=1), conv(64, 192, kernel_size=3, padding=1)
        self.maxpool2 = nn.MaxPool2d(3, 2, ceil_mode=True)
        for name, channels in _BLOCKS.items():
            setattr(self, f"inception{name}", block(*channels))
            if name == "3b":
                self.maxpool3 = nn.MaxPool2d(3, 2, ceil_mode=True)
            elif name == "4e":
                self.maxpool4 = nn.MaxPool2d(2, 2, ceil_mode=True)
        self.aux1 = aux(512, num_classes, dropout=dropout_aux) if aux_logits else None
        self.aux2 = aux(528, num_classes, dropout=dropout_aux) if aux_logits else None
        self.avgpool, self.dropout = nn.AdaptiveAvgPool2d((1, 1)), nn.Dropout(dropout)
        self.fc = nn.Linear(1024, num_classes)
        if init_weights is not False:
            for module in self.modules():
                if isinstance(module, nn.Conv2d | nn.Linear):
                    _trunc_normal(module.weight)

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """As that of every module; the weights of classifiers that this one does not have are left out."""
        if not self.aux_logits:
            state_dict = {key: value for key, value in state_dict.items() if not key.startswith(("aux1.", "aux2."))}
        return super().load_state_dict(state_dict, *args, **kwargs)

    def _transform_input(self, x: norch.Tensor) -> norch.Tensor:
        if not self.transform_input:
            return x
        mean, std = (
            norch.tensor(values, dtype=x.dtype, device=x.device).view(3, 1, 1)
            for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
        )
        return (x * std + mean) * 2 - 1

    def forward(self, x: norch.Tensor) -> Any:
        x = self.maxpool1(self.conv1(self._transform_input(x)))
        x = self.maxpool2(self.conv3(self.conv2(x)))
        x = self.inception4a(self.maxpool3(self.inception3b(self.inception3a(x))))
        first = self.aux1(x) if self.aux1 is not None and self.training else None
        x = self.inception4d(self.inception4c(self.inception4b(x)))
        second = self.aux2(x) if self.aux2 is not None and self.training else None
        x = self.inception5b(self.inception5a(self.maxpool4(self.inception4e(x))))
        x = self.fc(self.dropout(norch.flatten(self.avgpool(x), 1)))
        return GoogLeNetOutputs(x, second, first) if self.training and self.aux_logits else x


googlenet = builder(
    "googlenet",
    GoogLeNet,
    with_weights={"transform_input": True, "aux_logits": False, "init_weights": False},
    doc="GoogLeNet",
)
