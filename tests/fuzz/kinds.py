"""The kinds of attack: how a program of each is made, and how it is judged."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import NamedTuple

import captured
import differences
import files
import hostile
import layers
import models
import numpy as np
import ops
import parallel
import views
from compare import difference
from exact import in_float64
from program import library, run

Lines = tuple[str, ...]


class Kind(NamedTuple):
    generate: Callable[[Random], list[str]]
    check: Callable[[Lines], str | None]


def beside_pytorch(lines: Lines, floor: float = 0.0, network: bool = False) -> str | None:
    """What norch and PyTorch disagree about, unless it is a documented difference. `floor` is as in `difference`.

    network: it is relative to the largest gradient, whose rounding comes through the layers to those that are 0.
    """
    theirs = run(lines, library("torch"))
    if differences.undefined(lines, theirs):
        return None
    if network:
        gradients = [v.grad.values for v in theirs.values.values() if v.grad is not None]
        floor *= max([1.0, *[np.abs(g[np.isfinite(g)]).max(initial=0.0) for g in gradients]])
    found = difference(run(lines, library("norch")), theirs, lines, partial(in_float64, lines), floor)
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
    "programs": Kind(views.generate, partial(beside_pytorch, floor=16.0)),
    "arguments": Kind(hostile.generate, hostile.check),
    "files": Kind(files.generate, files.check),
    "threads": Kind(parallel.generate, partial(beside_pytorch, floor=512.0)),
    "capture": Kind(views.generate, captured.check),
    "layers": Kind(until_refused(layers.generate), partial(beside_pytorch, floor=512.0, network=True)),
    "models": Kind(until_refused(models.generate), partial(beside_pytorch, floor=512.0, network=True)),
}
