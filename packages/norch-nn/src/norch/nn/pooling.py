"""Pooling layers: over windows, and to a size."""

from __future__ import annotations

from typing import Any, ClassVar

import norch

from . import functional as F
from .layer import layer
from .module import Module


@layer()
class _MaxPool(Module):
    kernel_size: Any
    stride: Any = None
    padding: Any = 0
    dilation: Any = 1
    return_indices: bool = False
    ceil_mode: bool = False
    _shown = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")

    def __post_init__(self) -> None:
        if self.stride is None:
            self.stride = self.kernel_size


@layer(F.max_pool1d)
class MaxPool1d(_MaxPool):
    """The largest of each window: (n, c, w) or (c, w) -> (n, c, x). See `norch.max_pool2d` for the arguments."""


@layer(F.max_pool2d)
class MaxPool2d(_MaxPool):
    """The largest of each window: (n, c, h, w) or (c, h, w) -> (n, c, y, x). See `norch.max_pool2d` for the arguments.

    return_indices: a (values, indices) pair, for MaxUnpool2d.
    """


def _sizes(value: Any, dims: int) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,) * dims


@layer()
class _MaxUnpool(Module):
    dims: ClassVar[int]
    kernel_size: Any
    stride: Any = None
    padding: Any = 0

    def __post_init__(self) -> None:
        self.stride = _sizes(self.stride if self.stride is not None else self.kernel_size, self.dims)
        self.kernel_size = _sizes(self.kernel_size, self.dims)
        self.padding = _sizes(self.padding, self.dims)


class MaxUnpool1d(_MaxUnpool):
    """The values of MaxPool1d back at their indices, zeros elsewhere."""

    dims = 1

    def forward(self, input: norch.Tensor, indices: norch.Tensor, output_size: Any = None) -> norch.Tensor:
        return F.max_unpool1d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool2d(_MaxUnpool):
    """The values of MaxPool2d back at their indices, zeros elsewhere."""

    dims = 2

    def forward(self, input: norch.Tensor, indices: norch.Tensor, output_size: Any = None) -> norch.Tensor:
        return F.max_unpool2d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


@layer(F.avg_pool1d)
class AvgPool1d(Module):
    """The average of each window: (n, c, w) or (c, w) -> (n, c, x). See `norch.avg_pool2d` for the arguments."""

    kernel_size: Any
    stride: Any = None
    padding: Any = 0
    ceil_mode: bool = False
    count_include_pad: bool = True
    _shown = ("kernel_size", "stride", "padding")

    def __post_init__(self) -> None:
        self.stride = _sizes(self.stride if self.stride is not None else self.kernel_size, 1)
        self.kernel_size = _sizes(self.kernel_size, 1)
        self.padding = _sizes(self.padding, 1)


@layer(F.avg_pool2d)
class AvgPool2d(Module):
    """The average of each window: (n, c, h, w) or (c, h, w) -> (n, c, y, x). See `norch.avg_pool2d`."""

    kernel_size: Any
    stride: Any = None
    padding: Any = 0
    ceil_mode: bool = False
    count_include_pad: bool = True
    divisor_override: int | None = None
    _shown = ("kernel_size", "stride", "padding")

    def __post_init__(self) -> None:
        if self.stride is None:
            self.stride = self.kernel_size


@layer()
class _LPPool(Module):
    norm_type: float
    kernel_size: Any
    stride: Any = None
    ceil_mode: bool = False


class LPPool1d(_LPPool):
    """The `norm_type`-norm of each window: (n, c, w) -> (n, c, x)."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.lp_pool1d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool2d(_LPPool):
    """The `norm_type`-norm of each window: (n, c, h, w) -> (n, c, y, x)."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.lp_pool2d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


@layer(F.adaptive_avg_pool1d)
class AdaptiveAvgPool1d(Module):
    """Averages of `output_size` parts of the last dim: (n, c, w) -> (n, c, x)."""

    output_size: Any


@layer(F.adaptive_avg_pool2d)
class AdaptiveAvgPool2d(Module):
    """Averages of y * x parts: (n, c, h, w) -> (n, c, y, x). output_size: an int or two, of which None keeps a size."""

    output_size: Any


@layer(F.adaptive_max_pool1d)
class AdaptiveMaxPool1d(Module):
    """The largest of `output_size` parts of the last dim: (n, c, w) -> (n, c, x)."""

    output_size: Any
    return_indices: bool = False
    _shown = ("output_size",)


@layer(F.adaptive_max_pool2d)
class AdaptiveMaxPool2d(Module):
    """The largest of y * x parts: (n, c, h, w) -> (n, c, y, x). output_size: an int or two, None keeps a size."""

    output_size: Any
    return_indices: bool = False
    _shown = ("output_size",)
