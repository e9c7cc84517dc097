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
    alone = all(c.own and c.operands and c.device.backend is backend and c.device.index == index for c in calls)
    if calls and alone:
        found = backend.program([(call.kernel, call.arguments) for call in calls], scratch, bound, index)
        if found is not None:
            return found, True
    return _loop(calls, scratch, bound, backend, index), False


def _loop(calls: Sequence[Call], scratch: int, bound: Sequence[Any], backend: Backend, index: int) -> Run:
    places = len(bound)
    bound = list(bound)
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
    fixed: list[Any] = [None] * places
    passing = [(place, uses[place]) for place in range(1, places) if uses[place] and bound[place] is None]
    lasting = [(place, uses[place]) for place in range(1, places) if uses[place] and bound[place] is not None]
    allocate = backend.allocate

    def run(buffers: Sequence[Any], numbers: Sequence[float]) -> None:
        position = 0
        try:
            if scratch:
                memory = allocate(scratch, index)
                for arguments, at in uses[0]:
                    arguments[at] = memory
            for place, used in passing:
                buffer = buffers[place]
                for arguments, at in used:
                    arguments[at] = buffer
            for place, used in lasting:
                buffer = buffers[place]
                if buffer is not fixed[place]:
                    fixed[place] = None
                    for arguments, at in used:
                        arguments[at] = buffer
                    fixed[place] = buffer
            for arguments, at, number in fed:
                arguments[at] = numbers[number]
            for kernel, arguments in steps:
                kernel(*arguments)
                position += 1
        except Exception as error:
            error.call = position  # type: ignore[attr-defined]
            raise
        finally:  # what is not the program's own is not kept
            for arguments, at in uses[0]:
                arguments[at] = None
            for _, used in passing:
                for arguments, at in used:
                    arguments[at] = None

    return run
