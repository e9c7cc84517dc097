"""How far an epoch has come: all that is needed to go on from there."""

from __future__ import annotations

from typing import Any

import norch

from .fetch import Epoch


class Progress:
    """Of one epoch: what has been delivered to the user, which what workers have made beyond that is no part of."""

    def __init__(self, seed: int, epoch: int, begun: bool = True) -> None:
        self.seed, self.epoch = seed, epoch
        self.begun = begun  # whether an iterator has started it, and drawn for it where the loader has no seed
        self.batches = 0
        self.ahead: set[int] = set()
        self.streams: list[dict[str, Any]] | None = None
        self.turn = 0
        self.order: list[Any] | None = None
        self.finished = False

    def deliver(self, number: int) -> None:
        """Counts batch `number` of the epoch's order; without `in_order` it may be ahead of others."""
        if number != self.batches:
            self.ahead.add(number)
            return
        self.batches += 1
        while self.batches in self.ahead:
            self.ahead.remove(self.batches)
            self.batches += 1

    def at(self) -> Epoch:
        """What workers are told of the epoch."""
        return Epoch(self.seed, self.epoch, self.streams)

    def state_dict(self) -> dict[str, Any]:
        """Numbers, strings, lists and dicts only, beside what a dataset or sampler gave."""
        return {
            "seed": self.seed,
            "epoch": self.epoch,
            "begun": self.begun,
            "batches": self.batches,
            "ahead": sorted(self.ahead),
            "streams": [dict(s) for s in self.streams] if self.streams and self.batches else None,
            "turn": self.turn,
            "order": self.order,
        }

    @classmethod
    def of(cls, state: dict[str, Any]) -> Progress:
        progress = cls(int(state["seed"]), int(state["epoch"]), bool(state.get("begun", True)))
        progress.batches, progress.ahead = int(state["batches"]), {int(n) for n in state["ahead"]}
        progress.streams = None if state["streams"] is None else [dict(s) for s in state["streams"]]
        progress.turn, progress.order = int(state["turn"]), state["order"]
        return progress


# --- What decides the order of an epoch, beside its key --------------------------------------------------------------


def _deciders(sampler: Any) -> list[Any]:
    """The sampler and those inside it."""
    found: list[Any] = []
    while sampler is not None and len(found) < 8:
        found.append(sampler)
        sampler = getattr(sampler, "sampler", None)
    return found


def order_state(sampler: Any) -> list[Any] | None:
    """The states of the samplers that have `state_dict`, or a generator of their own: taken before an epoch starts."""
    states: list[Any] = []
    for one in _deciders(sampler):
        generator = getattr(one, "generator", None)
        if hasattr(one, "state_dict") and hasattr(one, "load_state_dict"):
            states.append({"sampler": one.state_dict()})
        elif isinstance(generator, norch.Generator):
            states.append({"generator": generator.get_state().tolist()})
        else:
            states.append(None)
    return states if any(s is not None for s in states) else None


def restore_order(sampler: Any, states: list[Any] | None) -> None:
    """Puts samplers back to where `order_state` was called. Raises ValueError where they are others."""
    samplers = _deciders(sampler)
    if states is None:
        return
    if len(states) != len(samplers):
        raise ValueError(f"load_state_dict(): the state has {len(states)} nested samplers, this loader {len(samplers)}")
    for one, state in zip(samplers, states):
        if state is None:
            continue
        if "sampler" in state and hasattr(one, "load_state_dict"):
            one.load_state_dict(state["sampler"])
        elif "generator" in state and isinstance(getattr(one, "generator", None), norch.Generator):
            one.generator.set_state(norch.tensor(state["generator"], dtype=norch.uint8, device="cpu"))
        else:
            raise ValueError(f"load_state_dict(): {type(one).__name__} does not take the state {state!r:.80}")
