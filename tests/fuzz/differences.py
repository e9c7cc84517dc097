"""The documented differences from PyTorch: docs/differences.md explains each to users, by the name that it has here."""

from __future__ import annotations

import re
from typing import NamedTuple

from program import Outcome

Lines = tuple[str, ...]


class Difference(NamedTuple):
    name: str
    lines: str
    """What a line of the program has, a regular expression."""
    failure: str = ""
    """What the failure says, a regular expression."""


DIFFERENCES: tuple[Difference, ...] = (
    Difference("zero-second-derivatives", "create_graph", "grad is None, should be zeros"),
)


def name_of(lines: Lines, failure: str) -> str | None:
    """The documented difference that a failure is, if it is one."""
    for known in DIFFERENCES:
        if re.search(known.failure, failure) and any(re.search(known.lines, line) for line in lines):
            return known.name
    return None


def undefined(lines: Lines, theirs: Outcome) -> bool:
    """Whether PyTorch itself does not define what this program gives."""
    return any("returns multiple views" in str(e) for e in theirs.errors.values())
