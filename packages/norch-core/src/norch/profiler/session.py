"""A profile from its beginning to its end: `profile`, `schedule`, `record_function`."""

from __future__ import annotations

import gc
import json
import os
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import Enum, IntEnum
from functools import wraps
from pathlib import Path
from threading import Lock, get_ident
from time import perf_counter_ns
from typing import Any, TypeVar

from .. import observing
from ..backend import registry
from ..device import Device
from ..observing import OP, RECORD, Observed
from .device_times import DeviceClock
from .event import Times
from .event_list import EventList
from .recorder import Recorder

F = TypeVar("F", bound=Callable[..., Any])


class ProfilerActivity(Enum):
    """What is timed: the host always, and, with any of the others, devices that have events."""

    CPU = 0
    CUDA = 1
    XPU = 2
    MTIA = 3
    PrivateUse1 = 4


class ProfilerAction(IntEnum):
    """What a schedule says of a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def supported_activities() -> set[ProfilerActivity]:
    """CPU, and CUDA where it can be used."""
    return {ProfilerActivity.CPU} | ({ProfilerActivity.CUDA} if registry.is_usable("cuda") else set())


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """By step: skips `skip_first`, then again and again waits, warms up (observes, and forgets) and records.

    wait, warmup, active: how many steps of each. repeat: how many such cycles; 0 for no end. skip_first_wait: not 0
    leaves out the first cycle's wait.
    Raises AssertionError unless all are 0 or more, and `active` more.
    """
    if min(wait, warmup, repeat, skip_first) < 0 or active <= 0:
        raise AssertionError(
            f"Invalid profiler schedule arguments. Got wait={wait} (need >= 0), warmup={warmup} (need >= 0), "
            f"active={active} (need > 0), repeat={repeat} (need >= 0), skip_first={skip_first} (need >= 0)."
        )

    def action(step: int) -> ProfilerAction:
        step -= skip_first
        if step < 0:
            return ProfilerAction.NONE
        if skip_first_wait:
            step += wait
        cycle = wait + warmup + active
        if repeat and step // cycle >= repeat:
            return ProfilerAction.NONE
        at = step % cycle
        if at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if at == cycle - 1 else ProfilerAction.RECORD

    return action


def tensorboard_trace_handler(
    dir_name: str | Path, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """For `on_trace_ready`: writes each trace to the folder `dir_name`, under a name of its own.

    worker_name: how that begins; host and process by default. use_gzip: compresses it.
    """

    def handle(found: profile) -> None:
        folder = Path(dir_name)
        folder.mkdir(parents=True, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        found.export_chrome_trace(folder / f"{worker}.{time.time_ns()}.pt.trace.json{'.gz' if use_gzip else ''}")

    return handle


class record_function:
    """A part of the program under a name of its own, where a profile runs or NVTX ranges are made: a context manager,
    and a decorator. args: PyTorch's, and changes nothing."""

    __slots__ = ("_token", "name")

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name

    def __enter__(self) -> record_function:
        self._token = observing.entered(Observed(RECORD, self.name))
        return self

    def __exit__(self, *exception: object) -> None:
        observing.left(self._token)

    def __call__(self, function: F) -> F:
        name = self.name

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with record_function(name):
                return function(*args, **kwargs)

        return call  # type: ignore[return-value]


_running = Lock()
_now: list[profile] = []
"""The profile that runs."""


def _default_schedule_fn(_: int) -> ProfilerAction:
    """The schedule of a profile that is given none: every step is noted."""
    return ProfilerAction.RECORD


def _profiler_enabled() -> bool:
    """Whether a profile runs."""
    return bool(_now)


def _disable_profiler() -> None:
    """Ends the profile that runs, without what it noted. Raises RuntimeError where none does."""
    if not _now:
        raise RuntimeError("_disable_profiler(): no profile runs")
    _now[0]._abandon()


class profile:
    """Notes every call of an op: when, from which line of the program, how long it took, what it allocated.

        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
            step()
        print(prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=10))

    activities: all that are supported unless given; with CUDA (or another device that has events) each op's time there.
    schedule: which steps are noted, see `schedule`; `step()` then ends each. on_trace_ready: called with this at the
    end of each cycle. record_shapes, profile_memory, with_stack (every line of the stack), with_flops: what else is
    noted of a call. use_cuda: adds that activity. with_modules, experimental_config, execution_trace_observer,
    acc_events, custom_trace_id_callback and post_processing_timeout_s are PyTorch's, and change nothing.

    Threads are all observed. There is one profile at a time. Raises RuntimeError for a second.
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        custom_trace_id_callback: Any = None,
        post_processing_timeout_s: float | None = None,
    ) -> None:
        self.activities = supported_activities() if activities is None else set(activities)
        if use_cuda:
            self.activities.add(ProfilerActivity.CUDA)
        if not self.activities:
            raise AssertionError("No valid profiler activities found")
        self.schedule, self.on_trace_ready = schedule, on_trace_ready
        self.record_shapes, self.profile_memory = record_shapes, profile_memory
        self.with_stack, self.with_flops = with_stack, with_flops
        self.step_num = 0
        self.current_action = (schedule or _default_schedule_fn)(0)
        self._metadata: dict[str, Any] = {}
        self._recorder: Recorder | None = None
        self._step: record_function | None = None
        self._events: EventList | None = None
        self._entered = False

    # --- From the beginning to the end --------------------------------------------------------------------------------

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begins. Raises RuntimeError where a profile runs already."""
        if self._entered:
            raise RuntimeError("Profiler context manager is not reentrant")
        if not _running.acquire(blocking=False):
            raise RuntimeError("Profiler is already enabled: profiles cannot be nested, nor run beside each other")
        self._entered = True
        _now.append(self)
        try:
            self.step_num = 0
            self.current_action = (self.schedule or _default_schedule_fn)(0)
            self._go(self.current_action)
            self._begin_step()
        except BaseException:
            self._abandon()
            raise

    def stop(self) -> None:
        """Ends, and calls `on_trace_ready` if there are events that it was not given yet."""
        if not self._entered:
            return
        try:
            self._end_step()
            kept = self._finish() and self.current_action >= ProfilerAction.RECORD
        finally:
            self._abandon()
        if kept and self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def step(self) -> None:
        """Ends a step, and goes on as the schedule says of the next."""
        if not self._entered:
            raise RuntimeError("profile.step(): the profile has not begun, or has ended")
        self._end_step()
        before = self.current_action
        self.step_num += 1
        now = (self.schedule or _default_schedule_fn)(self.step_num)
        self.current_action = now
        if before == ProfilerAction.RECORD_AND_SAVE:
            self._finish()
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)
            self._go(now)
        else:
            begins = before == ProfilerAction.WARMUP and now >= ProfilerAction.RECORD
            if begins or (before == ProfilerAction.NONE) != (now == ProfilerAction.NONE):
                self._drop()
                self._go(now)
        self._begin_step()

    def _begin_step(self) -> None:
        if self.schedule is not None and self._recorder is not None:
            self._step = record_function(f"ProfilerStep#{self.step_num}")
            self._step.__enter__()

    def _end_step(self) -> None:
        step, self._step = self._step, None
        if step is not None:
            step.__exit__()

    def _go(self, action: ProfilerAction) -> None:
        if action == ProfilerAction.NONE:
            return
        clock = DeviceClock() if self.activities - {ProfilerActivity.CPU} else None
        recorder = Recorder(self.record_shapes or self.with_flops, self.profile_memory, self.with_stack, clock)
        if clock is not None and registry.is_usable("cuda"):
            clock.module(Device("cuda"))  # its clock is read before there is work
        self._recorder = recorder
        observing.observe(recorder)
        gc.callbacks.append(recorder.collecting)
        self._start = perf_counter_ns()

    def _drop(self) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            with suppress(ValueError):
                gc.callbacks.remove(recorder.collecting)
            observing.release(recorder)

    def _finish(self) -> bool:
        recorder = self._recorder
        now = perf_counter_ns()
        self._drop()
        if recorder is None:
            return False
        recorder.finish(now)
        reports = {}
        for name, step in recorder.captured.items():
            with suppress(Exception):
                reports[name] = str(step.report())
        kinds = {event.device.type for event in recorder.events if event.device is not None and event.span is not None}
        times = Times(
            self._start,
            now,
            time.time_ns() - (perf_counter_ns() - self._start),
            [],
            {},
            _overhead(recorder),
            reports,
            min(kinds, default="cuda" if recorder.clock is not None and registry.is_usable("cuda") else None),
            self.profile_memory,
            get_ident(),
        )
        for number, event in enumerate(recorder.events):
            event.times, event.id = times, number
        self._events = EventList(recorder.events, times)
        times.events.extend(recorder.events)
        return True

    def _abandon(self) -> None:
        """As if it had not begun: whatever happens, nothing is observed any more."""
        self._step = None
        self._drop()
        if self._entered:
            self._entered = False
            _now.clear()
            _running.release()

    # --- What was noted -----------------------------------------------------------------------------------------------

    def _found(self, what: str) -> EventList:
        if self._events is None:
            raise AssertionError(f"Profiler must be initialized before {what}")
        return self._events

    def events(self) -> EventList:
        """All events of the last cycle, in the order in which they began."""
        return self._found("accessing events")

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_line: bool = False
    ) -> EventList:
        """`EventList.key_averages` of the events, which says what `group_by_input_shape`, `group_by_stack_n` and
        `group_by_line` are."""
        return self._found("getting key averages").key_averages(group_by_input_shape, group_by_stack_n, group_by_line)

    def export_chrome_trace(self, path: str | Path) -> None:
        """`EventList.export_chrome_trace` of the events to `path`."""
        from .trace import write_trace

        more = {"record_shapes": self.record_shapes, "profile_memory": self.profile_memory}
        flags = {**more, "with_stack": self.with_stack, "with_flops": self.with_flops}
        write_trace(
            self._found("exporting a trace"),
            Path(path),
            {name: 1 for name, value in flags.items() if value} | self._metadata,
        )

    def export_stacks(self, path: str | Path, metric: str = "self_cpu_time_total") -> None:
        """`EventList.export_stacks` of the events to `path`."""
        self._found("exporting stacks").export_stacks(path, metric)

    def export_html(self, path: str | Path) -> None:
        """`EventList.export_html` of the events to `path`."""
        self._found("exporting a page").export_html(path)

    def add_metadata(self, key: str, value: str) -> None:
        """Has the trace say `value`, a text, under `key`."""
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """`add_metadata` of a `value` that is JSON, under `key`."""
        self._metadata[key] = json.loads(value)


_PROBES = 200


def _overhead(recorder: Recorder) -> float:
    """What noting a call takes, in ns: measured on calls of nothing, the least of some rounds."""
    probe = Recorder(recorder.shapes, recorder.memory, recorder.stacks, None)
    what, least = Observed(OP, "probe"), float("inf")
    for _ in range(5):
        start = perf_counter_ns()
        for _ in range(_PROBES):
            probe.left(probe.entered(what, (), {}), None, None)
        least = min(least, (perf_counter_ns() - start) / _PROBES)
    return least
