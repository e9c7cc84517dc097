"""norch.utils.benchmark: times by a clock that is told what to say, and tables of them."""

from __future__ import annotations

import pytest

import norch
from norch.utils.benchmark import Compare, Measurement, TaskSpec, Timer


class Clock:
    """Each statement takes the next of these times, in seconds."""

    def __init__(self, *steps: float) -> None:
        self.now, self.steps, self.at = 0.0, steps, 0

    def __call__(self) -> float:
        return self.now

    def run(self) -> None:
        self.now += self.steps[self.at % len(self.steps)]
        self.at += 1


def timed(clock: Clock, **options) -> Timer:
    return Timer("clock.run()", timer=clock, globals={"clock": clock}, **options)


def test_one_time_of_many_runs():
    found = timed(Clock(2e-3), label="work", sub_label="small").timeit(50)
    assert (found.number_per_run, len(found.raw_times)) == (50, 1)
    assert found.median == found.mean == pytest.approx(2e-3)
    assert (found.iqr, found.title, found.label) == (0.0, "work: small", "work")
    assert "Time: 2.00 ms" in repr(found)


def test_blocks_until_enough_time_has_gone():
    calls = []
    found = timed(Clock(1e-4)).blocked_autorange(lambda number, taken: calls.append((number, taken)), min_run_time=0.1)
    assert sum(found.raw_times) >= 0.1 > sum(found.raw_times[:-1])
    assert [t for _, t in calls] == found.raw_times
    assert found.median == pytest.approx(1e-4)


def test_until_the_times_are_alike():
    steady = timed(Clock(0.06)).adaptive_autorange(max_run_time=100)
    assert len(steady.raw_times) == 4
    spread = timed(Clock(0.06, 0.3)).adaptive_autorange(max_run_time=5)
    assert sum(spread.raw_times) >= 5
    assert spread.has_warnings
    assert "WARNING" in repr(spread)


def test_names_threads_and_statements():
    before = norch.get_num_threads()
    timer = Timer(
        """
        seen.append((torch is norch, norch.get_num_threads()))
        """,
        setup="seen.clear()",
        globals={"seen": (seen := [])},
        num_threads=1,
    )
    timer.timeit(3)
    assert seen == [(True, 1)] * 3
    assert norch.get_num_threads() == before
    with pytest.raises(ValueError, match="Python only"):
        Timer("f();", language="c++")


def test_tables():
    def measured(label, sub_label, description, *times):
        return Measurement(1, list(times), TaskSpec("s", label=label, sub_label=sub_label, description=description))

    results = [
        measured("mm", "small", "norch", 1e-3),
        measured("mm", "small", "other", 2e-3, 2.2e-3, 4e-3),
        measured("mm", "large", "norch", 5e-3),
        measured("mm", "small", "norch", 3e-3),
    ]
    table = Compare(results)
    lines = [line.split() for line in str(table).split("\n")]
    assert lines[1] == ["|", "norch", "|", "other"]
    assert lines[3:5] == [["small", "|", "2.0", "|", "2.2"], ["large", "|", "5.0", "|"]]
    assert "milliseconds (ms)" in str(table)
    table.trim_significant_figures()
    table.highlight_warnings()
    assert "(!) 2.0" in str(table)
    assert len(Measurement.merge(results)) == 3
    assert [m.number_per_run for m in Measurement.merge(results)] == [1, 1, 1]
