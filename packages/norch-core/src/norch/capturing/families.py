"""Signatures that differ only in shapes, numbers or objects: where replays of some came to nothing, others wait."""

from __future__ import annotations

from typing import Any

from .checks import FACTOR, FIRST_CHECK
from .counters import Counter

ENOUGH = 64
"""Replays that are worth what recording a signature took."""
FORGIVEN = 2
FIRST_CALLS = 4
"""About as many calls pass until a program is made."""


class Family:
    """How many signatures in a row have come to nothing, and why the last one did: they were refused, or their
    programs gave way to others before they had run often."""

    def __init__(self) -> None:
        self.wasted = 0
        self.why = ""
        self.counters: tuple[Counter, ...] = ()
        """Integers in attributes of arguments that have been seen to change."""
        self.life = 0
        """The calls of the last signature whose objects are gone, if it was not refused: another may have as many."""

    def first(self) -> int:
        """The call of another signature that is recorded: the second, or a later one where it may not be worth it."""
        if self.life > ENOUGH + FIRST_CALLS:
            return 2
        return 2 if self.wasted < FORGIVEN else FIRST_CHECK * FACTOR ** min(self.wasted - FORGIVEN, 6)

    def came_to(self, replays: int, why: str) -> None:
        if replays >= ENOUGH:
            self.wasted = 0
        else:
            self.wasted, self.why = self.wasted + 1, why


def family_of(leaves: list[Any], structure: Any) -> Any:
    """What signatures of one family have in common: the types of what the step is called with."""
    return tuple(map(type, leaves)), repr(structure)
