"""Level 8: what the contract asks beside right values."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from ... import ops
from ...backend.contract import IN_PLACE, IndexOutOfBounds
from ...device import Device
from ...dtype import bool_, float32, int32, int64
from ...errors import OutOfMemoryError
from ..samples import SAMPLES, checks
from . import fused, limits, order, threads
from .calls import Call, calls, dtypes_of
from .case import Case, Skipped, kernel_case, rerunning
from .kernels import OPS, Prepared, Ran, Without, check_repeatable, check_untouched, check_values, compiled
from .place import Place, get, put


def cases() -> Iterator[Case]:
    for op in OPS:
        found = list(calls(op, dtypes_of(op)[0], few=True))[:2]
        for call in found:
            if op not in IN_PLACE:
                yield kernel_case(8, call, check_values, poisoned=True)
            yield kernel_case(8, call.laid_out("offset", "offset"), check_untouched)
            yield kernel_case(8, call.laid_out("pitched", "pitched"), check_untouched)
            yield kernel_case(8, call.laid_out("stepped", "stepped"), check_untouched)
            yield kernel_case(8, call, check_repeatable)
        if op not in IN_PLACE:
            yield kernel_case(8, found[0].laid_out("dense", "stepped"), check_values, poisoned=True)
    for op in ("gather", "scatter", "scatter_add"):
        for index in (5, -6):
            yield _case(f"{op} reports index {index} of 5", _out_of_range(op, index), op)
    for sample in SAMPLES.values():
        if sample.inplace:
            yield _case(f"{sample.inplace} may write to its operand", _in_place(sample), sample.name)
    yield _case("output and input may be the same elements", _same_elements, "add")
    yield _case("kernels never wait for the device", _never_waits)
    yield _case("four threads call kernels at once", _threads)
    yield _case("a kernel may be called with other buffers before the first is read", _calls_overlap)
    yield _case("too much memory is refused, and work goes on", _out_of_memory)
    yield _case("an op that is none gets no kernel", _unknown_op)
    yield _case("synchronize waits and may be called at any time", _synchronize)
    yield from order.cases()
    yield from threads.cases()
    yield from limits.cases()
    yield from fused.cases()


def _case(name: str, check: Callable[[Device], None], op: str = "contract") -> Case:
    return Case(8, op, "-", name, 10, check, rerunning(f"8: {name}"))


@contextmanager
def _raising(expected: type[Exception] | tuple[type[Exception], ...], otherwise: str) -> Iterator[None]:
    """Expects an error of these types; where there is none, `otherwise` says what happened."""
    try:
        yield
    except expected:
        return
    raise AssertionError(otherwise)


def _out_of_range(op: str, index: int) -> Callable[[Device], None]:
    def check(device: Device) -> None:
        where, values = np.array([0, index, 1]), np.arange(5, dtype=np.float32)
        inputs = (Place("float32", (5,)), Place("int64", (3,)))
        given: tuple[Any, ...] = (values, where)
        out = (3,)
        if op != "gather":
            inputs, given, out = (inputs[1], Place("float32", (3,))), (values, where, values[:3]), (5,)
        call = Call(op, (Place("float32", out),), inputs, {"dim": 0}, given)
        kernel = compiled(device, call)
        with _raising(
            (IndexOutOfBounds, IndexError),
            f"index {index} of a dim of 5 raised nothing, not even at the next synchronisation",
        ):
            Ran(device, call, kernel=kernel)
            device.backend.synchronize(device.index or 0)
        good = tuple(np.array([0, -4, 4]) if v is where else v for v in given)
        check_values(device, replace(call, values=good))

    return check


def _in_place(sample: Any) -> Callable[[Device], None]:
    def check(device: Device) -> None:
        whole = int32 if "int64" in device.backend.missing_dtypes else int64
        checks.check_inplace(sample, device, (float32, bool_, whole))

    return check


def _same_elements(device: Device) -> None:
    place = Place("float32", (7,))
    a, b = np.arange(7, dtype=np.float32), np.full(7, 2, np.float32)
    call = Call("add", (place,), (place, place), {}, (a, b))
    x, y = put(device, place.memory(a)), put(device, place.memory(b))
    compiled(device, call)(x, place.offset, x, place.offset, y, place.offset)
    found = place.view(get(device, x, place.nbytes))
    if found.tolist() != (a + b).tolist():
        raise AssertionError(f"x = x + y gave {found.tolist()}, expected {(a + b).tolist()}")


def _never_waits(device: Device) -> None:
    """No kernel asks its backend to synchronise or to copy to the host."""
    ready = []
    for op in OPS:
        with suppress(Without):
            ready.append(Prepared(device, next(calls(op, dtypes_of(op)[0], few=True))))
    backend = device.backend
    waits: list[str] = []

    def noting(name: str) -> Callable[..., Any]:
        kept = getattr(backend, name)

        def noted(*args: Any) -> Any:
            waits.append(name)
            return kept(*args)

        return noted

    try:
        with ExitStack() as watched:
            for name in ("synchronize", "copy_out"):
                watched.enter_context(patch.object(backend, name, noting(name)))
            for prepared in ready:
                prepared.launch()
                if waits:
                    op = prepared.call.op
                    raise AssertionError(f"the kernel of {op} called {waits[0]}() of its backend: a loop would wait")
    except AttributeError:
        raise Skipped("the backend's methods cannot be watched") from None


def _threads(device: Device) -> None:
    problems: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            draw = np.random.default_rng(seed)
            for _ in range(20):
                a = draw.normal(size=(17, 5)).astype(np.float32)
                x = ops.tensor(a, device=device)
                found = ((x + 1) @ x.T).sum(0).cpu().numpy()
                wanted = ((a.astype(np.float64) + 1) @ a.T).sum(0)
                if not np.allclose(found, wanted, 1e-4, 1e-4):
                    raise AssertionError(f"a thread got {found}, expected {wanted}")
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]


def _calls_overlap(device: Device) -> None:
    x = ops.arange(1000, device=device, dtype=float32)
    results = [(x * i).sum() for i in range(20)]
    found = [r.item() for r in results]
    if found != [499500.0 * i for i in range(20)]:
        raise AssertionError(f"sums of 0 to 999, times 0 to 19: got {found}")


def _out_of_memory(device: Device) -> None:
    with _raising(MemoryError, "allocate() gave a buffer of 2**60 bytes"):
        device.backend.allocate(1 << 60, device.index or 0)
    with _raising(OutOfMemoryError, "norch.empty() gave a tensor of 2**58 bytes"):
        ops.empty(1 << 40, 1 << 16, device=device)
    if (ops.ones(3, device=device) + 1).tolist() != [2, 2, 2]:
        raise AssertionError("1 + 1 is not 2 after memory ran out")


def _unknown_op(device: Device) -> None:
    if device.backend.compile("no_such_op", (), {}) is not None:
        raise AssertionError("compile('no_such_op', ...) gave a kernel: a later contract may have such an op")


def _synchronize(device: Device) -> None:
    for _ in range(3):
        device.backend.synchronize(device.index or 0)
