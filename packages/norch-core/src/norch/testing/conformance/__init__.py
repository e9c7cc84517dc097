"""The conformance kit: whether a backend does what the contract asks, at levels that it can climb.

    norch conformance --device opencl
    pytest --pyargs norch.testing.conformance --norch-device opencl

Its oracle is NumPy in float64 and whole numbers, independent of the reference backend.
"""

from __future__ import annotations

import functools
import gc
import itertools
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...backend import registry
from ...device import Device
from ...dispatch.plan import forget_plans
from ...errors import MissingDTypeError
from . import capture, contract, kernels, layouts, memory, samples, training
from .calls import Call
from .case import LEVELS, Case, Skipped, kernel_case
from .kernels import Without, check_repeatable, check_untouched, check_values
from .place import Number, Place
from .report import Report, Result, levels_of

_SOURCES: dict[int, Callable[[], Iterator[Case]]] = {
    1: memory.cases,
    2: lambda: (kernel_case(2, call, check_values) for call in kernels.by_value()),
    3: lambda: (kernel_case(3, call, check_values) for call in kernels.by_dtype()),
    4: lambda: itertools.chain(
        (kernel_case(4, call, check_values) for call in kernels.by_layout()),
        (kernel_case(4, call, check_values, poisoned=True) for call in kernels.of_nothing()),
        layouts.cases(),
    ),
    5: samples.gradients,
    6: samples.composites,
    7: training.cases,
    8: contract.cases,
    9: capture.cases,
}


@functools.cache
def _cases_of(level: int) -> tuple[Case, ...]:
    return tuple(_SOURCES[level]())


def cases(levels: Sequence[int] = tuple(LEVELS), ops: Sequence[str] | None = None) -> Iterator[Case]:
    """The cases of some levels, of some ops only if given."""
    for level in levels:
        for case in _cases_of(level):
            if ops is None or case.op in ops:
                yield case


def check(case: Case, device: Device) -> Result:
    """Tries a case. Whatever it raises, but for Ctrl-C, is its error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case.check(device)
    except Skipped as reason:
        return Result(case, None, str(reason))
    except Exception as error:
        missing = missing_dtype(error, device)
        if missing is not None:
            return Result(case, None, without=missing)
        kind = "" if type(error) is AssertionError else f"{type(error).__name__}: "
        return Result(case, f"{kind}{error}" or "AssertionError")
    return Result(case, None)


def missing_dtype(error: BaseException | None, device: Device) -> str | None:
    """The dtype that the device says it does not have, where it is the cause of an exception."""
    while error is not None:
        if isinstance(error, Without | MissingDTypeError) and error.dtype in device.backend.missing_dtypes:
            return error.dtype
        error = error.__cause__
    return None


@contextmanager
def _seldom_collecting() -> Iterator[None]:
    """Kernels and plans of thousands of calls are kept; looking through them again and again takes a tenth of a run."""
    before = gc.get_threshold()
    gc.set_threshold(before[0], before[1], max(before[2], 100))
    try:
        yield
    finally:
        gc.set_threshold(*before)


@_seldom_collecting()
def run(
    device: Any,
    levels: Sequence[int] = tuple(LEVELS),
    ops: Sequence[str] | None = None,
    progress: Callable[[Result], None] | None = None,
) -> Report:
    """Tries every case on a device and reports. Raises DeviceError, saying why, where the device cannot be used."""
    device = Device(device)
    backend = device.backend
    provider = registry.provider_of(backend)
    report = Report(
        str(device),
        f"{provider.distribution} {provider.version}",
        tuple(levels),
        missing_dtypes=dict(backend.missing_dtypes),
    )
    start = time.perf_counter()
    level = 0
    for case in cases(levels, ops):
        if case.level == 9 != level:
            forget_plans()  # recording looks through all objects that there are
        level = case.level
        result = check(case, device)
        report.results.append(result)
        if progress is not None:
            progress(result)
    report.seconds = time.perf_counter() - start
    return report


def rerun(device: Any, identity: str) -> None:
    """Tries what has that id alone, and raises what it raises. Raises KeyError where there is none."""
    level = int(identity.partition(":")[0])
    found = [case for case in cases((level,)) if case.id == identity]
    if not found:
        raise KeyError(f"the kit has no case {identity!r}")
    for case in found:
        case.check(Device(device))


__all__ = [
    "LEVELS",
    "Call",
    "Case",
    "Number",
    "Place",
    "Report",
    "Result",
    "cases",
    "check",
    "check_repeatable",
    "check_untouched",
    "check_values",
    "levels_of",
    "rerun",
    "run",
]
