"""`norch.capture`: a step that trains or infers is recorded as a list of kernel calls and replayed in one call."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from . import numbers as _numbers  # noqa: F401  which norch.backend.feeders has
from .captured import Captured

_RUNS_LATER = 0x20 | 0x80 | 0x200
"""Flags of the code of generators, coroutines, and both."""


def capture(step: Callable[..., Any] | None = None, *, fullgraph: bool = False) -> Any:
    """`step` as a function that is replayed: from the fourth call on its kernels run as one program, bit for bit as
    before, and none of its Python.

    The first call of a signature (shapes, dtypes and layouts of tensors, other arguments, modes) runs as it is, the
    second and third are recorded and compared. What cannot be replayed (values read by Python, shapes that depend on
    data, numbers that change) is left as it is; `report()` of the result says what and where.

    fullgraph: raise CaptureError, with the line, instead. With no `step`, a decorator. Raises TypeError for a
    coroutine, a generator and what is no function.
    """
    if step is None:
        return lambda function: capture(function, fullgraph=fullgraph)
    if not callable(step):
        raise TypeError(f"capture(): expected a function, got {type(step).__name__}")
    code = getattr(getattr(step, "__func__", step), "__code__", None)
    if code is not None and code.co_flags & _RUNS_LATER:
        raise TypeError(f"capture(): {step.__name__} is a coroutine or a generator, which runs when capture() is over")
    if isinstance(step, Captured):
        return step
    nn = sys.modules.get("norch.nn")
    if nn is not None and isinstance(step, nn.Module):
        wrapper = import_module("norch.nn.compiled").OptimizedModule
        return (
            step
            if isinstance(step, wrapper)
            else wrapper(step, lambda module: Captured(module, fullgraph, module.forward))
        )
    return Captured(step, fullgraph, getattr(step, "source", None))
