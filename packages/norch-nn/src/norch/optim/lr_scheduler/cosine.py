"""Cosine schedules (Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", 2017)."""

from __future__ import annotations

import math

from ..optimizer import Optimizer
from .base import LRScheduler, Rates, values_of


class CosineAnnealingLR(LRScheduler):
    """From the initial rate to `eta_min` in `T_max` epochs, along half a period of a cosine, then back again.

        lr = eta_min + (initial - eta_min) * (1 + cos(pi * epoch / T_max)) / 2

    from one epoch's rate to the next one's, so that it can be chained. After Loshchilov and Hutter (2017).
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def _rates(self) -> Rates:
        epoch = self.last_epoch
        if self._is_initial:
            return values_of(self.optimizer, "lr")
        if self._step_count == 1 and epoch > 0:
            return self._get_closed_form_lr()
        groups = self.optimizer.param_groups
        if (epoch - 1 - self.T_max) % (2 * self.T_max) == 0:  # the epoch before was at eta_min, of which no multiple is
            rise = (1 - math.cos(math.pi / self.T_max)) / 2
            return [g["lr"] + (lr - self.eta_min) * rise for g, lr in zip(groups, self.base_lrs, strict=True)]
        ratio = self._height(epoch) / self._height(epoch - 1)
        return [ratio * (g["lr"] - self.eta_min) + self.eta_min for g in groups]

    def _height(self, epoch: int) -> float:
        return 1 + math.cos(math.pi * epoch / self.T_max)

    def _get_closed_form_lr(self) -> Rates:
        return [self.eta_min + (lr - self.eta_min) * self._height(self.last_epoch) / 2 for lr in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a period of a cosine from the initial rate to `eta_min` again and again: the first in `T_0` epochs, each
    next one in `T_mult` times as many.

    `step(epoch)` takes fractions of epochs, as in `scheduler.step(epoch + i / batches)`. Raises ValueError unless T_0
    is a positive and T_mult a positive integer, and for a negative epoch. After Loshchilov and Hutter (2017).
    """

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        for name, value in (("T_0", T_0), ("T_mult", T_mult)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"CosineAnnealingWarmRestarts: expected a positive integer {name}, but got {value}")
        if not isinstance(eta_min, float | int):
            raise ValueError(f"CosineAnnealingWarmRestarts: expected a number eta_min, got {type(eta_min).__name__}")
        self.T_0 = T_0
        self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def _rates(self) -> Rates:
        height = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (lr - self.eta_min) * height for lr in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Goes on to the next epoch, or to `epoch`, which may be a fraction, and sets the learning rates."""
        self._update_lr(epoch)

    def _update_lr(self, epoch: float | None = None) -> None:
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        elif epoch < 0:
            raise ValueError(f"CosineAnnealingWarmRestarts: expected a non-negative epoch, but got {epoch}")
        elif epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:  # before period n come T_0 * (1 + T_mult + ... + T_mult ** (n - 1)) epochs
            n = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_i = self.T_0 * self.T_mult**n
            self.T_cur = epoch - self.T_0 * (self.T_mult**n - 1) / (self.T_mult - 1)
        self.last_epoch = math.floor(epoch)
        self._set_rates(self.get_lr)
