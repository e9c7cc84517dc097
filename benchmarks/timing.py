"""Timing calls of several libraries against each other on a machine that others use too."""

from __future__ import annotations

import math
import os
import time
import timeit
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
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


class Others:
    """What else runs on the machine, from when this is made."""

    def __init__(self) -> None:
        self.start = _processor_seconds()

    def share(self) -> float | None:
        """Of all processors' time since then, the part that went to other processes; None where no system tells."""
        now = _processor_seconds()
        if now is None or self.start is None:
            return None
        total, others = (after - before for before, after in zip(self.start, now))
        return max(0.0, others / total) if total > 0 else None


def _processor_seconds() -> tuple[float, float] | None:
    """Seconds that the processors have been there, and those of others: not this one nor its ended children."""
    try:
        ticks = [int(n) for n in Path("/proc/stat").read_text().split(maxsplit=9)[1:9]]
    except (OSError, ValueError):
        return None
    _user, _nice, _system, idle, waiting, *_ = ticks
    second, own = os.sysconf("SC_CLK_TCK"), sum(os.times()[:4])
    return sum(ticks) / second, (sum(ticks) - idle - waiting) / second - own
