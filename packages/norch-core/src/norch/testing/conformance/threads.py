"""Level 8: several threads at once, the garbage collector among them."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from ...device import Device
from .calls import Call
from .case import Case, rerunning
from .kernels import compiled
from .order import adder, filled, holds
from .place import Number, Place, get, put

PATIENCE = 60.0
"""Seconds after which a thread that should be done is held to be locked."""


def cases() -> Iterator[Case]:
    for name, check in (
        ("four threads call one kernel at once", _one_kernel),
        ("four threads compile at once", _compile),
        ("buffers are freed by another thread", _freed_elsewhere),
        ("buffers are freed by the garbage collector, whatever the backend is doing", _collected),
    ):
        yield Case(8, "contract", "-", name, 10, check, rerunning(f"8: {name}"))


def together(count: int, work: Callable[[int], None]) -> None:
    """Calls work(0), work(1), … in a thread each, from one moment on, and raises what the first to fail raised."""
    problems: list[BaseException] = []
    start = threading.Barrier(count)

    def run(number: int) -> None:
        try:
            start.wait(PATIENCE)
            work(number)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        if thread.is_alive():
            raise AssertionError(f"a thread was not done after {PATIENCE:.0f} s: the backend waits for a lock")
    if problems:
        raise problems[0]


def _scaler(device: Device, count: int) -> Callable[[Any, Any, float], None]:
    """`scale(out, x, factor)` of buffers."""
    place = Place("float32", (count,))
    kernel = compiled(device, Call("mul", (place,), (place, Number("float32", 2.0)), {}, ()))
    return lambda out, x, factor: kernel(out, 0, x, 0, factor)


def _multiplies(device: Device, scale: Callable[[Any, Any, float], None], count: int, number: int) -> None:
    values = np.arange(count, dtype=np.float32)
    x, out = put(device, values.view(np.uint8)), filled(device, 0, count)
    for factor in range(number, number + 5):
        scale(out, x, factor)
        found = get(device, out, 4 * count).view(np.float32)
        if (found != values * factor).any():
            raise AssertionError(f"a thread multiplied by {factor}, and got {found[:4]}... of {values[:4]}...")


def _one_kernel(device: Device) -> None:
    scale = _scaler(device, 1030)
    together(4, lambda number: _multiplies(device, scale, 1030, number))


def _compile(device: Device) -> None:
    def work(number: int) -> None:
        for count in (37, 38, 39 + number):  # the same by all, and one of its own
            _multiplies(device, _scaler(device, count), count, number)

    together(4, work)


def _freed_elsewhere(device: Device) -> None:
    add = adder(device, 1030)
    for _ in range(3):
        kept = [filled(device, 3, 1030) for _ in range(20)]
        outs = [filled(device, 0, 1030) for _ in range(20)]
        for x, out in zip(kept, outs):
            add(out, x, x)
        del x
        together(1, partial(_clear, kept))
        others = [filled(device, 7, 1030) for _ in range(20)]
        for out in outs:
            holds(device, out, 6, f"sums of buffers that another thread dropped before {len(others)} were made", 1030)


def _clear(kept: list[Any], number: int) -> None:
    kept.clear()


def _collected(device: Device) -> None:
    """The collector runs at one place after the other within the backend's own calls, and frees a buffer there."""
    backend, add, index = device.backend, adder(device, 1030), device.index or 0
    place = Place("float32", (3,))
    x, out = filled(device, 2, 1030), filled(device, 0, 1030)
    data = np.full(1030, 2, np.float32).view(np.uint8).data
    methods: list[Callable[[], Any]] = [
        lambda: backend.allocate(4120, index), lambda: add(out, x, x), lambda: backend.copy_in(x, 0, data),
        lambda: backend.copy(out, 0, x, 0, 4120), lambda: compiled(device, Call("neg", (place,), (place,), {}, ())),
        lambda: backend.synchronize(index),
    ]  # fmt: skip

    def work(number: int) -> None:
        for method in methods:
            for objects in range(1, 10):  # made until the collector runs
                gc.disable()
                cycle: list[Any] = [filled(device, 5, 1030)]
                gc.collect(0)
                cycle = [cycle.pop()]
                cycle.append(cycle)
                del cycle
                gc.set_threshold(objects, 1000, 1000)
                gc.enable()
                method()

    before, was_enabled = gc.get_threshold(), gc.isenabled()
    try:
        together(1, work)
    finally:
        gc.set_threshold(*before)
        (gc.enable if was_enabled else gc.disable)()
    add(out, x, x)
    holds(device, out, 4, "x + x after buffers were collected within the backend's calls", 1030)
