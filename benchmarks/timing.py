"""Timing calls of several libraries against each other on a machine that others use too."""

from __future__ import annotations

import math
import time
import timeit
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Call = Callable[[], object]


def interleaved(
    calls: Mapping[Key, Call], rounds: int, number: int | Mapping[Key, int], settle: float = 0.0
) -> dict[Key, list[float]]:
    """Seconds a call takes, by round: in each every one is timed once, `number` times over, in rotated order.

    Untimed calls come before: one, or as many as take `settle` seconds. They fill the caches, wake a library's threads
    and let those of the last one, which wait spinning, go to sleep.
    """
    order = list(calls)
    times: dict[Key, list[float]] = {key: [] for key in order}
    for turn in range(rounds):
        at = turn % len(order)
        for key in order[at:] + order[:at]:
            call, count = calls[key], number if isinstance(number, int) else number[key]
            end = time.perf_counter() + settle
            call()
            while time.perf_counter() < end:
                call()
            times[key].append(timeit.timeit(call, number=count) / count)
    return times


def count_for(call: Call, seconds: float) -> tuple[int, float]:
    """How many calls take at least `seconds`, and how long these take."""
    count = 1
    while True:
        taken = timeit.timeit(call, number=count)
        if taken >= seconds / 4:
            wanted = max(1, math.ceil(count * seconds / taken))
            return wanted, wanted * taken / count
        count *= 4
