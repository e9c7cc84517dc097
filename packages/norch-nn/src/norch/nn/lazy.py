"""Layers that learn the size of their input from the first one they are called on."""

from __future__ import annotations

from typing import Any, ClassVar

import norch

from .convolution import Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d, _Convolution
from .linear import Linear
from .module import Module
from .normalization import BatchNorm1d, BatchNorm2d, BatchNorm3d, _BatchNorm
from .parameter import Parameter


class UninitializedParameter(Parameter):
    """A parameter without elements as yet, that an optimiser may be given already; `materialize` gives it a shape."""

    __slots__ = ()

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> UninitializedParameter:
        empty = norch.empty(0, device=device, dtype=dtype).as_subclass(cls)
        return empty.requires_grad_(requires_grad)  # type: ignore[return-value]

    def materialize(self, shape: tuple[int, ...], device: Any = None, dtype: Any = None) -> None:
        """Makes it a Parameter of `shape`, its values not set, on its device and of its dtype unless given."""
        self.data = norch.empty(shape, device=device or self.device, dtype=dtype or self.dtype)
        self.__class__ = Parameter  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "<UninitializedParameter>"

    __str__ = __repr__


class _Lazy(Module):
    """The first call sets the sizes, draws the parameters, and makes the module one of `cls_to_become`."""

    cls_to_become: ClassVar[type[Module]]

    def initialize_parameters(self, input: norch.Tensor) -> None:
        raise NotImplementedError

    def has_uninitialized_params(self) -> bool:
        """True until the first call."""
        return True

    def reset_parameters(self) -> None:
        """Nothing: there are no parameters yet."""

    def forward(self, input: norch.Tensor, *args: Any, **kwargs: Any) -> Any:
        self.initialize_parameters(input)
        self.__class__ = self.cls_to_become  # type: ignore[assignment]
        self.reset_parameters()
        return self.forward(input, *args, **kwargs)


class LazyLinear(_Lazy, Linear):
    """A Linear whose in_features is the last size of its first input."""

    cls_to_become = Linear

    def __init__(self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(0, 0, False)  # type: ignore[call-arg]
        self.out_features = out_features
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def initialize_parameters(self, input: norch.Tensor) -> None:
        self.in_features = input.shape[-1]
        _make(self.weight, (self.out_features, self.in_features))
        _make(self.bias, (self.out_features,))


def _make(parameter: Parameter | None, shape: tuple[int, ...]) -> None:
    if isinstance(parameter, UninitializedParameter):
        parameter.materialize(shape)


class _LazyConvolution(_Lazy, _Convolution):
    def _start(self, out_channels: int, bias: bool, device: Any, dtype: Any) -> None:
        self.out_channels = out_channels
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def initialize_parameters(self, input: norch.Tensor) -> None:
        title, dims = type(self).__name__, self.dims
        if input.ndim not in (dims + 1, dims + 2):
            raise norch.ShapeError(f"{title}: expected {dims + 1} or {dims + 2} dims, got shape {tuple(input.shape)}")
        given, out, groups = input.shape[-dims - 1], self.out_channels, self.groups
        if given % groups or out % groups:
            raise ValueError(f"{title}: {given} channels of {tuple(input.shape)} and {out} are not {groups} groups")
        self.in_channels = given
        channels = (given, out // groups) if self.transposed else (out, given // groups)
        _make(self.weight, (*channels, *self.kernel_size))
        _make(self.bias, (out,))


class _LazyConv(_LazyConvolution):
    def __init__(
        self,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode)  # type: ignore[call-arg, arg-type]
        self._start(out_channels, bias, device, dtype)


class LazyConv1d(_LazyConv, Conv1d):  # type: ignore[misc]
    """A Conv1d whose in_channels are those of its first input."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyConv, Conv2d):  # type: ignore[misc]
    """A Conv2d whose in_channels are those of its first input."""

    cls_to_become = Conv2d


class _LazyConvTranspose(_LazyConvolution):
    def __init__(
        self,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode)  # type: ignore[call-arg, arg-type]
        self._start(out_channels, bias, device, dtype)


class LazyConvTranspose1d(_LazyConvTranspose, ConvTranspose1d):  # type: ignore[misc]
    """A ConvTranspose1d whose in_channels are those of its first input."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvTranspose, ConvTranspose2d):  # type: ignore[misc]
    """A ConvTranspose2d whose in_channels are those of its first input."""

    cls_to_become = ConvTranspose2d


class _LazyBatchNorm(_Lazy, _BatchNorm):
    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)  # type: ignore[call-arg]
        for name in ("weight", "bias"):
            if getattr(self, name) is not None:
                setattr(self, name, UninitializedParameter(device=device, dtype=dtype))

    def initialize_parameters(self, input: norch.Tensor) -> None:
        self._check_dims(input)
        self.num_features = n = input.shape[1]
        _make(self.weight, (n,))
        _make(self.bias, (n,))
        if self.running_mean is not None and self.running_var is not None:
            self.running_mean, self.running_var = self.running_mean.new_zeros(n), self.running_var.new_ones(n)


class LazyBatchNorm1d(_LazyBatchNorm, BatchNorm1d):
    """A BatchNorm1d whose num_features are the channels of its first input."""

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyBatchNorm, BatchNorm2d):
    """A BatchNorm2d whose num_features are the channels of its first input."""

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyBatchNorm, BatchNorm3d):
    """A BatchNorm3d whose num_features are the channels of its first input."""

    cls_to_become = BatchNorm3d
