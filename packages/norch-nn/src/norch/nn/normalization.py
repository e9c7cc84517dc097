"""Layers that bring values to mean 0 and variance 1."""

from __future__ import annotations

from dataclasses import KW_ONLY, InitVar
from numbers import Integral
from typing import Any, ClassVar

import norch

from . import functional as F
from . import init
from .layer import layer
from .module import Module
from .parameter import Parameter, optional_parameter


class _Affine(Module):
    """A weight of ones and a bias of zeros, or None for each that is not asked for."""

    weight: Parameter | None
    bias: Parameter | None

    def _make_affine(self, shape: tuple[int, ...], weight: bool, bias: bool, device: Any, dtype: Any) -> None:
        for name, wanted in (("weight", weight), ("bias", bias)):
            self.register_parameter(name, optional_parameter(wanted, shape, device, dtype))

    def reset_parameters(self) -> None:
        """Makes weight 1 and bias 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if "bias" in self._parameter_names and self.bias is not None:
            init.zeros_(self.bias)


# --- Over channels and the batch ------------------------------------------------------------------------------------


@layer()
class _NormBase(_Affine):
    dims: ClassVar[tuple[int, ...]] = ()
    """How many dims an input may have."""
    _passing: ClassVar[tuple[int, ...]] = ()
    """With how many dims an input need not be checked."""
    _version = 2  # the first had no num_batches_tracked

    num_features: int
    eps: float = 1e-5
    momentum: float | None = 0.1
    affine: bool = True
    track_running_stats: bool = True
    device: InitVar[Any] = None
    dtype: InitVar[Any] = None
    _: KW_ONLY
    bias: InitVar[bool] = True

    def __post_init__(self, device: Any, dtype: Any, bias: bool) -> None:
        num_features, affine = self.num_features, self.affine
        self._make_affine((num_features,), affine, affine and bias, device, dtype)
        if self.track_running_stats:
            self.register_buffer("running_mean", norch.zeros(num_features, device=device, dtype=dtype))
            self.register_buffer("running_var", norch.ones(num_features, device=device, dtype=dtype))
            self.register_buffer("num_batches_tracked", norch.tensor(0, device=device, dtype=norch.int64))
        else:
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                self.register_buffer(name, None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Makes the running mean 0 and the running variance 1, and forgets the batches counted."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """`reset_running_stats`, and makes weight 1 and bias 0."""
        self.reset_running_stats()
        super().reset_parameters()

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], *rest: Any
    ) -> None:
        if local_metadata.get("version", 1) < 2 and self.num_batches_tracked is not None:
            state_dict.setdefault(f"{prefix}num_batches_tracked", self.num_batches_tracked.detach())
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._passing = cls.dims if cls._check_input_dim is _NormBase._check_input_dim else ()

    def _check_input_dim(self, input: norch.Tensor) -> None:
        """Raises ValueError for another number of dims, NotImplementedError where a class says of none. Subclasses
        define it."""
        if not self.dims:
            raise NotImplementedError(f"{type(self).__name__} defines neither _check_input_dim nor dims")
        if input.ndim not in self.dims:
            expected = " or ".join(map(str, self.dims))
            raise ValueError(f"{type(self).__name__}: expected {expected} dims, got shape {tuple(input.shape)}")

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        """Raises ValueError for another number of dims, ShapeError for another number of channels."""
        if input.ndim not in self._passing:
            self._check_input_dim(input)
        if not self.training:
            mean, var = self.running_mean, self.running_var
            return F.batch_norm(input, mean, var, self.weight, self.bias, mean is None, 0.0, self.eps)
        if not self.track_running_stats or self.running_mean is None:
            return F.batch_norm(input, None, None, self.weight, self.bias, True, 0.0, self.eps)
        seen = self.num_batches_tracked
        if seen is not None:
            seen += 1  # in place
        if self.momentum is None:
            return self._averaging(input)
        return F.batch_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias, True, self.momentum, self.eps
        )

    def _averaging(self, input: norch.Tensor) -> norch.Tensor:
        """Running statistics that are the plain average of all batches', without waiting for their number."""
        mean, var, count = self.running_mean, self.running_var, self.num_batches_tracked
        assert mean is not None
        assert var is not None
        assert count is not None
        new = norch.zeros_like(mean), norch.zeros_like(var)
        out = F.batch_norm(input, *new, self.weight, self.bias, True, 1.0, self.eps)
        if input.numel():  # else there is no mean to move towards
            with norch.no_grad():
                share = 1 / count.to(mean.dtype)
                for running, found in zip((mean, var), new):
                    running.add_((found - running) * share)
        return out

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_NormBase):
    """The base of those over the batch, which programs ask for with isinstance."""


class BatchNorm1d(_BatchNorm):
    """(x - mean) / sqrt(variance + eps) * weight + bias for each channel of (n, c) or (n, c, w) (Ioffe
    and Szegedy, 2015).

    In training with the statistics of the batch, which move the running ones by `momentum` (None: to the average of all
    batches); in evaluation with the running ones, or again those of the batch with track_running_stats=False.
    """

    dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """(x - mean) / sqrt(variance + eps) * weight + bias for each channel of (n, c, h, w). See BatchNorm1d."""

    dims = (4,)


class BatchNorm3d(_BatchNorm):
    """(x - mean) / sqrt(variance + eps) * weight + bias for each channel of (n, c, d, h, w). See BatchNorm1d."""

    dims = (5,)


@layer()
class _InstanceNorm(_NormBase):
    affine: bool = False
    track_running_stats: bool = False

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        """Raises ValueError for another number of dims, or of channels where there are parameters for them."""
        self._check_input_dim(input)
        alone = input.ndim == self.dims[0]
        if input.shape[0 if alone else 1] != self.num_features and (self.affine or self.track_running_stats):
            raise ValueError(
                f"{type(self).__name__}: expected {self.num_features} channels, got shape {tuple(input.shape)}"
            )
        out = F.instance_norm(
            *(input.unsqueeze(0) if alone else input, self.running_mean, self.running_var, self.weight, self.bias),
            *(self.training or not self.track_running_stats, self.momentum or 0.0, self.eps),
        )
        return out.squeeze(0) if alone else out


class InstanceNorm1d(_InstanceNorm):
    """Each channel of each sample of (n, c, w) or (c, w) to mean 0 and variance 1; see `functional.instance_norm`.

    After Ulyanov et al. (2016).
    """

    dims = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Each channel of each sample of (n, c, h, w) or (c, h, w) to mean 0 and variance 1; see `InstanceNorm1d`."""

    dims = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Each channel of each sample of (n, c, d, h, w) or (c, d, h, w) to mean 0 and variance 1; see `InstanceNorm1d`."""

    dims = (4, 5)


# --- Within a sample ------------------------------------------------------------------------------------------------


def _shape(normalized_shape: Any) -> tuple[Any, ...]:
    return (normalized_shape,) if isinstance(normalized_shape, Integral) else tuple(normalized_shape)


@layer()
class LayerNorm(_Affine):
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last dims, whose sizes are `normalized_shape`.

    After Ba et al. (2016).
    """

    normalized_shape: Any
    eps: float = 1e-5
    elementwise_affine: bool = True
    bias: InitVar[bool] = True
    device: InitVar[Any] = None
    dtype: InitVar[Any] = None

    def __post_init__(self, bias: bool, device: Any, dtype: Any) -> None:
        self.normalized_shape = _shape(self.normalized_shape)
        weight = self.elementwise_affine
        self._make_affine(self.normalized_shape, weight, weight and bias, device, dtype)
        self.reset_parameters()

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        """Raises ShapeError where `input` does not end in normalized_shape."""
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        bias = self.bias is not None
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, bias={bias}"


@layer()
class RMSNorm(_Affine):
    """x / sqrt(mean(x * x) + eps) * weight over the last dims, whose sizes are `normalized_shape`.

    eps: that of the dtype by default. After Zhang and Sennrich (2019).
    """

    normalized_shape: Any
    eps: float | None = None
    elementwise_affine: bool = True
    device: InitVar[Any] = None
    dtype: InitVar[Any] = None

    def __post_init__(self, device: Any, dtype: Any) -> None:
        self.normalized_shape = shape = _shape(self.normalized_shape)
        self.register_parameter("weight", optional_parameter(self.elementwise_affine, shape, device, dtype))
        self.reset_parameters()

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        """Raises ShapeError where `input` does not end in normalized_shape."""
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


@layer()
class GroupNorm(_Affine):
    """Each of `num_groups` groups of channels of (n, c, ...) to mean 0 and variance 1, times weight plus bias, (c).

    Raises ValueError where the groups do not divide the channels. After Wu and He (2018).
    """

    num_groups: int
    num_channels: int
    eps: float = 1e-5
    affine: bool = True
    device: InitVar[Any] = None
    dtype: InitVar[Any] = None
    _: KW_ONLY
    bias: InitVar[bool] = True

    def __post_init__(self, device: Any, dtype: Any, bias: bool) -> None:
        groups, channels = self.num_groups, self.num_channels
        if groups < 1 or channels % groups:
            raise ValueError(f"GroupNorm: num_channels {channels} must be divisible by num_groups {groups}")
        self._make_affine((channels,), self.affine, self.affine and bias, device, dtype)
        self.reset_parameters()

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        """Raises ShapeError for another number of channels."""
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        bias = self.bias is not None
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, bias={bias}"


@layer(F.local_response_norm)
class LocalResponseNorm(Module):
    """x / (k + alpha * mean of the squares of `size` channels around) ** beta, for (n, c, ...)."""

    size: int
    alpha: float = 0.0001
    beta: float = 0.75
    k: float = 1.0

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


@layer()
class CrossMapLRN2d(Module):
    """x / (k + alpha / size * sum of the squares of the channels around) ** beta, for (n, c, h, w), as Torch had it.

    `LocalResponseNorm` is what it was meant to be. As in PyTorch the channels around are those less than
    (size + 1) // 2 away, and the first one always; the gradient is the derivative of that, which PyTorch's is not.
    """

    size: int
    alpha: float = 0.0001
    beta: float = 0.75
    k: float = 1

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        if input.ndim != 4:
            raise norch.ShapeError(f"CrossMapLRN2d: expected 4 dims, got shape {tuple(input.shape)}")
        at = norch.arange(input.shape[1], device=input.device)
        around = ((at.unsqueeze(1) - at).abs() < (self.size + 1) // 2) | (at == 0)
        sums = around.to(input.dtype) @ input.square().flatten(2)
        return input * (sums.reshape(input.shape) * (self.alpha / self.size) + self.k) ** -self.beta

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
