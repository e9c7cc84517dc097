"""A convolution with its norm and activation, squeeze-and-excitation, a perceptron of several layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import norch
from norch import nn
from norch.nn.functional import interpolate as interpolate


def make_divisible(value: float, divisor: int = 8) -> int:
    """The multiple of `divisor` nearest to `value`, yet at least 90 % of it."""
    rounded = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * value else rounded


class ConvNormActivation(nn.Sequential):
    """A convolution of `conv_layer`, a norm and an activation; the rest as of `Conv2dNormActivation`."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any = 3,
        stride: Any = 1,
        padding: Any = None,
        groups: int = 1,
        norm_layer: Callable[..., nn.Module] | None = nn.BatchNorm2d,
        activation_layer: Callable[..., nn.Module] | None = nn.ReLU,
        dilation: Any = 1,
        inplace: bool | None = True,
        bias: bool | None = None,
        conv_layer: Callable[..., nn.Module] = nn.Conv2d,
    ) -> None:
        if padding is None:
            given = [n for n in (kernel_size, dilation) if isinstance(n, Sequence)]
            dims = len(given[0]) if given else 1
            sizes, steps = (n if isinstance(n, Sequence) else (n,) * dims for n in (kernel_size, dilation))
            padding = tuple((k - 1) // 2 * d for k, d in zip(sizes, steps))
            padding = padding if given else padding[0]
        bias = norm_layer is None if bias is None else bias
        layers = [conv_layer(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias)]
        if norm_layer is not None:
            layers.append(norm_layer(out_channels))
        if activation_layer is not None:
            layers.append(activation_layer(**_inplace(inplace)))
        super().__init__(*layers)
        self.out_channels = out_channels


class Conv2dNormActivation(ConvNormActivation):
    """A convolution, a norm and an activation, of which the last two may be None.

    padding: by default what keeps the size at stride 1. bias: by default where there is no norm. in_channels,
    out_channels, kernel_size, stride, groups, dilation: of the convolution, as of `Conv2d`. norm_layer,
    activation_layer: what makes them; `inplace`: of the activation.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any = 3,
        stride: Any = 1,
        padding: Any = None,
        groups: int = 1,
        norm_layer: Callable[..., nn.Module] | None = nn.BatchNorm2d,
        activation_layer: Callable[..., nn.Module] | None = nn.ReLU,
        dilation: Any = 1,
        inplace: bool | None = True,
        bias: bool | None = None,
    ) -> None:
        shape = (in_channels, out_channels, kernel_size, stride, padding, groups)
        super().__init__(*shape, norm_layer, activation_layer, dilation, inplace, bias, nn.Conv2d)


class Conv3dNormActivation(ConvNormActivation):
    """`Conv2dNormActivation` of volumes: `Conv3d` with, unless said otherwise, BatchNorm3d."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any = 3,
        stride: Any = 1,
        padding: Any = None,
        groups: int = 1,
        norm_layer: Callable[..., nn.Module] | None = nn.BatchNorm3d,
        activation_layer: Callable[..., nn.Module] | None = nn.ReLU,
        dilation: Any = 1,
        inplace: bool | None = True,
        bias: bool | None = None,
    ) -> None:
        shape = (in_channels, out_channels, kernel_size, stride, padding, groups)
        super().__init__(*shape, norm_layer, activation_layer, dilation, inplace, bias, nn.Conv3d)


def _inplace(inplace: bool | None) -> dict[str, bool]:
    return {} if inplace is None else {"inplace": inplace}


class SqueezeExcitation(nn.Module):
    """Each channel times a number from 0 to 1 that a small network finds from all channels' means (Hu et al., 2018).

    input_channels, squeeze_channels: c of the input (n, c, h, w), and how many between. activation, scale_activation:
    what makes the two activations.
    """

    def __init__(
        self,
        input_channels: int,
        squeeze_channels: int,
        activation: Callable[..., nn.Module] = nn.ReLU,
        scale_activation: Callable[..., nn.Module] = nn.Sigmoid,
    ) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(input_channels, squeeze_channels, 1)
        self.fc2 = nn.Conv2d(squeeze_channels, input_channels, 1)
        self.activation, self.scale_activation = activation(), scale_activation()

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        squeezed = self.activation(self.fc1(self.avgpool(input)))
        return input * self.scale_activation(self.fc2(squeezed))


class MLP(nn.Sequential):
    """Linear layers of `hidden_channels` sizes, with norm, activation and dropout between, and dropout at the end.

    in_channels: of the input, (..., in_channels). norm_layer, activation_layer: what makes them; bias: of the linear
    layers; `inplace`: of activations and dropouts.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: Sequence[int],
        norm_layer: Callable[..., nn.Module] | None = None,
        activation_layer: Callable[..., nn.Module] | None = nn.ReLU,
        inplace: bool | None = None,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        layers: list[nn.Module] = []
        options = _inplace(inplace)
        for i, channels in enumerate(hidden_channels):
            layers.append(nn.Linear(in_channels, channels, bias=bias))
            if i + 1 < len(hidden_channels):
                if norm_layer is not None:
                    layers.append(norm_layer(channels))
                if activation_layer is not None:
                    layers.append(activation_layer(**options))
            layers.append(nn.Dropout(dropout, **options))
            in_channels = channels
        super().__init__(*layers)


class Permute(nn.Module):
    """The input x with its dims in the order `dims`."""

    def __init__(self, dims: Sequence[int]) -> None:
        super().__init__()
        self.dims = dims

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        return x.permute(*self.dims)


class FrozenBatchNorm2d(nn.Module):
    """BatchNorm2d in evaluation for good: its weight, bias and statistics are buffers; it loads what BatchNorm2d saved.

    num_features, eps: as of `BatchNorm2d`.
    """

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        for name, fill in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)):
            self.register_buffer(name, norch.full((num_features,), fill))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        state_dict.pop(f"{prefix}num_batches_tracked", None)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        return x * scale.view(1, -1, 1, 1) + (self.bias - self.running_mean * scale).view(1, -1, 1, 1)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, eps={self.eps}"
