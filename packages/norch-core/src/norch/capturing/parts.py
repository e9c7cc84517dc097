"""What becomes of a captured step that cannot be one program: its parts, captured each for itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .splitting import Odd, Part, Split

if TYPE_CHECKING:
    from .captured import Captured

LAST = -1
"""In the place of a line: the last statement of a step, which returns what no replay can."""


class Parts:
    """The parts of a step, which has refused to be one. odd: why it runs as it is instead, or None."""

    def __init__(self, source: Any, captured: Callable[..., Captured]) -> None:
        self.captured = captured
        self.odd: str | None = None
        self.split: Split | None = None
        try:
            self.split = Split(source, self._capture)
        except Odd as why:
            self.odd = str(why)

    def _capture(self, function: Any, part: Part) -> Captured:
        def refused(line: int | None, outputs: Sequence[int]) -> None:
            split = self.split
            if split is not None and not any(split.leave(part, i) for i in outputs) and line is not None:
                split.refuse(line)

        return self.captured(function, refused)

    def refuse(self, line: int | None) -> None:
        """Takes the step apart at `line`. Without one it runs as it is."""
        split = self.split
        if split is None or line is None:
            return
        split.refuse(split.statements[-1].first if line == LAST else line)

    @property
    def run(self) -> Callable[..., Any] | None:
        """The step in parts, or None where there are none."""
        split = self.split
        if split is None or not split.parts:
            return None
        return lambda *args, **kwargs: split.run(*split.bound, *args, **kwargs)

    def described(self) -> list[tuple[tuple[int, int], Any]]:
        """The first and last line of each part, and what is captured of it."""
        return [] if self.split is None else self.split.captured_parts()


def line_of(why: str, code: Any) -> int | None:
    """The line of that code which the end of a refusal names, such as "(train.py:12)"."""
    found = re.search(r"\((\S+):(\d+)\)$", why)
    if found is None or code is None or found[1] != Path(code.co_filename).name:
        return None
    lines = [line for _, _, line in code.co_lines() if line is not None]
    line = int(found[2])
    return line if min(lines) <= line <= max(lines) else None
