"""What becomes of a captured step that cannot be one program: its parts, captured each for itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .splitting import Odd, Part, Split

if TYPE_CHECKING:
    from .captured import Captured

_MAX_VALUES: dict[type, int] = {int: 4, str: 4, float: 1}
"""How many values of a number that a part is given, each of which has a program: a float only where it must."""

SOMEWHERE = 0
"""In the place of a line: in one of the statements that are no parts by what they are."""
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

    def _capture(self, function: Any, part: Part) -> PartCall:
        def refused(line: int | None, outputs: Sequence[int]) -> None:
            split = self.split
            if split is not None and not any(split.leave(part, i) for i in outputs) and line is not None:
                split.refuse(line)

        return PartCall(self.captured(function, refused), part, self)

    def refuse(self, line: int | None) -> None:
        """Takes the step apart at `line`. Without one it runs as it is."""
        split = self.split
        if split is None or line is None:
            return
        if line == SOMEWHERE:
            line = split.first_left() or -2
        split.refuse(split.last_line() if line == LAST else line)

    @property
    def run(self) -> Callable[..., Any] | None:
        """The step in parts, or None where there are none."""
        split = self.split
        if split is None or not split.parts:
            return None
        return lambda *args, **kwargs: split.run(*split.bound, *args, **kwargs)

    def described(self) -> list[tuple[tuple[int, int], Any]]:
        """The first and last line of each part, and what is captured of it."""
        return [] if self.split is None else [(lines, call.captured) for lines, call in self.split.captured_parts()]


class PartCall:
    """A part of a step. Statements that read a number which is ever another are left to Python: each has a program."""

    def __init__(self, captured: Captured, part: Part, parts: Parts) -> None:
        self.captured, self.part, self.parts = captured, part, parts
        self.values: list[set[Any]] = [set() for _ in part.inputs]

    def __call__(self, *args: Any) -> Any:
        for values, value, name in zip(self.values, args, self.part.inputs, strict=True):
            most = _MAX_VALUES.get(type(value), 0)
            if not most or value in values or len(values) > most:
                continue
            if type(value) is not float or self.captured.by_value:
                values.add(value)
                if len(values) > most and self.parts.split is not None:
                    self.parts.split.leave_readers(self.part, name)
        return self.captured(*args)


def line_of(why: str, code: Any) -> int | None:
    """The line of that code which the end of a refusal names, such as "(train.py:12)"."""
    found = re.search(r"\((\S+):(\d+)\)$", why)
    if found is None or code is None or found[1] != Path(code.co_filename).name:
        return None
    lines = [line for _, _, line in code.co_lines() if line is not None]
    line = int(found[2])
    return line if min(lines) <= line <= max(lines) else None
