"""Averages of weights: exponential moving averages, and stochastic weight averaging (Izmailov et al., 2018)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from itertools import chain
from typing import Any

import norch
from norch import nn, switches

from .lr_scheduler import LRScheduler
from .lr_scheduler.base import Rates, for_each_group
from .optimizer import Optimizer

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]

Tensors = Sequence[norch.Tensor]
AvgFn = Callable[[norch.Tensor, norch.Tensor, Any], norch.Tensor]
MultiAvgFn = Callable[[Tensors, Tensors, Any], None]


def get_ema_multi_avg_fn(decay: float = 0.999) -> MultiAvgFn:
    """A function for `AveragedModel`: average = decay * average + (1 - decay) * weight, of all weights in one call.

    Raises ValueError for a decay outside [0, 1].
    """
    _check_decay(decay)

    def update(averaged: Tensors, current: Tensors, num_averaged: Any) -> None:
        _lerp_(averaged, current, 1.0 - decay)

    return update


def get_swa_multi_avg_fn() -> MultiAvgFn:
    """A function for `AveragedModel`: the mean of all weights so far, of all weights in one call."""

    def update(averaged: Tensors, current: Tensors, num_averaged: Any) -> None:
        _lerp_(averaged, current, 1.0 / (float(num_averaged) + 1.0))

    return update


def get_ema_avg_fn(decay: float = 0.999) -> AvgFn:
    """As `get_ema_multi_avg_fn`, for one weight at a time: returns the average."""
    _check_decay(decay)

    def update(averaged: norch.Tensor, current: norch.Tensor, num_averaged: Any) -> norch.Tensor:
        with norch.no_grad():
            return averaged * decay + current * (1.0 - decay)

    return update


def get_swa_avg_fn() -> AvgFn:
    """As `get_swa_multi_avg_fn`, for one weight at a time: returns the average."""

    def update(averaged: norch.Tensor, current: norch.Tensor, num_averaged: Any) -> norch.Tensor:
        with norch.no_grad():
            return averaged + (current - averaged) / (num_averaged + 1)

    return update


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. It must be in [0, 1].")


def _lerp_(averaged: Tensors, current: Tensors, weight: float) -> None:
    """averaged += weight * (current - averaged): a step of SGD uphill, for which backends have one kernel for all."""
    rows = [(a, c) for a, c in zip(averaged, current, strict=True) if a.is_floating_point()]
    norch.sgd_step_([a for a, _ in rows], [c for _, c in rows], lr=weight, weight_decay=1.0, maximize=True)
    with norch.no_grad():
        for a, c in zip(averaged, current, strict=True):
            if not a.is_floating_point():
                a.copy_(a * (1.0 - weight) + c * weight)


class AveragedModel(nn.Module):
    """A copy of `model` whose weights are an average of those that `update_parameters(model)` sees.

    The first call copies; later ones call `avg_fn(averaged, weight, num_averaged)` for each weight, or
    `multi_avg_fn(averages, weights, num_averaged)` for all, by default the mean. Buffers are copied, or averaged too
    with `use_buffers`. `device` is where the average is kept. Raises ValueError where both functions are given. After
    Izmailov et al. (2018).
    """

    n_averaged: norch.Tensor

    def __init__(
        self,
        model: nn.Module,
        device: Any = None,
        avg_fn: AvgFn | None = None,
        multi_avg_fn: MultiAvgFn | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise ValueError("AveragedModel: only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", norch.tensor(0, dtype=norch.long, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    @switches.replayed
    def update_parameters(self, model: nn.Module) -> None:
        """Takes the weights of `model`, which is like the one that was copied, into the average."""
        ours, theirs = (
            [t.detach() for t in (chain(m.parameters(), m.buffers()) if self.use_buffers else m.parameters())]
            for m in (self.module, model)
        )
        count = int(self.n_averaged)
        with norch.no_grad():
            if count == 0:
                _copy(ours, theirs)
            elif self.avg_fn is not None:
                for a, c in zip(ours, theirs, strict=True):
                    a.copy_(self.avg_fn(a, c.to(a.device), count))
            else:
                self._update_all(ours, theirs, count)
            if not self.use_buffers:
                _copy([b.detach() for b in self.module.buffers()], [b.detach() for b in model.buffers()])
            self.n_averaged += 1

    def _update_all(self, ours: list[norch.Tensor], theirs: list[norch.Tensor], count: int) -> None:
        update = get_swa_multi_avg_fn() if self.multi_avg_fn is None else self.multi_avg_fn
        alike: dict[Any, list[tuple[norch.Tensor, norch.Tensor]]] = {}
        for a, c in zip(ours, theirs, strict=True):
            alike.setdefault((a.device, a.dtype), []).append((a, c.to(a.device)))
        for rows in alike.values():
            update([a for a, _ in rows], [c for _, c in rows], count)


def _copy(targets: list[norch.Tensor], sources: list[norch.Tensor]) -> None:
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)


def update_bn(loader: Iterable[Any], model: nn.Module, device: Any = None) -> None:
    """Computes the running statistics of the model's batch normalisations again, as means over one pass of `loader`.

    `loader` gives inputs, or lists or tuples whose first is the input; `device` is where they are moved.
    """
    layers: list[Any] = [m for m in model.modules() if any("BatchNorm" in c.__name__ for c in type(m).__mro__)]
    if not layers:
        return
    was_training, momenta = model.training, [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None
    model.train()
    try:
        with norch.no_grad():
            for batch in loader:
                input = batch[0] if isinstance(batch, list | tuple) else batch
                model(input if device is None else input.to(device))
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
        model.train(was_training)


class SWALR(LRScheduler):
    """From the present learning rate to `swa_lr` in `anneal_epochs`, along a "cos" or "linear", and then constant.

    Raises ValueError for another `anneal_strategy` and for anneal_epochs that are not an integer or negative. After
    Izmailov et al. (2018). optimizer, last_epoch: as of `LRScheduler`.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | list[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        for group, lr in zip(optimizer.param_groups, for_each_group("swa_lr", optimizer, swa_lr), strict=True):
            group["swa_lr"] = lr
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"SWALR: anneal_strategy must be one of 'cos' or 'linear', got {anneal_strategy!r}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"SWALR: anneal_epochs must be an integer of 0 or more, got {anneal_epochs}")
        self._anneal_strategy = anneal_strategy
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _rates(self) -> Rates:
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._share(step - 1), self._share(step)
        rates = []
        for group in self.optimizer.param_groups:
            lr, target = group["lr"], group["swa_lr"]
            start = target if before == 1 else (lr - before * target) / (1 - before)
            rates.append(target * now + start * (1 - now))
        return rates

    def _share(self, step: int) -> float:
        """How much of the way has been gone."""
        t = max(0, min(1, step / max(1, self.anneal_epochs)))
        return (1 - math.cos(math.pi * t)) / 2 if self._anneal_strategy == "cos" else t


def __getattr__(name: str) -> Any:
    """What averages of one's own group parameters by."""
    if name == "_group_tensors_by_device_and_dtype":
        return getattr(import_module("norch.utils._foreach_utils"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
