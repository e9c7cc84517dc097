"""SyncBatchNorm: BatchNorm over the batches of all processes."""

from __future__ import annotations

from typing import Any

import norch

from .module import Module
from .normalization import _BatchNorm


class SyncBatchNorm(_BatchNorm):
    """BatchNorm whose statistics are those of the batches of all processes taken together: (n, c, ...).

    process_group: among whom; all processes by default. Each forward and each backward pass in training needs one
    collective. In evaluation, and where there is one process or no group, it is BatchNorm. Unlike PyTorch's it works on
    the CPU too. num_features, momentum, track_running_stats: as of `BatchNorm1d`.
    """

    dims = tuple(range(2, 65))

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)  # type: ignore[call-arg]
        self.process_group = process_group

    def _check_input_dim(self, input: norch.Tensor) -> None:
        if input.ndim < 2:
            raise ValueError(f"expected at least 2D input (got {input.ndim}D input)")

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        """Raises ValueError for fewer than 2 dims, and for one value a channel in all processes together."""
        self._check_input_dim(input)
        group = self._group() if self.training else None
        if group is None:
            return super().forward(input)
        if input.shape[1] != self.num_features:
            raise norch.ShapeError(
                f"SyncBatchNorm: expected {self.num_features} channels, got shape {tuple(input.shape)}"
            )
        out, mean, variance, count = _SyncBatchNorm.apply(input, self.weight, self.bias, self.eps, group)
        if self.track_running_stats and self.running_mean is not None:
            self._move(mean, variance, count)
        return out  # type: ignore[no-any-return]

    def _group(self) -> Any:
        dist = norch.distributed  # imported here and not before
        if not dist.is_initialized():
            return None
        group = dist.group.WORLD if self.process_group is None else self.process_group
        return group if isinstance(group, dist.ProcessGroup) and group.size() > 1 else None

    def _move(self, mean: norch.Tensor, variance: norch.Tensor, count: norch.Tensor) -> None:
        """Moves the running statistics towards those of all batches."""
        with norch.no_grad():
            seen = self.num_batches_tracked
            if seen is not None:
                seen += 1
            unbiased = variance * (count / (count - 1).clamp(1))
            for running, found in ((self.running_mean, mean), (self.running_var, unbiased)):
                assert running is not None
                share: Any = self.momentum
                if share is None:
                    assert seen is not None
                    share = 1 / seen.to(running.dtype)
                running.add_((found.to(running.dtype) - running) * share)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """`module` with a SyncBatchNorm, of the same tensors, in the place of every BatchNorm in it."""
        made: Module = module
        if isinstance(module, _BatchNorm):
            new = cls(module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats)
            new.process_group = process_group
            new.weight, new.bias = module.weight, module.bias
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                setattr(new, name, getattr(module, name))
            new.training = module.training
            if hasattr(module, "qconfig"):
                new.qconfig = module.qconfig
            made = new
        for name, child in module.named_children():
            made.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return made


class _SyncBatchNorm(norch.autograd.Function):
    """Forward and backward with one collective each."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        input, weight, bias, eps, group = args
        x = input.float() if input.dtype.itemsize < 4 else input
        dims = [0, *range(2, x.ndim)]
        channels = x.shape[1]
        count = x.numel() // max(channels, 1)
        mine = norch.zeros(2 * channels + 1, dtype=x.dtype, device=x.device)
        if count:
            mean = x.mean(dims)
            mine[:channels] = mean
            mine[channels:-1] = (x - _along(mean, x)).square().sum(dims)
            mine[-1] = count
        all_ = norch.empty((group.size(), mine.numel()), dtype=x.dtype, device=x.device)
        norch.distributed.all_gather_into_tensor(all_, mine, group)
        means, squares, counts = all_[:, :channels], all_[:, channels:-1], all_[:, -1:]
        total = counts.sum()
        if x.device.type == "cpu" and float(total) <= 1:
            raise ValueError(
                f"Expected more than 1 value per channel when training, got input size {tuple(input.shape)}"
            )
        mean = (means * counts).sum(0) / total
        variance = (squares.sum(0) + ((means - mean).square() * counts).sum(0)) / total
        factor = 1 / (variance + eps).sqrt()
        out = (x - _along(mean, x)) * _along(factor, x)
        if weight is not None:
            out = out * _along(weight, x)
        if bias is not None:
            out = out + _along(bias, x)
        ctx.save_for_backward(input, weight, mean, factor, total)
        ctx.group, ctx.has_bias = group, bias is not None
        ctx.mark_non_differentiable(mean, variance, total)
        return out.to(input.dtype), mean, variance, total

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        input, weight, mean, factor, total = ctx.saved_tensors
        x, g = input, grads[0]
        if input.dtype.itemsize < 4:
            x, g = x.float(), g.float()
        dims = [0, *range(2, x.ndim)]
        scaled = (x - _along(mean, x)) * _along(factor, x)
        sums = norch.stack([g.sum(dims), (g * scaled).sum(dims)])
        grad_bias = sums[0].clone() if ctx.has_bias else None
        grad_weight = sums[1].to(weight.dtype, copy=True) if weight is not None else None
        grad_input = None
        if ctx.needs_input_grad[0]:
            norch.distributed.all_reduce(sums, group=ctx.group)
            means = sums / total
            grad_input = g - _along(means[0], x) - scaled * _along(means[1], x)
            grad_input = (grad_input * _along(factor if weight is None else factor * weight, x)).to(input.dtype)
        return grad_input, grad_weight, grad_bias, None, None


def _along(channels: norch.Tensor, like: norch.Tensor) -> norch.Tensor:
    """Values of the channels, as they broadcast against (n, c, ...)."""
    return channels.reshape(-1, *[1] * (like.ndim - 2))
