"""Timer: runs a statement until its time is known well enough."""

from __future__ import annotations

import timeit
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import norch

from .measurement import Measurement, TaskSpec


def timer() -> float:
    """The time in seconds, after what a GPU was given is done."""
    if norch.cuda.is_available():
        norch.cuda.synchronize()
    return timeit.default_timer()


class Timer:
    """Measures `stmt`, run after `setup`, with the names of `globals` and those of norch (also as `torch`).

    label, sub_label, description, env: what Compare shows of it: the table, the row, the column and a prefix of the
    row. num_threads: how many threads norch has meanwhile. timer: a function that gives seconds. global_setup and
    language are PyTorch's, for statements in C++, of which there are none: ValueError.
    """

    def __init__(
        self,
        stmt: str = "pass",
        setup: str = "pass",
        global_setup: str = "",
        timer: Callable[[], float] = timer,
        globals: dict[str, Any] | None = None,
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int = 1,
        language: Any = "python",
    ) -> None:
        if global_setup or str(getattr(language, "value", language)).lower() not in ("python", "py", "0"):
            raise ValueError("Timer(): measures statements of Python only")
        names = {"norch": norch, "torch": norch, **(globals or {})}
        stmt = _dedented(stmt)
        self._timer = timeit.Timer(stmt, _dedented(setup), timer, names)
        self._task_spec = TaskSpec(
            stmt, setup, label=label, sub_label=sub_label, description=description, env=env, num_threads=num_threads
        )

    @contextmanager
    def _threads(self) -> Any:
        before = norch.get_num_threads()
        norch.set_num_threads(self._task_spec.num_threads)
        try:
            yield
        finally:
            norch.set_num_threads(before)

    def _time(self, number: int) -> float:
        return max(self._timer.timeit(number), 1e-9)

    def _measured(self, number: int, times: list[float]) -> Measurement:
        return Measurement(number, times, self._task_spec)

    def timeit(self, number: int = 1_000_000) -> Measurement:
        """One time, of `number` runs, after a hundredth as many that are not counted."""
        with self._threads():
            self._time(max(number // 100, 2))
            return self._measured(number, [self._time(number)])

    def _block_size(self, min_run_time: float) -> int:
        """So many runs that a block of them takes a thousandth of the time, and the clock makes no difference."""
        overhead = min(self._timer.timeit(0) for _ in range(5))
        number = 1
        while True:
            taken = self._time(number)
            if overhead / taken <= 1e-3 and taken >= min_run_time / 1000:
                return number
            if taken > min_run_time:
                return number
            number *= 10

    def blocked_autorange(
        self, callback: Callable[[int, float], Any] | None = None, min_run_time: float = 0.2
    ) -> Measurement:
        """Times of blocks of runs, for at least `min_run_time` seconds together. callback: called as
        callback(runs, seconds) after each."""
        with self._threads():
            number = self._block_size(min_run_time)
            times: list[float] = []
            while sum(times) < min_run_time:
                times.append(self._time(number))
                if callback is not None:
                    callback(number, times[-1])
            return self._measured(number, times)

    def adaptive_autorange(
        self,
        threshold: float = 0.1,
        *,
        min_run_time: float = 0.01,
        max_run_time: float = 10.0,
        callback: Callable[[int, float], Any] | None = None,
    ) -> Measurement:
        """As `blocked_autorange`, until the times are spread over less than `threshold` of their median, or
        `max_run_time` seconds have gone."""
        with self._threads():
            number = self._block_size(0.05)
            times: list[float] = []
            while sum(times) < max_run_time:
                times.append(self._time(number))
                if callback is not None:
                    callback(number, times[-1])
                enough = len(times) > 3 and sum(times) >= min_run_time
                if enough and self._measured(number, times).meets_confidence(threshold):
                    break
            return self._measured(number, times)

    def autorange(self, callback: Callable[[int, float], Any] | None = None) -> Measurement:
        """One time, of as many runs as take 0.2 seconds. callback: as of `blocked_autorange`."""
        with self._threads():
            number, taken = self._timer.autorange(callback)
            return self._measured(number, [taken])


def _dedented(text: str) -> str:
    import textwrap

    return textwrap.dedent(text).strip()
