"""Layers that learn the size of their input from the first one they are called on."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

import norch

from .convolution import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, _ConvNd
from .linear import Linear
from .module import Module
from .normalization import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    _InstanceNorm,
    _NormBase,
)
from .parameter import Parameter, UninitializedBuffer, UninitializedParameter, is_lazy


class LazyModuleMixin:
    """What comes before the base class of a module whose parameters have shapes from its first input on.

    `__init__` makes them UninitializedParameter, and `initialize_parameters`, called with the first call's arguments,
    materializes and draws them. The module then becomes one of `cls_to_become`, if there is one.
    """

    cls_to_become: ClassVar[type[Module] | None] = None

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Raises NotImplementedError: a class with the mixin has its own, for the arguments `args` and `kwargs`."""
        raise NotImplementedError(f"{type(self).__name__} has no initialize_parameters")

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter of the module itself has no shape yet."""
        names: Any = self._parameter_names  # type: ignore[attr-defined]
        return any(isinstance(getattr(self, name), UninitializedParameter) for name in names)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.cls_to_become is not None or self.has_uninitialized_params():
            try:
                self.initialize_parameters(*args, **kwargs)
            except AttributeError:
                norch.check_arguments(self.initialize_parameters, args, kwargs, type(self).__name__)
                raise
            if self.cls_to_become is not None:
                self.__class__ = self.cls_to_become  # type: ignore[assignment]
                return self(*args, **kwargs)
            if self.has_uninitialized_params():
                raise RuntimeError(f"{type(self).__name__}: initialize_parameters() left parameters without a shape")
        return super().__call__(*args, **kwargs)  # type: ignore[misc]


class _Lazy(LazyModuleMixin, Module):
    """The first call sets the sizes, draws the parameters, and makes the module one of `cls_to_become`.

    The constructor takes the arguments of that class but the first, the size that is learned.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.cls_to_become = cls.__bases__[-1]
        signature = inspect.signature(cls.cls_to_become)
        cls.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])  # type: ignore[attr-defined]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(0, *args, **kwargs)  # type: ignore[call-arg]
        for name in ("weight", "bias", "running_mean", "running_var"):
            known = getattr(self, name, None)
            if known is not None:
                kind = UninitializedParameter if isinstance(known, Parameter) else UninitializedBuffer
                setattr(self, name, kind(device=known.device, dtype=known.dtype))

    def has_uninitialized_params(self) -> bool:
        """True until the first call, or until `load_state_dict` brings the parameters."""
        return any(is_lazy(tensor) for tensor in (*self.parameters(False), *self.buffers(False)))

    def reset_parameters(self) -> None:
        """Nothing: there are no parameters yet."""

    def _make(self, **shapes: tuple[int, ...]) -> None:
        """Gives what has no shape yet one, and values. What `load_state_dict` brought stays."""
        if self.has_uninitialized_params():
            for name, shape in shapes.items():
                tensor = getattr(self, name)
                if is_lazy(tensor):
                    tensor.materialize(shape)
            self.cls_to_become.reset_parameters(self)  # type: ignore[union-attr, operator]


class LazyLinear(_Lazy, Linear):
    """A Linear whose in_features is the last size of its first input."""

    def initialize_parameters(self, input: norch.Tensor) -> None:
        """Makes weight and bias for an input of shape (*, in_features)."""
        self.in_features = input.shape[-1]
        self._make(weight=(self.out_features, self.in_features), bias=(self.out_features,))


class _LazyConvolution(_Lazy, _ConvNd):
    def initialize_parameters(self, input: norch.Tensor) -> None:
        """Makes weight and bias for the channels of an input (n, c, ...). Raises ShapeError for another number of dims,
        ValueError where groups do not divide the channels.
        """
        title, dims = type(self).__name__, self.dims
        if input.ndim not in (dims + 1, dims + 2):
            raise norch.ShapeError(f"{title}: expected {dims + 1} or {dims + 2} dims, got shape {tuple(input.shape)}")
        given, out, groups = input.shape[-dims - 1], self.out_channels, self.groups
        if given % groups or out % groups:
            raise ValueError(f"{title}: {given} channels of {tuple(input.shape)} and {out} are not {groups} groups")
        self.in_channels = given
        channels = (given, out // groups) if self.transposed else (out, given // groups)
        self._make(weight=(*channels, *self.kernel_size), bias=(out,))


class LazyConv1d(_LazyConvolution, Conv1d):
    """A Conv1d whose in_channels are those of its first input."""


class LazyConv2d(_LazyConvolution, Conv2d):
    """A Conv2d whose in_channels are those of its first input."""


class LazyConv3d(_LazyConvolution, Conv3d):
    """A Conv3d whose in_channels are those of its first input."""


class LazyConvTranspose1d(_LazyConvolution, ConvTranspose1d):
    """A ConvTranspose1d whose in_channels are those of its first input."""


class LazyConvTranspose2d(_LazyConvolution, ConvTranspose2d):
    """A ConvTranspose2d whose in_channels are those of its first input."""


class LazyConvTranspose3d(_LazyConvolution, ConvTranspose3d):
    """A ConvTranspose3d whose in_channels are those of its first input."""


class _LazyNormBase(_Lazy, _NormBase):
    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        names = list(inspect.signature(_LazyNormBase.__init__).parameters.values())
        cls.__signature__ = inspect.Signature(names[1:])  # type: ignore[attr-defined]

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
        super().__init__(eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def initialize_parameters(self, input: norch.Tensor) -> None:
        """Makes weight, bias and statistics for the channels of an input (n, c, ...), or without n."""
        self._check_input_dim(input)
        self.num_features = n = input.shape[0 if isinstance(self, _InstanceNorm) and input.ndim == self.dims[0] else 1]
        self._make(**dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (n,)))


class LazyBatchNorm1d(_LazyNormBase, BatchNorm1d):
    """A BatchNorm1d whose num_features are the channels of its first input."""


class LazyBatchNorm2d(_LazyNormBase, BatchNorm2d):
    """A BatchNorm2d whose num_features are the channels of its first input."""


class LazyBatchNorm3d(_LazyNormBase, BatchNorm3d):
    """A BatchNorm3d whose num_features are the channels of its first input."""


class LazyInstanceNorm1d(_LazyNormBase, InstanceNorm1d):
    """An InstanceNorm1d whose num_features are the channels of its first input, by default affine, with statistics."""


class LazyInstanceNorm2d(_LazyNormBase, InstanceNorm2d):
    """An InstanceNorm2d whose num_features are the channels of its first input. See LazyInstanceNorm1d."""


class LazyInstanceNorm3d(_LazyNormBase, InstanceNorm3d):
    """An InstanceNorm3d whose num_features are the channels of its first input. See LazyInstanceNorm1d."""
