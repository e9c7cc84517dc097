"""Convolutions and transposed convolutions over one, two and three dims."""

from __future__ import annotations

import math
from dataclasses import InitVar
from typing import Any, ClassVar

import norch

from . import functional as F
from . import init
from .layer import layer
from .module import Module
from .parameter import Parameter, optional_parameter

_MODES = ("zeros", "reflect", "replicate", "circular")


def _sizes(value: Any, dims: int, title: str, what: str) -> tuple[int, ...]:
    """One for all dims, which but for the kernel's may be a sequence of one, or one for each. Raises ShapeError for
    another number."""
    values = tuple(value) if isinstance(value, tuple | list) else (value,) * dims
    if len(values) == 1 and what != "kernel_size":
        values *= dims
    if len(values) != dims:
        raise norch.ShapeError(f"{title}: {what} must be an int or {dims}, got {value!r}")
    return values


class _ConvNd(Module):
    """What they have in common: parameters, their initialisation and the printed form."""

    dims: ClassVar[int]
    transposed: ClassVar[bool] = False
    output_padding: Any = 0
    padding: Any

    def __init__(
        self,
        in_channels: int | None = None,
        out_channels: Any = None,
        kernel_size: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        transposed: bool = False,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        """The arguments that subclasses of PyTorch's class of this name give; the layers here set theirs themselves."""
        super().__init__()
        if in_channels is None:
            return
        self.dims, self.transposed = len(kernel_size), transposed  # type: ignore[misc]
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.padding_mode = padding_mode
        self.kernel_size, self.stride, self.padding, self.dilation = kernel_size, stride, padding, dilation
        self.output_padding = output_padding
        self.__post_init__(bias, device, dtype)

    def __post_init__(self, bias: bool, device: Any, dtype: Any) -> None:
        title, dims = type(self).__name__, self.dims
        inputs, outputs, groups = self.in_channels, self.out_channels, self.groups
        if groups <= 0 or inputs % groups or outputs % groups:
            raise ValueError(
                f"{title}: in_channels {inputs} and out_channels {outputs} must be divisible by groups {groups}, which "
                "must be positive"
            )
        allowed = _MODES[:1] if self.transposed else _MODES
        if self.padding_mode not in allowed:
            raise ValueError(f"{title}: padding_mode must be one of {', '.join(allowed)}, got {self.padding_mode!r}")
        for name in ("kernel_size", "stride", "dilation", "output_padding"):
            setattr(self, name, _sizes(getattr(self, name), dims, title, name))
        self.padding = self._checked_padding(self.padding, title)
        self._complete()
        channels = (inputs, outputs // groups) if self.transposed else (outputs, inputs // groups)
        self.weight = Parameter(norch.empty((*channels, *self.kernel_size), device=device, dtype=dtype))
        self.register_parameter("bias", optional_parameter(bias, (outputs,), device, dtype))
        self.reset_parameters()

    def _complete(self) -> None:
        self._around = self._pads_of_modes()

    def _checked_padding(self, padding: Any, title: str) -> Any:
        if not isinstance(padding, str):
            return _sizes(padding, self.dims, title, "padding")
        if padding not in ("same", "valid") or self.transposed:
            raise ValueError(f"{title}: padding must be ints, or 'same' or 'valid' for Conv, got {padding!r}")
        if padding == "same" and any(s != 1 for s in self.stride):
            raise ValueError(f"{title}: padding='same' needs stride 1, got {self.stride}")
        return padding

    def _pads_of_modes(self) -> tuple[int, ...]:
        """What F.pad is given before the convolution, the last dim first; nothing for zeros."""
        pads: list[int] = []
        if self.padding_mode == "zeros":
            return ()
        for d in reversed(range(self.dims)):
            if self.padding == "same":
                whole = self.dilation[d] * (self.kernel_size[d] - 1)
                pads += [whole // 2, whole - whole // 2]
            else:
                pads += [0, 0] if self.padding == "valid" else [self.padding[d]] * 2
        return tuple(pads)

    def reset_parameters(self) -> None:
        """Draws weight and bias again, uniform within 1 / sqrt(weight.shape[1] * elements of the kernel)."""
        # The bounds of kaiming_uniform_ with a = sqrt(5), as PyTorch writes it.
        fan_in = self.weight.shape[1] * math.prod(self.kernel_size)
        if fan_in:
            bound = 1 / math.sqrt(fan_in)
            init.uniform_(self.weight, -bound, bound)
            if self.bias is not None:
                init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"]
        zero, one = (0,) * self.dims, (1,) * self.dims
        if self.padding != zero:
            parts.append(f"padding={self.padding}")
        if self.dilation != one:
            parts.append(f"dilation={self.dilation}")
        if self.output_padding != zero:
            parts.append(f"output_padding={self.output_padding}")
        if self.groups != 1:
            parts.append(f"groups={self.groups}")
        if self.bias is None:
            parts.append("bias=False")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode}")
        return ", ".join(parts)


@layer()
class _Conv(_ConvNd):
    in_channels: int
    out_channels: int
    kernel_size: Any
    stride: Any = 1
    padding: Any = 0
    dilation: Any = 1
    groups: int = 1
    bias: InitVar[bool] = True
    padding_mode: str = "zeros"
    device: InitVar[Any] = None
    dtype: InitVar[Any] = None

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        """Raises ShapeError for another number of channels, and where the kernel is larger than the padded input."""
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input: norch.Tensor, weight: norch.Tensor, bias: norch.Tensor | None) -> norch.Tensor:
        """The convolution with other parameters: subclasses that make theirs each time call it, as PyTorch's."""
        padding = self.padding
        if self._around:
            input, padding = F.pad(input, self._around, self.padding_mode), 0
        function = getattr(F, f"conv{len(self.kernel_size)}d")  # of what has a layer's attributes, as programs call it
        return function(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class Conv1d(_Conv):
    """1-D cross-correlation: (n, in_channels, w) or (in_channels, w) -> (n, out_channels, x).

    stride, dilation: as of conv1d. padding: an int, or "same" or "valid"; padding_mode: "zeros", "reflect", "replicate"
    or "circular". weight has shape (out_channels, in_channels / groups, kernel_size). Raises ValueError for groups that
    do not divide the channels.
    """

    dims = 1


class Conv2d(_Conv):
    """2-D cross-correlation: (n, in_channels, h, w) or (in_channels, h, w) -> (n, out_channels, y, x).

    kernel_size, stride, padding, dilation: an int or two; padding also "same" or "valid". padding_mode: "zeros",
    "reflect", "replicate" or "circular". weight has shape (out_channels, in_channels / groups, *kernel_size). Raises
    ValueError for groups that do not divide the channels.
    """

    dims = 2


class Conv3d(_Conv):
    """3-D cross-correlation: (n, in_channels, d, h, w) or (in_channels, d, h, w) -> (n, out_channels, z, y, x).

    The arguments are those of Conv2d, ints or three.
    """

    dims = 3


@layer()
class _ConvTransposeNd(_ConvNd):
    transposed = True
    in_channels: int
    out_channels: int
    kernel_size: Any
    stride: Any = 1
    padding: Any = 0
    output_padding: Any = 0
    groups: int = 1
    bias: InitVar[bool] = True
    dilation: Any = 1
    padding_mode: str = "zeros"
    device: InitVar[Any] = None
    dtype: InitVar[Any] = None

    def _output_padding(
        self,
        input: norch.Tensor,
        output_size: Any,
        stride: Any,
        padding: Any,
        kernel_size: Any,
        num_spatial_dims: int,
        dilation: Any = None,
    ) -> tuple[int, ...]:
        """The output_padding that gives `output_size`, of which the last dims may be given alone."""
        if output_size is None:
            return self.output_padding
        dims, title = num_spatial_dims, type(self).__name__
        wanted = tuple(output_size)
        if len(wanted) == input.ndim:
            wanted = wanted[-dims:]
        if len(wanted) != dims or input.ndim not in (dims + 1, dims + 2):
            raise ValueError(
                f"{title}: output_size must have {dims} or {input.ndim} elements for input {tuple(input.shape)}, got "
                f"{output_size!r}"
            )
        least = [
            (n - 1) * s - 2 * p + d * (k - 1) + 1
            for n, s, p, d, k in zip(input.shape[-dims:], stride, padding, dilation or (1,) * dims, kernel_size)
        ]
        most = [n + s - 1 for n, s in zip(least, stride)]
        if any(not low <= n <= high for low, n, high in zip(least, wanted, most)):
            raise ValueError(
                f"{title}: output_size {wanted} is not from {least} to {most}, the sizes that input "
                f"{tuple(input.shape)} can give"
            )
        return tuple(n - low for n, low in zip(wanted, least))

    def forward(self, input: norch.Tensor, output_size: Any = None) -> norch.Tensor:
        """Raises ShapeError for another number of channels, ValueError for an `output_size` that cannot be."""
        extra = self._output_padding(
            input, output_size, self.stride, self.padding, self.kernel_size, len(self.kernel_size), self.dilation
        )
        function = getattr(F, f"conv_transpose{len(self.kernel_size)}d")
        return function(input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation)


_ConvTransposeMixin = _ConvTransposeNd  # its name of old


class ConvTranspose1d(_ConvTransposeNd):
    """The transpose of Conv1d: (n, in_channels, x) -> (n, out_channels, w), weight (in, out / groups, kernel_size).

    Called with `output_size`, it chooses the output_padding that gives it. padding_mode: "zeros".
    """

    dims = 1


class ConvTranspose2d(_ConvTransposeNd):
    """The transpose of Conv2d: (n, in_channels, y, x) -> (n, out_channels, h, w), weight (in, out / groups, i, j).

    h is (y - 1) * stride - 2 * padding + dilation * (i - 1) + output_padding + 1. Called with `output_size`, it chooses
    the output_padding that gives it.
    """

    dims = 2


class ConvTranspose3d(_ConvTransposeNd):
    """The transpose of Conv3d: (n, in_channels, z, y, x) -> (n, out_channels, d, h, w). See ConvTranspose2d;
    padding_mode: "zeros".
    """

    dims = 3
