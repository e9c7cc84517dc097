"""RMSprop."""

from __future__ import annotations

import norch

from .multi_tensor import NOT_NEGATIVE, MultiTensorOptimizer


class RMSprop(MultiTensorOptimizer):
    """RMSprop (Tieleman and Hinton, "Neural Networks for Machine Learning", lecture 6.5, 2012; centred: Graves, 2013).

        g = g + weight_decay * p                            (-g first if maximize)
        v = alpha * v + (1 - alpha) * g * g                 (zero at first)
        m = alpha * m + (1 - alpha) * g                     (zero at first; only if centered)
        d = g / (sqrt(v - m * m) + eps)                     (sqrt(v) unless centered)
        b = momentum * b + d                                (zero at first; d without momentum)
        p -= lr * b

    `foreach` and `capturable` choose among PyTorch's implementations, and are ignored. Raises ValueError for a negative
    lr, alpha, eps, momentum or weight_decay.
    """

    _op = staticmethod(norch.rmsprop_step_)
    _states = {"square_avg": 0}
    _optional_states = {"grad_avg": "centered", "momentum_buffer": "momentum"}
    _scalars = ("lr", "alpha", "eps", "weight_decay", "momentum", "maximize")
    _ranges = MultiTensorOptimizer._ranges | {"alpha": NOT_NEGATIVE}
    _key = None

    lr: float | norch.Tensor = 1e-2
    alpha: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0
    momentum: float = 0
    centered: bool = False
    capturable: bool = False
    foreach: bool | None = None
    maximize: bool = False
    differentiable: bool = False
