"""Schedules that go up and down, the momentum the other way (Smith, 2017 and 2018)."""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from typing import Any

from ..optimizer import Optimizer
from .base import LRScheduler, Rates, check_optimizer, for_each_group, put


class _WithMomentum(LRScheduler):
    """Schedules that may change the momentum: that of SGD, or the first of Adam's betas."""

    cycle_momentum: bool
    use_beta1: bool

    def _begin_momentum(self, base: Any, highest: Any, last_epoch: int) -> tuple[list[float], list[float]]:
        """Checks that there is a momentum, sets it to the highest and notes both in the groups."""
        optimizer = self.optimizer
        if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
            raise ValueError(
                f"optimizer must support momentum or beta1 with `cycle_momentum` option enabled; "
                f"{type(optimizer).__name__} does not, so give cycle_momentum=False"
            )
        self.use_beta1 = "betas" in optimizer.defaults
        lowest = for_each_group("base_momentum", optimizer, base)
        largest = for_each_group("max_momentum", optimizer, highest)
        if last_epoch == -1:
            for group, low, high in zip(optimizer.param_groups, lowest, largest, strict=True):
                self._put_momentum(group, high)
                group.update(max_momentum=high, base_momentum=low)
        return lowest, largest

    def _put_momentum(self, group: dict[str, Any], value: float) -> None:
        if self.use_beta1:
            group["betas"] = (value, *group["betas"][1:])
        else:
            group["momentum"] = value


class OneCycleLR(_WithMomentum):
    """The 1cycle policy (Smith and Topin, "Super-Convergence", 2018), for a `step` after each batch.

    From max_lr / div_factor up to `max_lr` in the share `pct_start` of all steps, then down to the start divided by
    `final_div_factor`; with `three_phase`, back to the start first. All steps are `total_steps`, or `epochs` times
    `steps_per_epoch`. `anneal_strategy`: along a "cos" or "linear". With `cycle_momentum` the momentum, or Adam's
    beta1, goes from `max_momentum` to `base_momentum` and back.

    Raises ValueError for arguments out of range, for an optimiser without a momentum, and for a step after the last.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        if total_steps is not None:
            self.total_steps = _positive("total_steps", total_steps)
        elif epochs is not None and steps_per_epoch is not None:
            self.total_steps = _positive("epochs", epochs) * _positive("steps_per_epoch", steps_per_epoch)
        else:
            raise ValueError("OneCycleLR: you must define either total_steps OR (epochs AND steps_per_epoch)")
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise ValueError(f"OneCycleLR: expected a float between 0 and 1 as pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"OneCycleLR: anneal_strategy must be one of 'cos' or 'linear', got {anneal_strategy!r}")
        self._anneal_func_type = anneal_strategy
        # The last step of each phase, and the names of the rate and the momentum where it ends.
        last, up = self.total_steps - 1, float(pct_start * self.total_steps)
        self._phases: list[tuple[float, str, str]] = [(up - 1, "max_lr", "base_momentum")]
        if three_phase:
            self._phases.append((2 * up - 2, "initial_lr", "max_momentum"))
        self._phases.append((last, "min_lr", "max_momentum"))
        highest = for_each_group("max_lr", optimizer, max_lr)
        if last_epoch == -1:
            for group, lr in zip(optimizer.param_groups, highest, strict=True):
                start = lr / div_factor
                group.update(initial_lr=start, max_lr=lr, min_lr=start / final_div_factor)
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._begin_momentum(base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    def _rates(self) -> Rates:
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(f"OneCycleLR: step {step}, but the specified number of total steps is {self.total_steps}")
        begin, start_lr, start_momentum = 0.0, "initial_lr", "max_momentum"
        for end, lr, momentum in self._phases:
            if step <= end or end == self._phases[-1][0]:
                break
            begin, start_lr, start_momentum = end, lr, momentum
        part = (step - begin) / (end - begin)
        groups = self.optimizer.param_groups
        if self.cycle_momentum:
            for group in groups:
                self._put_momentum(group, self._between(group[start_momentum], group[momentum], part))
        return [self._between(group[start_lr], group[lr], part) for group in groups]

    def _between(self, start: float, end: float, part: float) -> float:
        if self._anneal_func_type == "cos":
            return end + (start - end) / 2.0 * (math.cos(math.pi * part) + 1)
        return (end - start) * part + start

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._phases = [tuple(phase) for phase in self._phases]  # type: ignore[misc]


class CyclicLR(_WithMomentum):
    """Between `base_lr` and `max_lr` and back, again and again (Smith, "Cyclical Learning Rates for Training Neural
    Networks", 2017), for a `step` after each batch: `step_size_up` steps up, `step_size_down` down (None: as many).

    What is above base_lr is scaled by a function of the cycle (1, 2, ...) or of the step: 1 for `mode` "triangular",
    2 ** (1 - cycle) for "triangular2", gamma ** step for "exp_range", or `scale_fn` of what `scale_mode` says, "cycle"
    or "iterations". With `cycle_momentum` the momentum, or Adam's beta1, goes from `max_momentum` to `base_momentum`
    and back. Raises ValueError for an unknown mode and an optimiser without a momentum.
    """

    _unsaved = frozenset({"optimizer", "_scale_fn_custom"})

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.8,
        max_momentum: float | list[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        lowest = for_each_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for group, lr in zip(optimizer.param_groups, lowest, strict=True):
                put(group, "lr", lr)
        self.max_lrs = for_each_group("max_lr", optimizer, max_lr)
        up = float(step_size_up)
        self.total_size = up + (up if step_size_down is None else float(step_size_down))
        self.step_ratio = up / self.total_size
        if scale_fn is None and mode not in ("triangular", "triangular2", "exp_range"):
            raise ValueError(
                f"CyclicLR: mode must be 'triangular', 'triangular2' or 'exp_range', or scale_fn be given, got {mode!r}"
            )
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.base_momentums, self.max_momentums = self._begin_momentum(base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = lowest

    def scale_fn(self, x: float) -> float:
        """What the height of cycle or step `x` is multiplied by."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "triangular":
            return 1.0
        return 1 / 2.0 ** (x - 1) if self.mode == "triangular2" else self.gamma**x

    def _rates(self) -> Rates:
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            limits = zip(self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True)
            for group, low, high in limits:
                self._put_momentum(group, high - (high - low) * height * scale)
        return [low + (high - low) * height * scale for low, high in zip(self.base_lrs, self.max_lrs, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        fn = self._scale_fn_custom
        is_plain = fn is None or isinstance(fn, types.FunctionType)
        return {**super().state_dict(), "_scale_fn_custom": None if is_plain else dict(vars(fn))}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({key: value for key, value in state_dict.items() if key != "_scale_fn_custom"})
        if state_dict.get("_scale_fn_custom") is not None:
            vars(self._scale_fn_custom).update(state_dict["_scale_fn_custom"])


def _positive(name: str, value: int) -> int:
    if not isinstance(value, int) or value <= 0:
        raise ValueError(f"OneCycleLR: expected a positive integer {name}, but got {value}")
    return value
