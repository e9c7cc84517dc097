"""ResNet (He et al., 2015), ResNeXt (Xie et al., 2017) and Wide ResNet (Zagoruyko and Komodakis, 2016)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import norch
from norch import nn

from .building import builder, he_fan_out_relu, initialise

Norm = Callable[..., nn.Module]


def conv3x3(in_planes: int, out_planes: int, stride: int = 1, groups: int = 1, dilation: int = 1) -> nn.Conv2d:
    """A 3 x 3 convolution without bias that keeps the size at stride 1."""
    return nn.Conv2d(in_planes, out_planes, 3, stride, dilation, dilation, groups, bias=False)


def conv1x1(in_planes: int, out_planes: int, stride: int = 1) -> nn.Conv2d:
    """A 1 x 1 convolution without bias."""
    return nn.Conv2d(in_planes, out_planes, 1, stride, bias=False)


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions, added to what came in."""

    expansion = 1

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        groups: int = 1,
        base_width: int = 64,
        dilation: int = 1,
        norm_layer: Norm | None = None,
    ) -> None:
        super().__init__()
        if groups != 1 or base_width != 64 or dilation > 1:
            raise ValueError("BasicBlock has groups=1, base_width=64 and dilation=1 only")
        norm = norm_layer or nn.BatchNorm2d
        self.conv1, self.bn1 = conv3x3(inplanes, planes, stride), norm(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2, self.bn2 = conv3x3(planes, planes), norm(planes)
        self.downsample, self.stride = downsample, stride

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    """A 3 x 3 convolution between two 1 x 1 ones, added to what came in. The stride is the 3 x 3 one's ("v1.5")."""

    expansion = 4

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        groups: int = 1,
        base_width: int = 64,
        dilation: int = 1,
        norm_layer: Norm | None = None,
    ) -> None:
        super().__init__()
        norm = norm_layer or nn.BatchNorm2d
        width, outputs = int(planes * (base_width / 64)) * groups, planes * self.expansion
        self.conv1, self.bn1 = conv1x1(inplanes, width), norm(width)
        self.conv2, self.bn2 = conv3x3(width, width, stride, groups, dilation), norm(width)
        self.conv3, self.bn3 = conv1x1(width, outputs), norm(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample, self.stride = downsample, stride

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """Four stages of `layers` blocks: (n, 3, h, w) -> (n, num_classes).

    zero_init_residual: each block adds nothing at first. replace_stride_with_dilation: for the last three stages,
    whether they keep the size and dilate instead. groups, width_per_group: of the bottlenecks' 3 x 3 convolutions.
    Raises ValueError for other than three bools.
    """

    def __init__(
        self,
        block: type[BasicBlock | Bottleneck],
        layers: Sequence[int],
        num_classes: int = 1000,
        zero_init_residual: bool = False,
        groups: int = 1,
        width_per_group: int = 64,
        replace_stride_with_dilation: Sequence[bool] | None = None,
        norm_layer: Norm | None = None,
    ) -> None:
        super().__init__()
        self._norm_layer = norm = norm_layer or nn.BatchNorm2d
        self.inplanes, self.dilation, self.groups, self.base_width = 64, 1, groups, width_per_group
        dilate = list(replace_stride_with_dilation or [False] * 3)
        if len(dilate) != 3:
            raise ValueError(f"ResNet: replace_stride_with_dilation must be None or three bools, got {dilate}")
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), norm(64)
        self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        for i, (blocks, instead) in enumerate(zip(layers, [False, *dilate])):
            setattr(self, f"layer{i + 1}", self._make_layer(block, 64 * 2**i, blocks, 2 if i else 1, instead))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512 * block.expansion, num_classes)
        initialise(self, he_fan_out_relu)
        if zero_init_residual:
            for module in self.modules():
                if isinstance(module, BasicBlock | Bottleneck):
                    nn.init.zeros_((module.bn3 if isinstance(module, Bottleneck) else module.bn2).weight)

    def _make_layer(self, block: Any, planes: int, blocks: int, stride: int = 1, dilate: bool = False) -> nn.Sequential:
        norm, before, outputs = self._norm_layer, self.dilation, planes * block.expansion
        if dilate:
            self.dilation, stride = self.dilation * stride, 1
        downsample = None
        if stride != 1 or self.inplanes != outputs:
            downsample = nn.Sequential(conv1x1(self.inplanes, outputs, stride), norm(outputs))
        common = (self.groups, self.base_width)
        made = [block(self.inplanes, planes, stride, downsample, *common, before, norm)]
        self.inplanes = outputs
        made += [block(outputs, planes, 1, None, *common, self.dilation, norm) for _ in range(1, blocks)]
        return nn.Sequential(*made)

    def _forward_impl(self, x: norch.Tensor) -> norch.Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(norch.flatten(self.avgpool(x), 1))

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        return self._forward_impl(x)


_50, _101, _152 = (3, 4, 6, 3), (3, 4, 23, 3), (3, 8, 36, 3)
resnet18 = builder("resnet18", ResNet, BasicBlock, (2, 2, 2, 2), doc="ResNet-18")
resnet34 = builder("resnet34", ResNet, BasicBlock, _50, doc="ResNet-34")
resnet50 = builder("resnet50", ResNet, Bottleneck, _50, doc="ResNet-50")
resnet101 = builder("resnet101", ResNet, Bottleneck, _101, doc="ResNet-101")
resnet152 = builder("resnet152", ResNet, Bottleneck, _152, doc="ResNet-152")
resnext50_32x4d = builder(
    "resnext50_32x4d", ResNet, Bottleneck, _50, groups=32, width_per_group=4, doc="ResNeXt-50 32x4d"
)
resnext101_32x8d = builder(
    "resnext101_32x8d", ResNet, Bottleneck, _101, groups=32, width_per_group=8, doc="ResNeXt-101 32x8d"
)
resnext101_64x4d = builder(
    "resnext101_64x4d", ResNet, Bottleneck, _101, groups=64, width_per_group=4, doc="ResNeXt-101 64x4d"
)
wide_resnet50_2 = builder("wide_resnet50_2", ResNet, Bottleneck, _50, width_per_group=128, doc="Wide ResNet-50-2")
wide_resnet101_2 = builder("wide_resnet101_2", ResNet, Bottleneck, _101, width_per_group=128, doc="Wide ResNet-101-2")
