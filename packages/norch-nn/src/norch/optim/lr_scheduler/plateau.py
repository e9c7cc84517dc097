"""A schedule by what the training achieves."""

from __future__ import annotations

from typing import Any, SupportsFloat

from ..optimizer import Optimizer
from .base import LRScheduler, check_optimizer, put, values_of, warn_of_epoch


class ReduceLROnPlateau(LRScheduler):
    """Times `factor` where `step(metrics)` saw no better value for more than `patience` epochs.

    Better is less (`mode` "min") or more ("max") than the best, by more than the share `threshold` of it
    (`threshold_mode` "rel") or than `threshold` ("abs"). After a reduction `cooldown` epochs do not count. Rates stay
    at least `min_lr` (a number, or a list of one for each group), and changes of at most `eps` are not made.

    Raises ValueError for a factor of 1 or more, an unknown mode, and min_lr that are not as many as the groups.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | list[float] = 0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise ValueError(f"ReduceLROnPlateau: factor should be < 1.0, got {factor}")
        check_optimizer(optimizer)
        if mode not in ("min", "max"):
            raise ValueError(f"ReduceLROnPlateau: mode {mode!r} is unknown; it is 'min' or 'max'")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"ReduceLROnPlateau: threshold_mode {threshold_mode!r} is unknown; it is 'rel' or 'abs'")
        self.optimizer = optimizer
        self.mode = mode
        self.factor = factor
        self.patience = patience
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.cooldown = cooldown
        self.eps = eps
        count = len(optimizer.param_groups)
        self.default_min_lr = None if isinstance(min_lr, list | tuple) else min_lr
        self.min_lrs = list(min_lr) if isinstance(min_lr, list | tuple) else [min_lr] * count
        if len(self.min_lrs) != count:
            raise ValueError(f"ReduceLROnPlateau: expected {count} min_lrs, got {len(self.min_lrs)}")
        self.last_epoch = 0
        self._last_lr = values_of(optimizer, "lr")
        self.best = float("inf") if mode == "min" else -float("inf")
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    @property
    def in_cooldown(self) -> bool:
        """Whether a reduction was made so recently that epochs do not count."""
        return self.cooldown_counter > 0

    def step(self, metrics: SupportsFloat, epoch: int | None = None) -> None:  # type: ignore[override]
        """Notes what an epoch has achieved, a number or a tensor of one, and reduces the rates where it is time to."""
        current = float(metrics)
        if epoch is not None:
            warn_of_epoch()
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._is_better(current, self.best):
            self.best, self.num_bad_epochs = current, 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr()
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = values_of(self.optimizer, "lr")

    def _is_better(self, value: float, best: float) -> bool:
        if self.threshold_mode == "rel":
            return (
                value < best * (1.0 - self.threshold) if self.mode == "min" else value > best * (1.0 + self.threshold)
            )
        return value < best - self.threshold if self.mode == "min" else value > best + self.threshold

    def _reduce_lr(self) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise RuntimeError(
                    f"ReduceLROnPlateau: the optimizer has {len(groups)} groups, but there are {len(self.min_lrs)} "
                    "min_lrs: a group was added; make `min_lrs` as long"
                )
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, lowest in zip(groups, self.min_lrs, strict=True):
            old = float(group["lr"])
            new = max(old * self.factor, lowest)
            if old - new > self.eps:
                put(group, "lr", new)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on where `state_dict` was taken."""
        super().load_state_dict({key: value for key, value in state_dict.items() if key != "mode_worse"})
