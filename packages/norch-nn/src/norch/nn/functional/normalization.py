"""Normalisation that norch itself has not."""

from __future__ import annotations

import math

import norch


def instance_norm(
    input: norch.Tensor,
    running_mean: norch.Tensor | None = None,
    running_var: norch.Tensor | None = None,
    weight: norch.Tensor | None = None,
    bias: norch.Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> norch.Tensor:
    """Each channel of each sample to mean 0 and variance 1 (Ulyanov et al., 2016), times weight plus bias: (n, c, ...).

    With running statistics they move by `momentum` towards the mean over the batch of each sample's, the unbiased
    variance; without `use_input_stats` they are what is taken. Raises ValueError for a single value a channel,
    ShapeError for fewer dims.
    """
    if not use_input_stats:
        return norch.batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    if input.ndim < 2:
        raise norch.ShapeError(f"instance_norm(): expected (n, c, ...), got shape {tuple(input.shape)}")
    if math.prod(input.shape[2:]) == 1:
        raise ValueError(f"instance_norm(): more than 1 value a channel is needed, got shape {tuple(input.shape)}")
    if running_mean is not None or running_var is not None:
        with norch.no_grad():
            variance, mean = norch.var_mean(input.detach().flatten(2), 2)
            for running, found in ((running_mean, mean), (running_var, variance)):
                if running is not None:
                    running.lerp_(found.mean(0).to(running.dtype), momentum)
    device = input.device.type
    if not norch.is_autocast_enabled(device):
        return norch.group_norm(input, input.shape[1], weight, bias, eps)
    with norch.autocast(device, enabled=False):  # which leaves the dtype as it is, unlike that of group_norm
        return norch.group_norm(input, input.shape[1], weight, bias, eps)


def local_response_norm(
    input: norch.Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> norch.Tensor:
    """input / (k + alpha * mean of the squares of `size` channels around) ** beta (Krizhevsky et al., 2012).

    (n, c, ...) with at least 3 dims, else ShapeError. Channels beyond the edge count as 0.
    """
    if input.ndim < 3:
        raise norch.ShapeError(f"local_response_norm(): expected at least 3 dims, got shape {tuple(input.shape)}")
    if not input.numel():
        return input
    squares = (input * input).reshape(input.shape[0], 1, input.shape[1], -1)
    around = norch.pad(squares, (0, 0, size // 2, (size - 1) // 2))
    mean = norch.avg_pool2d(around, (size, 1), 1).reshape(tuple(input.shape))
    return input / (mean * alpha + k) ** beta
