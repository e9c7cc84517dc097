"""When a captured step is looked at again: whether it still does what was recorded."""

from __future__ import annotations

FIRST_CHECK = 16
FACTOR = 16
"""A recording takes as long as thousands of replays of a small step, so that checks must become rare."""


def next_check(calls: int) -> int:
    """The call, after `calls` of them, that is recorded again: the 16th, the 256th, the 4,096th and so on."""
    found = FIRST_CHECK
    while found <= calls:
        found *= FACTOR
    return found
