"""Pooling layers: over windows, and to a size."""

from __future__ import annotations

from typing import Any

import norch

from . import functional as F
from .module import Module


class _MaxPool(Module):
    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, dilation={self.dilation}, "
            f"ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPool):
    """The largest of each window: (n, c, w) or (c, w) -> (n, c, x). See `norch.max_pool2d` for the arguments."""

    def forward(self, input: norch.Tensor) -> Any:
        return F.max_pool1d(
            *(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices)
        )


class MaxPool2d(_MaxPool):
    """The largest of each window: (n, c, h, w) or (c, h, w) -> (n, c, y, x). See `norch.max_pool2d` for the arguments.

    return_indices: a (values, indices) pair, for MaxUnpool2d.
    """

    def forward(self, input: norch.Tensor) -> Any:
        return F.max_pool2d(
            *(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices)
        )


class _MaxUnpool(Module):
    dims: int

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        self.kernel_size = _sizes(kernel_size, self.dims)
        self.stride = _sizes(stride if stride is not None else kernel_size, self.dims)
        self.padding = _sizes(padding, self.dims)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


def _sizes(value: Any, dims: int) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,) * dims


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


class AvgPool1d(Module):
    """The average of each window: (n, c, w) or (c, w) -> (n, c, x). See `norch.avg_pool2d` for the arguments."""

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = _sizes(kernel_size, 1)
        self.stride = _sizes(stride if stride is not None else kernel_size, 1)
        self.padding = _sizes(padding, 1)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool2d(Module):
    """The average of each window: (n, c, h, w) or (c, h, w) -> (n, c, y, x). See `norch.avg_pool2d`."""

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.avg_pool2d(
            *(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad),
            self.divisor_override,
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _LPPool(Module):
    def __init__(self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def extra_repr(self) -> str:
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPool):
    """The `norm_type`-norm of each window: (n, c, w) -> (n, c, x)."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.lp_pool1d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool2d(_LPPool):
    """The `norm_type`-norm of each window: (n, c, h, w) -> (n, c, y, x)."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.lp_pool2d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class _AdaptiveAvgPool(Module):
    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Averages of `output_size` parts of the last dim: (n, c, w) -> (n, c, x)."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Averages of y * x parts: (n, c, h, w) -> (n, c, y, x). output_size: an int or two, of which None keeps a size."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.adaptive_avg_pool2d(input, self.output_size)


class _AdaptiveMaxPool(Module):
    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The largest of `output_size` parts of the last dim: (n, c, w) -> (n, c, x)."""

    def forward(self, input: norch.Tensor) -> Any:
        return F.adaptive_max_pool1d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The largest of y * x parts: (n, c, h, w) -> (n, c, y, x). output_size: an int or two, None keeps a size."""

    def forward(self, input: norch.Tensor) -> Any:
        return F.adaptive_max_pool2d(input, self.output_size, self.return_indices)
