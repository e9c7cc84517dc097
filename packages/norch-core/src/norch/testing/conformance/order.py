"""Level 8: the order of work that may be put off, what lives how long, and errors that come late."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ... import ops
from ...backend.contract import IndexOutOfBounds
from ...device import Device
from .calls import Call
from .case import Case, rerunning
from .kernels import compiled
from .place import Array, Place, get, put

COUNT = 50_000
LATE = (IndexOutOfBounds, IndexError)


def cases() -> Iterator[Case]:
    for name, check in (
        ("copies and kernels take effect in the order of the calls", _in_order),
        ("what copy_in has read may be written over", _read_at_once),
        ("copy_out_later gives what a buffer held, by the next synchronize", _copied_later),
        ("a buffer may be dropped before its work is done", _dropped),
        ("nothing keeps a buffer whose work is done", _forgotten),
        ("a view by the host is of work done, and outlives its buffer", _viewed),
    ):
        yield Case(8, "contract", "-", name, 10, check, rerunning(f"8: {name}"))
    for op in ("gather", "scatter", "scatter_add"):
        name = f"{op} reports the first of two wrong indices, once"
        yield Case(8, op, "-", name, 10, _reported(op), rerunning(f"8: {name}"))
    name = "users see the op of an index out of range"
    yield Case(8, "gather", "-", name, 10, _named, rerunning(f"8: {name}"))


def vector(count: int = COUNT) -> Place:
    return Place("float32", (count,))


def filled(device: Device, value: float, count: int = COUNT) -> Any:
    """A new buffer of float32 of one value."""
    return put(device, np.full(count, value, np.float32).view(np.uint8))


def adder(device: Device, count: int = COUNT) -> Callable[[Any, Any, Any], None]:
    """`add(out, a, b)` of buffers."""
    nothing = np.zeros(count, np.float32)
    kernel = compiled(device, Call("add", (vector(count),), (vector(count),) * 2, {}, (nothing, nothing)))
    return lambda out, a, b: kernel(out, 0, a, 0, b, 0)


def holds(device: Device, buffer: Any, value: float, what: str, count: int = COUNT) -> None:
    expect(get(device, buffer, 4 * count), value, what)


def expect(memory: Array, value: float, what: str) -> None:
    wrong = np.flatnonzero(np.asarray(memory).view(np.float32) != value)
    if wrong.size:
        first = int(wrong[0])
        got = memory.view(np.float32)[first]
        raise AssertionError(f"{what}: element {first} is {got}, expected {value} ({wrong.size} are wrong)")


def _in_order(device: Device) -> None:
    backend, add = device.backend, adder(device)
    x, y, z = (filled(device, value) for value in (1, 0, 0))
    add(y, x, x)
    backend.copy_in(x, 0, np.full(COUNT, 5, np.float32).view(np.uint8).data)
    add(z, x, y)
    backend.copy(y, 0, z, 0, 4 * COUNT)
    backend.copy_in(z, 0, np.full(COUNT, 1, np.float32).view(np.uint8).data)
    add(x, y, z)
    holds(device, y, 7, "y = x + x; x becomes 5; z = x + y; y becomes z; z becomes 1; then y")
    holds(device, x, 8, "x = y + z behind that")


def _read_at_once(device: Device) -> None:
    for count in (3, COUNT):
        data = np.full(count, 2, np.float32)
        buffer = filled(device, 0, count)
        device.backend.copy_in(buffer, 0, data.view(np.uint8).data)
        data[:] = 9
        holds(device, buffer, 2, "the host wrote over its memory after copy_in had returned", count)


def _copied_later(device: Device) -> None:
    backend, add = device.backend, adder(device)
    x, y = filled(device, 1), filled(device, 0)
    found = np.zeros(COUNT, np.float32)
    add(y, x, x)
    backend.copy_out_later(y, 0, found.view(np.uint8).data)
    add(x, y, y)
    backend.copy(y, 0, x, 0, 4 * COUNT)
    backend.synchronize(device.index or 0)
    expect(found.view(np.uint8), 2, "y = x + x; copy_out_later; y becomes another; synchronize: then the copy")


def _dropped(device: Device) -> None:
    add = adder(device)
    for _ in range(3):
        x, y, out = filled(device, 3), filled(device, 0), filled(device, 0)
        device.backend.synchronize(device.index or 0)
        add(y, x, x)
        del x
        others = [filled(device, 7) for _ in range(3)]
        add(out, y, y)
        del y
        others += [filled(device, 8) for _ in range(3)]
        holds(device, out, 12, "y = x + x; out = y + y, of buffers that were dropped at once")


def _forgotten(device: Device) -> None:
    add = adder(device)
    x, y = filled(device, 1), filled(device, 0)
    add(y, x, x)
    get(device, y, 4)
    device.backend.synchronize(device.index or 0)
    try:
        kept = weakref.ref(x)
    except TypeError:
        return  # of a type without weak references it cannot be told
    del x
    if kept() is not None:
        gc.collect()
    if kept() is not None:
        raise AssertionError("a buffer was still held after its kernel was done and its last user had dropped it")


def _viewed(device: Device) -> None:
    add = adder(device)
    x, y = filled(device, 1), filled(device, 0)
    device.backend.synchronize(device.index or 0)  # y is 0 then, and not what another case left in its memory
    add(y, x, x)
    view = device.backend.host_view(y)
    if view is None:
        return
    bytes_of_y = np.frombuffer(view, np.uint8)[: 4 * COUNT]
    expect(bytes_of_y, 2, "host_view of y = x + x")
    del view, y
    gc.collect()
    device.backend.synchronize(device.index or 0)
    others = [filled(device, 7) for _ in range(8)]
    device.backend.synchronize(device.index or 0)
    expect(bytes_of_y, 2, f"a view whose buffer was dropped, after {len(others)} others were made")


def _reported(op: str) -> Callable[[Device], None]:
    def check(device: Device) -> None:
        backend, index = device.backend, Place("int64", (3,))
        values, five = np.arange(5, dtype=np.float32), Place("float32", (5,))
        three = Place("float32", (3,))
        out, inputs = (three, (five, index)) if op == "gather" else (five, (index, three))
        call = Call(op, (out,), inputs, {"dim": 0}, ())
        kernel, add = compiled(device, call), adder(device, 5)
        x, y, src = put(device, values.view(np.uint8)), filled(device, 0, 5), filled(device, 1, 3)
        held = put(device, out.memory(values[: out.shape[0]]))
        where = [put(device, np.array([0, wrong, 1]).view(np.uint8)) for wrong in (9, 7)]
        reports: list[tuple[str, Exception]] = []

        def noting(when: str, function: Callable[..., None], *args: Any) -> None:
            try:
                function(*args)
            except LATE as error:
                reports.append((when, error))

        for at, wrong in zip(where, (9, 7)):
            noting(f"index {wrong}", kernel, held, 0, *((x, 0, at, 0) if op == "gather" else (at, 0, src, 0)))
            noting("add", add, y, x, x)
        noting("wait", backend.synchronize, device.index or 0)
        noting("second wait", backend.synchronize, device.index or 0)
        noting("copy", get, device, y, 4)
        found = [(when, _index_of(error)) for when, error in reports]
        if found not in ([("wait", 9)], [("index 9", 9), ("index 7", 7)]):
            raise AssertionError(
                f"of indices 9 and then 7 in a dim of 5 these were reported: {found}, expected 9 when the device is "
                "next waited for, or each by its own call"
            )
        after = get(device, y, 20).view(np.float32).tolist()
        if after != [0, 2, 4, 6, 8]:
            raise AssertionError(f"the work behind a wrong index, x + x, gave {after}")
        memory = get(device, held, out.nbytes)
        if (out.outside(memory) != out.outside(out.memory())).any():
            raise AssertionError("a call with a wrong index wrote outside of its output")
        if op != "gather" and memory.view(np.float32)[2:5].tolist() != [2, 3, 4]:
            raise AssertionError("a call with a wrong index wrote elements that none of its indices names")

    return check


def _index_of(error: Exception) -> int | None:
    """The index that an error names."""
    if isinstance(error, IndexOutOfBounds):
        return error.index
    return next((i for i in (9, 7) if f"index {i} " in str(error)), None)


def _named(device: Device) -> None:
    x, index = ops.ones(5, device=device), ops.tensor([0, 9], device=device)
    try:
        ops.gather(x, 0, index).tolist()
    except IndexError as error:
        if "gather" not in str(error) or "9" not in str(error):
            raise AssertionError(f"a user of gather with index 9 sees: {error}") from None
    else:
        raise AssertionError("gather with index 9 of 5 raised nothing, not even when its result is read")
