"""Schedules that multiply: by a function, in steps, along a line, a power or a polynomial.

They go from one epoch's rates to the next one's, so that they can be chained and the rates be changed in between.
"""

from __future__ import annotations

import types
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from ..optimizer import Optimizer
from .base import LRScheduler, Rates, check_optimizer, values_of

Factor = Callable[[int], float]


class _ByFunction(LRScheduler):
    """Schedules of a function for each group. Functions are not saved, the attributes of callable objects are."""

    _unsaved = frozenset({"optimizer", "lr_lambdas"})

    def __init__(self, optimizer: Optimizer, lr_lambda: Factor | list[Factor], last_epoch: int = -1) -> None:
        check_optimizer(optimizer)
        count = len(optimizer.param_groups)
        self.lr_lambdas = list(lr_lambda) if isinstance(lr_lambda, list | tuple) else [lr_lambda] * count
        if len(self.lr_lambdas) != count:
            raise ValueError(f"Expected {count} lr_lambdas, one for each group, but got {len(self.lr_lambdas)}")
        for function in self.lr_lambdas:
            if not callable(function):
                raise TypeError(f"lr_lambda should be a function, but got {type(function).__name__}")
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        saved = [None if isinstance(f, types.FunctionType) else dict(vars(f)) for f in self.lr_lambdas]
        return {**super().state_dict(), "lr_lambdas": saved}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({key: value for key, value in state_dict.items() if key != "lr_lambdas"})
        for function, saved in zip(self.lr_lambdas, state_dict["lr_lambdas"], strict=True):
            if saved is not None:
                vars(function).update(saved)


class LambdaLR(_ByFunction):
    """The initial rate times `lr_lambda(epoch)`: a function, or a list of one for each group.

    Raises ValueError for another number of functions than groups, TypeError for what cannot be called.
    """

    __init__ = _ByFunction.__init__  # else Pythons before 3.11.4 show Replayed.__new__'s parameters

    def _rates(self) -> Rates:
        return [lr * factor(self.last_epoch) for lr, factor in zip(self.base_lrs, self.lr_lambdas, strict=True)]


class MultiplicativeLR(_ByFunction):
    """The rate of the epoch before times `lr_lambda(epoch)`: a function, or a list of one for each group.

    Raises ValueError for another number of functions than groups, TypeError for what cannot be called.
    """

    __init__ = _ByFunction.__init__

    def _rates(self) -> Rates:
        if self._is_initial:
            return values_of(self.optimizer, "lr")
        groups = self.optimizer.param_groups
        return [group["lr"] * factor(self.last_epoch) for group, factor in zip(groups, self.lr_lambdas, strict=True)]


class StepLR(LRScheduler):
    """Times `gamma` every `step_size` epochs."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _rates(self) -> Rates:
        is_step = self.last_epoch != 0 and self.last_epoch % self.step_size == 0
        return self._scaled(self.gamma) if is_step else values_of(self.optimizer, "lr")

    def _get_closed_form_lr(self) -> Rates:
        return [lr * self.gamma ** (self.last_epoch // self.step_size) for lr in self.base_lrs]


class MultiStepLR(LRScheduler):
    """Times `gamma` at each epoch of `milestones`."""

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _rates(self) -> Rates:
        times = self.milestones[self.last_epoch]
        return self._scaled(self.gamma**times) if times else values_of(self.optimizer, "lr")

    def _get_closed_form_lr(self) -> Rates:
        passed = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return [lr * self.gamma**passed for lr in self.base_lrs]

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "milestones": sorted(self.milestones.elements())}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self.milestones = Counter(self.milestones)


class ConstantLR(LRScheduler):
    """Times `factor`, until epoch `total_iters`. Raises ValueError for a factor outside [0, 1]."""

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        _check_fraction("ConstantLR: factor", factor)
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def _rates(self) -> Rates:
        if self.last_epoch == 0:
            return self._scaled(self.factor)
        return self._scaled(1.0 / self.factor) if self.last_epoch == self.total_iters else self._scaled(1.0)

    def _get_closed_form_lr(self) -> Rates:
        return [lr * (1.0 if self.last_epoch >= self.total_iters else self.factor) for lr in self.base_lrs]


class LinearLR(LRScheduler):
    """Times a factor that goes from `start_factor` to `end_factor` along a line, in `total_iters` epochs.

    Raises ValueError for factors outside [0, 1] and a start of 0.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        _check_fraction("LinearLR: start_factor", start_factor)
        _check_fraction("LinearLR: end_factor", end_factor)
        if start_factor == 0:
            raise ValueError("LinearLR: start_factor 0 has no next one, which is a multiple of it; give a small one")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def _rates(self) -> Rates:
        epoch, change = self.last_epoch, self.end_factor - self.start_factor
        if epoch == 0:
            return self._scaled(self.start_factor)
        if self._is_initial or epoch > self.total_iters:
            return values_of(self.optimizer, "lr")
        return self._scaled(1.0 + change / (self.total_iters * self.start_factor + (epoch - 1) * change))

    def _get_closed_form_lr(self) -> Rates:
        change = (self.end_factor - self.start_factor) * min(self.total_iters, self.last_epoch) / self.total_iters
        return [lr * (self.start_factor + change) for lr in self.base_lrs]


class ExponentialLR(LRScheduler):
    """Times `gamma` every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _rates(self) -> Rates:
        return values_of(self.optimizer, "lr") if self._is_initial else self._scaled(self.gamma)

    def _get_closed_form_lr(self) -> Rates:
        return [lr * self.gamma**self.last_epoch for lr in self.base_lrs]


class PolynomialLR(LRScheduler):
    """Times (1 - epoch / total_iters) ** power, which is 0 from epoch `total_iters` on."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def _rates(self) -> Rates:
        epoch = self.last_epoch
        if self._is_initial or epoch > self.total_iters:
            return values_of(self.optimizer, "lr")
        left, left_before = 1.0 - epoch / self.total_iters, 1.0 - (epoch - 1) / self.total_iters
        return self._scaled((left / left_before) ** self.power)

    def _get_closed_form_lr(self) -> Rates:
        left = 1.0 - min(self.total_iters, self.last_epoch) / self.total_iters
        return [lr * left**self.power for lr in self.base_lrs]


def _check_fraction(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} is expected to be between 0 and 1, got {value}")
