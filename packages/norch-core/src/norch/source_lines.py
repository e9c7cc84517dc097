"""Where in the user's program norch is called from: the nearest frame that is neither norch's nor the standard
library's. norch-nn is norch's own."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType

_STDLIB = os.path.dirname(os.__file__) + os.sep
_NORCH_NN = ("norch.distributed.", "norch.nn.", "norch.optim.", "norch.ray.", "norch.utils.", "norch.vision.")
_PACKAGES = (_STDLIB + "site-packages", _STDLIB + "dist-packages")


class _Own(dict[str, bool]):
    """By file name of a code object: whether it is passed over. Call paths are compiled as "<norch …>"."""

    def __missing__(self, filename: str) -> bool:
        libraries = [path + os.sep for path in sys.modules["norch"].__path__]
        own = filename.startswith(("<norch", "<frozen ", *libraries))
        self[filename] = own = own or (filename.startswith(_STDLIB) and not filename.startswith(_PACKAGES))
        return own


own_files = _Own()


class Line:
    """A line of a program: a code object and how far in it the call was. Its text is read when it is asked for."""

    __slots__ = ("at", "code")

    def __init__(self, code: CodeType, at: int) -> None:
        self.code, self.at = code, at

    @property
    def filename(self) -> str:
        """The file as Python knows it: a path, or `<stdin>` and the like."""
        return self.code.co_filename

    @property
    def lineno(self) -> int:
        for start, end, line in self.code.co_lines():
            if start <= self.at < end and line is not None:
                return line
        return self.code.co_firstlineno

    @property
    def function(self) -> str:
        """The name of the function that the line is in, `<module>` outside of any."""
        return self.code.co_qualname

    def text(self) -> str:
        """The line itself, without the blanks around it; "" where the source is not to be had."""
        from linecache import checkcache, getline

        checkcache(self.filename)
        return getline(self.filename, self.lineno).strip()

    def __str__(self) -> str:
        return f"{os.path.basename(self.filename)}:{self.lineno}"

    def __repr__(self) -> str:
        return f"<Line {self}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Line) and (self.filename, self.lineno) == (other.filename, other.lineno)

    def __hash__(self) -> int:
        return hash((self.filename, self.lineno))


NOT_KNOWN = "norch.autograd.record_lines(True) before would tell the line"


def table(*rows: tuple[str, Line | None]) -> str:
    """What the first sentence of an error is followed by: a row for each thing that happened, with its line."""
    wide = max(len(what) for what, _ in rows)
    places = ["" if line is None else f"{line} in {line.function}" for _, line in rows]
    at = max(map(len, places))
    shown = ""
    for (what, line), place in zip(rows, places, strict=True):
        shown += f"\n    {what:{wide}}   {NOT_KNOWN if line is None else f'{place:{at}}   {line.text()}'.rstrip()}"
    return shown


def here(depth: int = 1, inner: bool = False) -> Line | None:
    """The line outside of norch that this thread is at: that of the caller (depth 1), or of what called it.

    inner: the line of norch-nn, if there is one, that called into norch-core: in a layer, a loss or an optimiser.
    None where there is no such line: in a thread of norch's own, or while Python ends.
    """
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None:
        code = frame.f_code
        if not own_files[code.co_filename] or (inner and frame.f_globals.get("__name__", "").startswith(_NORCH_NN)):
            return Line(code, frame.f_lasti)
        frame = frame.f_back
    return None
