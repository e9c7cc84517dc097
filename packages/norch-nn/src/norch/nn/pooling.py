"""Pooling layers: over windows, and to a size."""

from __future__ import annotations

from typing import Any, ClassVar

import norch

from . import functional as F
from .functional.pooling import as_tuple
from .layer import layer
from .module import Module


@layer()
class _MaxPoolNd(Module):
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
class MaxPool1d(_MaxPoolNd):
    """The largest of each window: (n, c, w) or (c, w) -> (n, c, x). See `norch.max_pool2d` for the arguments."""


@layer(F.max_pool2d)
class MaxPool2d(_MaxPoolNd):
    """The largest of each window: (n, c, h, w) or (c, h, w) -> (n, c, y, x). See `norch.max_pool2d` for the arguments.

    return_indices: a (values, indices) pair, for MaxUnpool2d.
    """


@layer(F.max_pool3d)
class MaxPool3d(_MaxPoolNd):
    """The largest of each window: (n, c, d, h, w) or (c, d, h, w) -> (n, c, z, y, x). See `norch.max_pool3d`.

    return_indices: a (values, indices) pair, for MaxUnpool3d.
    """


@layer()
class _MaxUnpoolNd(Module):
    dims: ClassVar[int]
    _function: ClassVar[str]
    kernel_size: Any
    stride: Any = None
    padding: Any = 0

    def __post_init__(self) -> None:
        self.stride = as_tuple(self.stride if self.stride is not None else self.kernel_size, self.dims)
        self.kernel_size = as_tuple(self.kernel_size, self.dims)
        self.padding = as_tuple(self.padding, self.dims)

    def forward(self, input: norch.Tensor, indices: norch.Tensor, output_size: Any = None) -> norch.Tensor:
        """output_size: w, where several give the same x.

        indices: int64, in input's shape, as MaxPool1d with return_indices gives them.
        """
        return getattr(F, self._function)(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool1d(_MaxUnpoolNd):
    """The values of MaxPool1d back at their indices, zeros elsewhere: (n, c, x) -> (n, c, w)."""

    dims, _function = 1, "max_unpool1d"


class MaxUnpool2d(_MaxUnpoolNd):
    """The values of MaxPool2d back at their indices, zeros elsewhere: (n, c, y, x) -> (n, c, h, w)."""

    dims, _function = 2, "max_unpool2d"


class MaxUnpool3d(_MaxUnpoolNd):
    """The values of MaxPool3d back at their indices, zeros elsewhere: (n, c, z, y, x) -> (n, c, d, h, w)."""

    dims, _function = 3, "max_unpool3d"


class _AvgPoolNd(Module):
    """The base of PyTorch's, which programs ask for with isinstance, as the two below."""


class _AdaptiveAvgPoolNd(Module):
    pass


class _AdaptiveMaxPoolNd(Module):
    pass


@layer(F.avg_pool1d)
class AvgPool1d(_AvgPoolNd):
    """The average of each window: (n, c, w) or (c, w) -> (n, c, x). See `norch.avg_pool2d` for the arguments."""

    kernel_size: Any
    stride: Any = None
    padding: Any = 0
    ceil_mode: bool = False
    count_include_pad: bool = True
    _shown = ("kernel_size", "stride", "padding")

    def __post_init__(self) -> None:
        self.stride = as_tuple(self.stride if self.stride is not None else self.kernel_size, 1)
        self.kernel_size = as_tuple(self.kernel_size, 1)
        self.padding = as_tuple(self.padding, 1)


@layer(F.avg_pool2d)
class AvgPool2d(_AvgPoolNd):
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


@layer(F.avg_pool3d)
class AvgPool3d(AvgPool2d):
    """The average of each window: (n, c, d, h, w) or (c, d, h, w) -> (n, c, z, y, x). See `norch.avg_pool3d`."""


@layer()
class _LPPoolNd(Module):
    _function: ClassVar[str]
    norm_type: float
    kernel_size: Any
    stride: Any = None
    ceil_mode: bool = False

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return getattr(F, self._function)(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool1d(_LPPoolNd):
    """The `norm_type`-norm of each window: (n, c, w) -> (n, c, x)."""

    _function = "lp_pool1d"


class LPPool2d(_LPPoolNd):
    """The `norm_type`-norm of each window: (n, c, h, w) -> (n, c, y, x)."""

    _function = "lp_pool2d"


class LPPool3d(_LPPoolNd):
    """The `norm_type`-norm of each window: (n, c, d, h, w) -> (n, c, z, y, x)."""

    _function = "lp_pool3d"


@layer(F.adaptive_avg_pool1d)
class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """Averages of `output_size` parts of the last dim: (n, c, w) -> (n, c, x)."""

    output_size: Any


@layer(F.adaptive_avg_pool2d)
class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """Averages of y * x parts: (n, c, h, w) -> (n, c, y, x). output_size: an int or two, of which None keeps a size."""

    output_size: Any


@layer(F.adaptive_avg_pool3d)
class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """Averages of z * y * x parts: (n, c, d, h, w) -> (n, c, z, y, x). output_size: an int or three, None keeps one."""

    output_size: Any


@layer(F.adaptive_max_pool1d)
class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """The largest of `output_size` parts of the last dim: (n, c, w) -> (n, c, x)."""

    output_size: Any
    return_indices: bool = False
    _shown = ("output_size",)


@layer(F.adaptive_max_pool2d)
class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """The largest of y * x parts: (n, c, h, w) -> (n, c, y, x). output_size: an int or two, None keeps a size."""

    output_size: Any
    return_indices: bool = False
    _shown = ("output_size",)


@layer(F.adaptive_max_pool3d)
class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """The largest of z * y * x parts: (n, c, d, h, w) -> (n, c, z, y, x). output_size: an int or three."""

    output_size: Any
    return_indices: bool = False
    _shown = ("output_size",)


class _FractionalMaxPool(Module):
    _function: ClassVar[str]
    _dims: ClassVar[int]
    _random_samples: norch.Tensor | None

    def __init__(
        self,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: norch.Tensor | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if (output_size is None) == (output_ratio is None):
            raise ValueError(f"{name}: either output_size or output_ratio must be given")
        self.kernel_size = as_tuple(kernel_size, self._dims)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else as_tuple(output_size, self._dims)
        self.output_ratio = output_ratio
        if output_ratio is not None:
            ratios = output_ratio if isinstance(output_ratio, tuple | list) else (output_ratio,) * self._dims
            if not all(0 < r < 1 for r in ratios):
                raise ValueError(f"{name}: output_ratio must be between 0 and 1, got {output_ratio}")
            self.output_ratio = tuple(ratios)

    def forward(self, input: norch.Tensor) -> Any:
        return getattr(F, self._function)(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples
        )


class FractionalMaxPool2d(_FractionalMaxPool):
    """The largest of windows at places that are drawn: (n, c, h, w) -> (n, c, y, x).

    kernel_size, output_size, output_ratio, return_indices: see `functional.fractional_max_pool2d`; one of size and
    ratio must be given, else ValueError is raised. _random_samples: a buffer that is used instead of what is drawn.
    """

    _function, _dims = "fractional_max_pool2d", 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """The largest of windows at places that are drawn: (n, c, d, h, w) -> (n, c, z, y, x).

    kernel_size, output_size, output_ratio, return_indices: see `functional.fractional_max_pool3d`; one of size and
    ratio must be given, else ValueError is raised. _random_samples: a buffer that is used instead of what is drawn.
    """

    _function, _dims = "fractional_max_pool3d", 3
