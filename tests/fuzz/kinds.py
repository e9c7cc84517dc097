"""The kinds of attack: how a program of each is made, and how it is judged."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import NamedTuple

import differences
import ops
import views
from compare import difference
from exact import in_float64
from program import library, run

Lines = tuple[str, ...]


class Kind(NamedTuple):
    generate: Callable[[Random], list[str]]
    check: Callable[[Lines], str | None]
    guarded: bool = False
    """Whether every buffer lies between pages that must not be touched, and is filled with poison before it is used."""


def beside_pytorch(lines: Lines) -> str | None:
    """What norch and PyTorch disagree about, unless it is a documented difference."""
    theirs = run(lines, library("torch"))
    if differences.undefined(lines, theirs):
        return None
    found = difference(run(lines, library("norch")), theirs, lines, partial(in_float64, lines))
    return None if found is None or differences.name_of(lines, found) else found


def until_refused(generate: Callable[[Random], list[str]]) -> Callable[[Random], list[str]]:
    """Programs up to the first line that PyTorch refuses; nothing is left of one that begins so."""

    def made(r: Random) -> list[str]:
        lines = generate(r)
        refused = run(tuple(lines), library("torch")).errors
        return lines[: min(refused)] if refused else lines

    return made


KINDS: dict[str, Kind] = {
    "ops": Kind(until_refused(ops.generate), beside_pytorch),
    "programs": Kind(views.generate, beside_pytorch),
}
