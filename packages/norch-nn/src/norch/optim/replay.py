"""The Python of an optimiser's step in replays of `norch.capture`, without what is the same each time."""

from __future__ import annotations

from collections.abc import Callable
from operator import is_, itemgetter
from typing import TYPE_CHECKING, Any
from weakref import ref

import norch

if TYPE_CHECKING:
    from .multi_tensor import MultiTensorOptimizer

Ask = Callable[[Callable[[], None]], list[tuple[Any, tuple[float, ...]]]]
"""Calls a function; returns attributes and numbers of the steps that it would have made."""


class _Part:
    """A step that a group makes at once: its options then, and the states that it reads and writes."""

    def __init__(self, optimizer: MultiTensorOptimizer, at: int, params: list[norch.Tensor], ask: Ask) -> None:
        group = optimizer.param_groups[at]
        self.at, self.group, self.params, self.count = at, id(group), id(group["params"]), len(group["params"])
        self.size = len(group)
        self.options: Any = itemgetter(*[name for name in group if name != "params"])
        self.values = self.options(group)
        self.states = [optimizer.state.get(param, {}) for param in params]
        self.names = [name for name, value in self.states[0].items() if isinstance(value, norch.Tensor)]
        # Which of the group's parameters they are; None: all.
        given = {id(param) for param in params}
        rows = [row for row, param in enumerate(group["params"]) if id(param) in given]
        self.rows = None if len(rows) == self.count else rows
        self.tensors = [state[name] for state in self.states for name in self.names]
        self.counts = "step" in self.states[0]
        self.arguments = optimizer._arguments(group, self.states[0])
        self.attrs, self.numbers = self._asked(optimizer, ask)

    def _asked(self, optimizer: MultiTensorOptimizer, ask: Ask) -> tuple[Any, tuple[float, ...]]:
        none: list[norch.Tensor] = []
        names = optimizer._state_names(optimizer.param_groups[self.at])
        if any(name is not None and name not in self.names for name in names):
            return None, ()
        lists = [None if name is None else none for name in names]
        ((attrs, numbers),) = ask(lambda: optimizer._op(none, none, *lists, **self.arguments))
        return attrs, numbers

    def fits(self, optimizer: MultiTensorOptimizer) -> bool:
        group = optimizer.param_groups[self.at]
        params = group["params"]
        if id(group) != self.group or id(params) != self.params or len(params) != self.count or len(group) != self.size:
            return False
        names, states = self.names, self.states
        if names:
            if self.rows is not None:
                params = [params[row] for row in self.rows]
            if not all(map(is_, map(optimizer.state.get, params), states)):
                return False
        if not all(map(is_, [state.get(name) for state in states for name in names], self.tensors)):
            return False
        key = optimizer._key
        if self.counts and key is not None:
            keys = list(map(key, states))
            return keys.count(keys[0]) == len(keys)
        return True

    def give(self, optimizer: MultiTensorOptimizer, ask: Ask) -> bool:
        """Finds the numbers of this step; False where it is another kind of step."""
        group = optimizer.param_groups[self.at]
        values = self.options(group)
        key = optimizer._key if self.counts else None
        if values == self.values and (key is None or optimizer._varying is not None):
            if key is not None:
                self.arguments["step"] = self.states[0]["step"] + 1
                varying = optimizer._varying(self.arguments)
                self.numbers = (*self.numbers[: -len(varying)], *varying)
            return True
        if any(isinstance(value, norch.Tensor) for value in values):
            return False
        self.arguments = optimizer._arguments(group, self.states[0])
        attrs, self.numbers = self._asked(optimizer, ask)
        if attrs != self.attrs:
            return False
        self.values = values
        return True

    def count_step(self, optimizer: MultiTensorOptimizer) -> None:
        if not self.counts:
            return
        step = self.states[0]["step"] + 1
        if optimizer._plain_count:
            for state in self.states:
                state["step"] = step
        else:
            group = optimizer.param_groups[self.at]
            for name, value in optimizer._next_numbers(group, self.arguments, step).items():
                for state in self.states:
                    state[name] = value


class StepReplay:
    """A step of an optimiser as it was recorded: `give(numbers)` makes it again but for its kernels.

    given: ids of parameters whose gradients are known to be there, or not, as they were.
    """

    def __init__(self, optimizer: MultiTensorOptimizer, given: set[int], ask: Ask) -> None:
        self.optimizer, self.ask = ref(optimizer), ask
        self.parts = []
        self.others: list[tuple[Any, bool]] = []
        for at, group in enumerate(optimizer.param_groups):
            params, _ = optimizer._with_gradient(group)
            self.others += [(ref(p), p.grad is not None) for p in group["params"] if id(p) not in given]
            if params:
                self.parts.append(_Part(optimizer, at, params, ask))
        self.groups = len(optimizer.param_groups)

    def give(self, numbers: list[float]) -> bool:
        """Appends the step's numbers and counts it; False, with nothing changed, where it is not as it was."""
        optimizer = self.optimizer()
        if optimizer is None or len(optimizer.param_groups) != self.groups:
            return False
        for weak, had in self.others:
            param = weak()
            if param is None or (param.grad is not None) is not had:
                return False
        for part in self.parts:
            if not (part.fits(optimizer) and part.give(optimizer, self.ask)):
                return False
        for part in self.parts:
            numbers += part.numbers
            part.count_step(optimizer)
        optimizer._opt_called = True
        return True

    def steps(self) -> list[tuple[Any, int]]:
        """Attributes of its steps, and how many numbers they have."""
        return [(part.attrs, len(part.numbers)) for part in self.parts]

    def redo(self) -> None:
        """Runs the kernels of the step that `give` has counted last."""
        optimizer = self.optimizer()
        assert optimizer is not None
        for part in self.parts:
            group = optimizer.param_groups[part.at]
            params, grads = optimizer._with_gradient(group)
            names = optimizer._state_names(group)
            lists = [None if name is None else [state[name] for state in part.states] for name in names]
            optimizer._op(params, grads, *lists, **part.arguments)
