"""When a captured step is looked at again: whether it still does what was recorded."""

from __future__ import annotations

FIRST_CHECK = 16


def next_check(calls: int) -> int:
    """The call, after `calls` of them, that is recorded again."""
    return next((n for n in (FIRST_CHECK, 256, 4096) if n > calls), calls + 10_000)
