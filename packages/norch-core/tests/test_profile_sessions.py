"""Profiles begin and end, and whatever happens nothing stays on; devices."""

from __future__ import annotations

import gzip
import json
import signal
import time
from types import SimpleNamespace

import pytest
from profiler_harness import CPU, alone, is_off, make_tensors, rows, step

import norch
from norch.autograd import profiler as legacy
from norch.profiler import (
    ProfilerAction,
    ProfilerActivity,
    profile,
    record_function,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)

alone = pytest.fixture(autouse=True)(alone)
tensors = pytest.fixture(make_tensors)


def test_a_second_profile_is_refused(tensors):
    with profile(activities=CPU) as prof:
        with pytest.raises(RuntimeError, match="already enabled"), profile():
            pass
        with pytest.raises(RuntimeError, match="already enabled"), legacy.profile():
            pass
        with pytest.raises(RuntimeError, match="not reentrant"), prof:
            pass
        tensors[0].exp()
    assert [e.name for e in prof.events()] == ["exp"]
    with prof:  # again, from the beginning
        tensors[0].sin()
    assert [e.name for e in prof.events()] == ["sin"]


def test_an_exception_ends_it(tensors):
    prof = profile(activities=CPU)
    with pytest.raises(ArithmeticError), prof, record_function("part"):
        tensors[0].exp()
        raise ArithmeticError
    assert is_off()
    assert [e.name for e in prof.events()] == ["part", "exp"]


def test_ctrl_c_ends_it(tensors):
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    prof = profile(activities=CPU)
    try:
        with pytest.raises(KeyboardInterrupt), prof:
            tensors[0].exp()
            signal.raise_signal(signal.SIGINT)
            time.sleep(10)
    finally:
        signal.signal(signal.SIGINT, previous)
    assert is_off()
    assert "exp" in rows(prof.key_averages())


def test_before_there_are_events():
    with pytest.raises(AssertionError, match="initialized"):
        profile(activities=CPU).key_averages()
    with pytest.raises(AssertionError, match="activities"):
        profile(activities=[])
    with pytest.raises(RuntimeError, match="has not begun"):
        profile(activities=CPU).step()
    with profile(activities=CPU) as prof:
        norch.ones(1)
    with pytest.raises(AttributeError, match="sort by 'colour'"):
        prof.key_averages().table(sort_by="colour")
    assert ProfilerActivity.CPU in supported_activities()


@pytest.mark.filterwarnings("ignore:Profiler won't be using warmup")
def test_schedule_is_pytorch_s():
    torch_profiler = pytest.importorskip("torch.profiler")
    for wait in range(3):
        for warmup in range(3):
            for active in range(1, 3):
                for repeat in range(3):
                    for skip in (0, 2):
                        options = dict(wait=wait, warmup=warmup, active=active, repeat=repeat, skip_first=skip)
                        ours, theirs = schedule(**options), torch_profiler.schedule(**options)
                        assert [ours(i).name for i in range(14)] == [theirs(i).name for i in range(14)], options
    with pytest.raises(AssertionError, match="Invalid profiler schedule"):
        schedule(wait=0, warmup=0, active=0)


def test_a_schedule_records_its_steps(tensors, tmp_path):
    ready = []

    def on_ready(prof):
        ready.append((prof.step_num, [e.name for e in prof.events()]))

    with profile(activities=CPU, schedule=schedule(wait=1, warmup=1, active=2, repeat=2), on_trace_ready=on_ready) as p:
        for _ in range(10):
            tensors[0].exp()
            p.step()
    assert ready == [
        (4, ["ProfilerStep#2", "exp", "ProfilerStep#3", "exp"]),
        (8, ["ProfilerStep#6", "exp", "ProfilerStep#7", "exp"]),
    ]
    assert schedule(wait=1, warmup=1, active=2)(3) is ProfilerAction.RECORD_AND_SAVE
    with profile(activities=CPU, on_trace_ready=tensorboard_trace_handler(tmp_path, use_gzip=True)):
        tensors[0].exp()
    (path,) = tmp_path.iterdir()
    assert path.name.endswith(".pt.trace.json.gz")
    assert json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]


def test_record_function_decorates_and_costs_nothing_alone():
    @record_function("named")
    def work(x):
        return x + 1

    x = norch.ones(2)
    work(x)
    with profile(activities=CPU) as prof:
        work(x)
    assert [e.name for e in prof.events()] == ["named", "add"]
    assert work.__name__ == "work"


def test_the_older_profiler_has_the_same_events(tensors):
    with legacy.profile(record_shapes=True) as prof:
        with legacy.record_function("part"):
            tensors[0].exp()
    assert [e.name for e in prof.function_events] == ["part", "exp"]
    assert "exp" in str(prof)
    assert prof.key_averages()[1].count == 1
    assert prof.total_average().count == 2
    assert "part" in prof.table(row_limit=5)
    with legacy.profile(enabled=False) as prof:
        tensors[0].exp()
    with pytest.raises(AssertionError):
        prof.function_events


def test_nothing_that_a_program_sees_is_changed(tensors):
    x, w = tensors
    alone = step(x, w).item(), w.grad.clone()
    w.grad = None
    with profile(activities=CPU, record_shapes=True, profile_memory=True, with_stack=True):
        seen = step(x, w).item(), w.grad.clone()
    assert seen[0] == alone[0]
    assert norch.equal(seen[1], alone[1])


# --- Devices --------------------------------------------------------------------------------------------------------


class Event:
    """A device's clock that goes on by a millisecond at each kernel."""

    now = 0.0

    def __init__(self, enable_timing=False):
        assert enable_timing

    def record(self):
        self.at = Event.now

    def elapsed_time(self, end):
        return end.at - self.at


def test_time_on_a_device_with_events(tensors):
    from broken_backends import Broken

    from norch.backend import registry

    class Timed(Broken):
        module = SimpleNamespace(Event=Event)

        def current_device(self):
            return 0

        def compile(self, op, operands, attrs):
            kernel = super().compile(op, operands, attrs)

            def call(*args):
                Event.now += 1.0
                return kernel(*args)

            return None if kernel is None else call

    registry.register(Timed(), "norch-broken", "1.2")
    try:
        x = norch.ones(10, device="broken")
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as prof:
            with record_function("part"):
                x.exp()
                x.sin()
            norch.ones(3).exp()
    finally:
        registry.unregister("broken")
    found = rows(prof.key_averages())
    assert found["part"].device_time_total == pytest.approx(2000)
    assert found["part"].self_device_time_total == 0
    assert found["sin"].self_device_time_total == pytest.approx(1000)
    assert found["exp"].device_time_total == pytest.approx(1000)
    table = prof.key_averages().table(sort_by="device_time_total")
    assert "Self BROKEN" in table
    assert "Self BROKEN time total: 2.000ms" in table


def test_parts_that_overlap_as_those_of_tasks_do(tensors):
    with profile(activities=CPU) as prof:
        first, second = record_function("first"), record_function("second")
        first.__enter__()
        second.__enter__()
        first.__exit__()
        tensors[0].exp()
        second.__exit__()
    names = {e.name: e for e in prof.events()}
    assert names["second"].cpu_parent is names["first"]
    assert all(e.time_range.end >= e.time_range.start for e in prof.events())
