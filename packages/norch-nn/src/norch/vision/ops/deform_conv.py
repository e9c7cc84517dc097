"""Convolution at places that the network finds itself (Dai et al., 2017; Zhu et al., 2019)."""

from __future__ import annotations

import math
from typing import Any

import norch
from norch import nn

from .pooling import pair


def deform_conv2d(
    input: norch.Tensor,
    offset: norch.Tensor,
    weight: norch.Tensor,
    bias: norch.Tensor | None = None,
    stride: Any = (1, 1),
    padding: Any = (0, 0),
    dilation: Any = (1, 1),
    mask: norch.Tensor | None = None,
) -> norch.Tensor:
    """`conv2d` whose weights meet the input where `offset` moves them to, between pixels, and 0 beyond the edges.

    input: (n, c, h, w). weight: (out, c / groups, y, x), bias: (out,). offset: (n, 2 * parts * y * x, *out_size), down
    and right for each of the weight's places in turn; each part is for its share of the channels. mask: (n, parts * y *
    x, *out_size), what the values are multiplied by. stride, padding, dilation: as of `conv2d`. -> (n, out,
    *out_size). After Dai et al. (2017) and Zhu et al. (2019). Raises ShapeError where shapes do not fit.
    """
    steps, around, between = pair(stride), pair(padding), pair(dilation)
    batch, channels, height, width = input.shape
    outputs, share, *kernel = weight.shape
    size = [
        (n + 2 * a - d * (k - 1) - 1) // s + 1 for n, a, d, k, s in zip((height, width), around, between, kernel, steps)
    ]
    places, parts = kernel[0] * kernel[1], offset.shape[1] // (2 * kernel[0] * kernel[1])
    _check(input, offset, weight, mask, parts, size)
    values = norch.deform_columns(input, offset, mask, (kernel[0], kernel[1]), steps, around, between)
    groups = channels // share
    meets = values.view(batch, groups, share * places, -1)
    out = (weight.view(groups, outputs // groups, -1) @ meets).view(batch, outputs, *size)
    return out if bias is None else out + bias.view(-1, 1, 1)


def _check(
    input: norch.Tensor,
    offset: norch.Tensor,
    weight: norch.Tensor,
    mask: norch.Tensor | None,
    parts: int,
    size: list[int],
) -> None:
    (batch, channels), (outputs, share, *kernel) = input.shape[:2], weight.shape
    places = kernel[0] * kernel[1]
    expected = {"offset": (offset, 2 * parts * places), "mask": (mask, parts * places)}
    fits = parts > 0 and channels % parts == 0 and channels % share == 0 and outputs % (channels // share) == 0
    for tensor, count in expected.values():
        fits = fits and (tensor is None or tuple(tensor.shape) == (batch, count, *size))
    if not fits or min(size) <= 0:
        shapes = {"input": input, "offset": offset, "weight": weight, "mask": mask}
        given = ", ".join(f"{name} {tuple(t.shape)}" for name, t in shapes.items() if t is not None)
        raise norch.ShapeError(
            f"deform_conv2d(): {given} do not fit: the output is {tuple(size)} in size, offset is (n, 2 * parts * "
            f"{places}, *size), mask (n, parts * {places}, *size), and parts and groups divide the channels"
        )


class DeformConv2d(nn.Module):
    """`deform_conv2d` with a weight (out_channels, in_channels / groups, *kernel_size) and a bias of its own.

    stride, padding, dilation: as of `conv2d`. bias: whether there is one. Raises ValueError where groups do not divide
    the channels.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if in_channels % groups or out_channels % groups:
            raise ValueError(f"DeformConv2d: {groups} groups do not divide {in_channels} and {out_channels} channels")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride = pair(kernel_size), pair(stride)
        self.padding, self.dilation = pair(padding), pair(dilation)
        self.weight = nn.Parameter(norch.empty(out_channels, in_channels // groups, *self.kernel_size))
        self.register_parameter("bias", nn.Parameter(norch.empty(out_channels)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weight and bias as those of `Conv2d` are."""
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.weight[0].numel())
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, input: norch.Tensor, offset: norch.Tensor, mask: norch.Tensor | None = None) -> norch.Tensor:
        """The convolution of (n, in_channels, h, w); offset, mask: as of `deform_conv2d`."""
        options = (self.stride, self.padding, self.dilation)
        return deform_conv2d(input, offset, self.weight, self.bias, *options, mask)

    def extra_repr(self) -> str:
        shown = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"]
        for name, usual in (("padding", (0, 0)), ("dilation", (1, 1)), ("groups", 1)):
            if getattr(self, name) != usual:
                shown.append(f"{name}={getattr(self, name)}")
        return ", ".join(shown if self.bias is not None else [*shown, "bias=False"])
