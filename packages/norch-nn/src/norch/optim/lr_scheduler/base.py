"""What all schedulers share: counting epochs, and setting the groups' learning rates."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import norch
from norch import switches

from ..optimizer import Optimizer

Rates = list[Any]
"""A learning rate for each group: floats, or tensors where the optimiser was given tensors."""


@contextmanager
def _enable_get_lr_call(o: LRScheduler) -> Iterator[LRScheduler]:
    """A `with` block in which `get_lr` does not warn: that of a `step`."""
    o._get_lr_called_within_step = True
    try:
        yield o
    finally:
        o._get_lr_called_within_step = False


class LRScheduler(switches.Replayed):
    """Base of schedulers: sets the learning rates of the optimiser's groups when it is made and with each `step`.

    A subclass defines `get_lr`, which returns the rates of epoch `last_epoch` from `base_lrs`, the first ones, or from
    the groups' present ones. `last_epoch=-1` begins; another one goes on after that epoch, with the "initial_lr" that
    the groups then must have. Raises TypeError unless it is an Optimizer, KeyError for a missing "initial_lr".
    """

    _unsaved: ClassVar[frozenset[str]] = frozenset({"optimizer"})
    _get_lr_called_within_step = False
    _is_initial = False
    _last_lr: Rates
    _step_count: int

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            setattr(cls, "step", switches.replayed(cls.__dict__["step"]))  # noqa: B010

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", copied(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}]: a scheduler that resumes with "
                    "last_epoch >= 0 needs an optimizer whose state was loaded, or that had a scheduler before"
                )
        self.base_lrs: Rates = values_of(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        if not optimizer._is_scheduled:
            optimizer._is_scheduled, optimizer._opt_called = True, False
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    @switches.replayed
    def step(self, epoch: int | None = None) -> None:
        """Goes on to the next epoch, or to `epoch`, and sets the learning rates. Call it after `optimizer.step()`.

        Warns where no step of the optimiser came before the first, and for `epoch`, which PyTorch deprecates.
        """
        if self._step_count == 1 and not self.optimizer._opt_called:
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`: the first learning rate of the "
                "schedule is skipped. Call `optimizer.step()` first.",
                UserWarning,
                stacklevel=2,
            )
        self._step_count += 1
        if epoch is not None:
            warn_of_epoch()
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        closed = getattr(self, "_get_closed_form_lr", None)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        self._set_rates(self.get_lr if epoch is None or closed is None else closed)

    def _set_rates(self, get: Any) -> None:
        with _enable_get_lr_call(self):
            rates = get()
        for group, lr in zip(self.optimizer.param_groups, rates, strict=True):
            put(group, "lr", lr)
        self._last_lr = values_of(self.optimizer, "lr")

    def get_last_lr(self) -> Rates:
        """The learning rates that this scheduler has set last."""
        return self._last_lr

    def get_lr(self) -> Rates:
        """The learning rates of epoch `last_epoch`; to be called by `step`. Users ask `get_last_lr`."""
        if not self._get_lr_called_within_step:
            warnings.warn(
                "get_lr() computes the next step's rates. To get the last learning rate computed by the scheduler, "
                "please use `get_last_lr()`.",
                UserWarning,
                stacklevel=2,
            )
        return self._rates()

    def _rates(self) -> Rates:
        raise NotImplementedError(f"{type(self).__name__} does not define get_lr()")

    def _scaled(self, factor: float) -> Rates:
        """The groups' present rates times a factor."""
        return [group["lr"] * factor for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """All that the scheduler knows but the optimiser."""
        return {key: value for key, value in self.__dict__.items() if key not in self._unsaved}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on where `state_dict` was taken. The optimiser's own state is to be loaded too."""
        self.__dict__.update(state_dict)


def check_optimizer(optimizer: Any) -> None:
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


def warn_of_epoch() -> None:
    warnings.warn(
        "The epoch parameter in `scheduler.step()` is deprecated in PyTorch, and here only for old scripts: it uses "
        "the closed form of a schedule where there is one. Please use `scheduler.step()`.",
        UserWarning,
        stacklevel=3,
    )


def copied(value: Any) -> Any:
    return value.clone() if isinstance(value, norch.Tensor) else value


def values_of(optimizer: Optimizer, key: str) -> Rates:
    """What the groups have there; tensors are copied, since those in the groups change in place."""
    return [copied(group[key]) for group in optimizer.param_groups]


def put(group: dict[str, Any], key: str, value: Any) -> None:
    """Sets an option of a group: a tensor stays the tensor it is."""
    if isinstance(group[key], norch.Tensor):
        group[key].fill_(float(value))
    else:
        group[key] = value


def for_each_group(name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """`value` for each group, or the values of a list. Raises ValueError where those are not as many as the groups."""
    count = len(optimizer.param_groups)
    if not isinstance(value, list | tuple):
        return [copied(value) for _ in range(count)]
    if len(value) != count:
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups: it has {len(value)} values, there are "
            f"{count} groups"
        )
    return [copied(v) for v in value]
