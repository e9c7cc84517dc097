"""Running a list of calls: core's own loop, for backends that offer no program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..backend.contract import Backend, Fed, Place
from .calls import Call

Run = Callable[[Sequence[Any], Sequence[float]], None]


def make_run(
    calls: Sequence[Call], scratch: int, bound: Sequence[Any], backend: Backend, index: int
) -> tuple[Run, bool]:
    """`run(buffers, numbers)`, and whether the backend made it."""
    alone = all(call.operands and call.device.backend is backend for call in calls)
    if alone:
        found = backend.program([(call.kernel, call.arguments) for call in calls], scratch, bound, index)
        if found is not None:
            return found, True
    return _loop(calls, scratch, len(bound), backend, index), False


def _loop(calls: Sequence[Call], scratch: int, places: int, backend: Backend, index: int) -> Run:
    steps: list[tuple[Any, list[Any]]] = []
    uses: list[list[tuple[list[Any], int]]] = [[] for _ in range(places)]
    fed: list[tuple[list[Any], int, int]] = []
    for call in calls:
        arguments = list(call.arguments)
        for at, argument in enumerate(arguments):
            if type(argument) is Place:
                uses[argument].append((arguments, at))
                arguments[at] = None
            elif type(argument) is Fed:
                fed.append((arguments, at, int(argument)))
        steps.append((call.kernel, arguments))
    now: list[Any] = [None] * places
    used = [place for place in range(1, places) if uses[place]]
    allocate = backend.allocate

    def run(buffers: Sequence[Any], numbers: Sequence[float]) -> None:
        if scratch:
            memory = allocate(scratch, index)
            for arguments, at in uses[0]:
                arguments[at] = memory
        for place in used:
            buffer = buffers[place]
            if buffer is not now[place]:
                now[place] = buffer
                for arguments, at in uses[place]:
                    arguments[at] = buffer
        for arguments, at, number in fed:
            arguments[at] = numbers[number]
        position = 0
        try:
            for kernel, arguments in steps:
                kernel(*arguments)
                position += 1
        except Exception as error:
            error.call = position  # type: ignore[attr-defined]
            raise
        finally:
            for arguments, at in uses[0]:
                arguments[at] = None

    return run
