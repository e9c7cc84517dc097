"""What a program gives without rounding: PyTorch's result with every floating dtype float64."""

from __future__ import annotations

import re
from random import Random
from typing import Any

from program import Outcome, filled, library, run

BY = (-1.0, -0.87, -0.74, 0.69, 0.81, 0.96)
"""Movements of several sizes: those of numbers that cancel do not cancel too."""


def in_float64(lines: tuple[str, ...], shaken: float = 0.0) -> Outcome:
    """The same program in PyTorch in float64; the values that go in are rounded as before.

    shaken: how far, relatively, they are moved at random: by as much results may differ that are both right.
    """
    T, r = library("torch"), Random(0)

    def moved(v: float) -> float:
        return v * (1 + shaken * r.choice(BY)) + shaken * r.choice(BY) * (abs(shaken) > 1e-5)

    def moved_parameters(module: Any, seed: int) -> Any:
        for parameter in filled(T, module, seed).parameters():
            parameter.data.apply_(moved)
        return module

    known: dict[str, Any] = {"_moved": moved} | ({"filled": moved_parameters} if shaken else {})
    unmoved = ("z", "d", "_", "m = ")  # results; a module, whose parameters are moved above
    doubled = [promoted(line, "" if not shaken or line.startswith(unmoved) else ".apply_(_moved)") for line in lines]
    before = T.get_default_dtype()
    try:
        T.set_default_dtype(T.float64)
        return run(tuple(doubled), T, known)
    finally:
        T.set_default_dtype(before)


def promoted(line: str, then: str) -> str:
    """The line with float64 for every floating dtype; `then` is appended to what makes a tensor of values."""
    line = re.sub(r"T\.tensor\((?=[^()]*\.\d)[^()=]*\)", rf"\g<0>{then}", line)
    line = re.sub(r"((?:dtype=|\.to\()T\.(?:float\d\d|bfloat16)\))", rf"\1.to(T.float64){then}", line)
    return re.sub(r"dtype=T\.(float32|float16|bfloat16)(?!\))", "dtype=T.float64", line)
