"""What a captured step knows of a signature."""

from __future__ import annotations

from typing import Any

from .backwards import Backwards
from .program import Program
from .recorder import Recorder


class Entry:
    """What is known of a signature: its programs; or what was recorded of it; or why it is not replayed.

    again: the call at which a refused one is tried again. waiting: why the last recording has become no program.
    """

    def __init__(self, key: Any, signature: str) -> None:
        self.key, self.signature = key, signature
        self.calls = self.recordings = self.changes = self.disturbed = self.again = 0
        self.recorded: tuple[Recorder, Any] | None = None
        self.programs: list[tuple[Program, Any]] = []
        self.refusal: str | None = None
        self.waiting: str | None = None
        self.moves = -1
        self.traces = False
        """Whether floats among the arguments may be others at each call."""
        self.backwards: Backwards | None = None
        self.ready: tuple[Any, ...] | None = None
        """What a program will be made of once the backward passes through the results have been recorded too."""

    def begin_again(self) -> None:
        self.recorded, self.recordings, self.ready = None, 0, None
