"""Schedules made of others: one after the other, or all at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from ..optimizer import Optimizer
from .base import LRScheduler, put, values_of
from .plateau import ReduceLROnPlateau


class _Combined(LRScheduler):
    _unsaved = frozenset({"optimizer", "_schedulers"})

    def _begin(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None) -> None:
        title = type(self).__name__
        if not schedulers:
            raise ValueError(f"{title} expects at least one scheduler, but got no scheduler")
        for i, scheduler in enumerate(schedulers):
            if not hasattr(scheduler, "optimizer"):
                raise TypeError(f"{title}: {type(scheduler).__name__} at index {i} is not a scheduler of an optimizer")
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(f"{title}: ReduceLROnPlateau at index {i} needs metrics, which cannot be given here")
            optimizer = optimizer if optimizer is not None else scheduler.optimizer
            if scheduler.optimizer is not optimizer:
                raise ValueError(
                    f"{title} expects all schedulers to belong to the same optimizer, but {type(scheduler).__name__} "
                    f"at index {i} has another"
                )
        assert optimizer is not None
        self._schedulers = schedulers
        self.optimizer = optimizer

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "_schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({key: value for key, value in state_dict.items() if key != "_schedulers"})
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)


class SequentialLR(_Combined):
    """One scheduler after the other: each next one begins, with its epoch 0, at the next epoch of `milestones`.

    Raises ValueError unless there is one milestone fewer than schedulers, all of one optimiser and without metrics.
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: list[LRScheduler], milestones: list[int], last_epoch: int = -1
    ) -> None:
        self._begin(schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                f"SequentialLR expects one milestone fewer than schedulers, got {len(schedulers)} schedulers and "
                f"{len(milestones)} milestones"
            )
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        # All have made their first step when they were made; only the first is to have made it.
        for group in optimizer.param_groups:
            put(group, "lr", group["initial_lr"])
        _undo(self)
        first = schedulers[bisect_right(milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def step(self) -> None:  # type: ignore[override]
        """Goes on to the next epoch of the scheduler whose turn it is."""
        self.last_epoch += 1
        at = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[at]
        if at > 0 and self._milestones[at - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(_Combined):
    """All schedulers at once: each changes the rates that the one before has set.

    Raises ValueError unless all are of one optimiser and without metrics.
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        self._begin(schedulers, optimizer)
        self._last_lr = values_of(self.optimizer, "lr")

    def step(self) -> None:  # type: ignore[override]
        """Goes on to the next epoch of all."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = values_of(self.optimizer, "lr")


def _undo(scheduler: Any) -> None:
    """Takes back the count of a scheduler's first step, or of those it is made of."""
    if isinstance(scheduler, _Combined):
        for part in scheduler._schedulers:
            _undo(part)
    elif hasattr(scheduler, "last_epoch"):
        scheduler.last_epoch -= 1
