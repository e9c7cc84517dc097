"""Events as files for other tools: the trace-event format, which Perfetto and chrome://tracing open, and stacks.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU; categories and arguments are those
that PyTorch writes.
"""

from __future__ import annotations

import gzip
import json
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..observing import RECORD
from ..spec import Spec
from ..version import __version__
from .event import FunctionEvent, ancestors, is_python

if TYPE_CHECKING:
    from .event_list import EventList


def write_trace(events: EventList, path: Path, more: dict[str, Any] | None = None) -> None:
    """`more`: what the trace says beside its events."""
    times = events.times
    document = {
        "schemaVersion": 1,
        "deviceProperties": [],
        "host_name": platform.node(),
        "norch_version": __version__,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": times.epoch,
        **(more or {}),
        "traceEvents": list(_trace_events(events)),
        "traceName": str(path),
    }
    text = json.dumps(document)
    if path.name.endswith(".gz"):
        with gzip.open(path, "wt", encoding="utf-8") as file:
            file.write(text)
    else:
        path.write_text(text, encoding="utf-8")


def _trace_events(events: EventList) -> Iterator[dict[str, Any]]:
    process, times = os.getpid(), events.times
    threads = {event.thread for event in events}
    devices = sorted({str(event.device) for event in events if event.span is not None})
    rows = [(process, "python", "CPU"), *[(i, name, "GPU") for i, name in enumerate(devices)]]
    for order, (pid, name, label) in enumerate(rows):
        yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0, "args": {"name": name}}
        yield {"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "ts": 0, "args": {"labels": label}}
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "ts": 0, "args": {"sort_index": order}}
    for thread in sorted(threads):
        name = f"thread {thread}" + (" (main)" if thread == times.thread else "")
        yield {"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "ts": 0, "args": {"name": name}}
    recorded: dict[int, FunctionEvent] = {}
    for event in events:
        begin, end = event.time_range
        place = {"pid": process, "tid": event.thread}
        category = "user_annotation" if event.kind == RECORD else "cpu_op"
        span = {"ph": "X", "cat": category, "name": event.name, **place}
        yield {**span, "ts": begin, "dur": end - begin, "args": _arguments(event)}
        if event.sequence_nr >= 0:
            # From the op to the node that differentiates it.
            flow = {"id": event.sequence_nr, "cat": "fwdbwd", "name": "fwdbwd", **place, "ts": begin}
            if not event.is_backward or event.sequence_nr not in recorded:
                recorded[event.sequence_nr] = event
            if event.kind == "node" and recorded[event.sequence_nr].kind != "node":
                forward = recorded.pop(event.sequence_nr)
                start = {"pid": process, "tid": forward.thread, "ts": forward.time_range.start}
                yield {**flow, "ph": "s", **start}
                yield {**flow, "ph": "f", "bp": "e"}
        if event.span is not None:
            at = (event.span.start - times.start) / 1e3
            place = {"pid": devices.index(str(event.device)), "tid": 0}
            more = {"External id": event.id + 1, "device": devices.index(str(event.device))}
            work = {"ph": "X", "cat": "kernel", "name": event.name, **place, "ts": at}
            yield {**work, "dur": event.span.ns / 1e3, "args": more}
            flow = {"id": event.id + 1, "cat": "ac2g", "name": "ac2g"}
            yield {**flow, "ph": "s", "pid": process, "tid": event.thread, "ts": begin}
            yield {**flow, "ph": "f", "bp": "e", **place, "ts": at}
    end = (times.end - times.start) / 1e3
    yield {
        "ph": "X", "cat": "Trace", "name": "norch profiler", "pid": "Spans", "tid": "norch profiler", "ts": 0,
        "dur": end, "args": {"Op count": len(events)},
    }  # fmt: skip


def _arguments(event: FunctionEvent) -> dict[str, Any]:
    found: dict[str, Any] = {"External id": event.id + 1, "Ev Idx": event.id}
    if event.sequence_nr >= 0:
        found["Sequence number"] = event.sequence_nr
    if event.specs is not None:
        found["Input Dims"] = event.input_shapes
        found["Input type"] = event.input_dtypes
        found["Input Strides"] = [list(s.strides) if isinstance(s, Spec) else [] for s in event.specs]
    if event.line is not None:
        found["Line"], found["Source"] = str(event.line), event.line.text()
    if event.steps is not None:
        found["Call stack"] = ";".join(event.stack)
    if event.allocated:
        found["Bytes allocated"] = event.allocated
    if event.saved:
        found["Bytes saved for backward"] = event.saved
    if event.failed:
        found["Raised"] = True
    return found


_METRICS = {
    "self_cpu_time_total": "self_cpu_time_total", "self_cuda_time_total": "self_device_time_total",
    "self_device_time_total": "self_device_time_total",
}  # fmt: skip


def frames_of(event: FunctionEvent) -> list[str]:
    """From the outermost to the event: the parts and ops that it is within, and where they are called."""
    chain = [*[*ancestors(event)][::-1], event]
    if event.steps is not None:
        parts, ops = [part.name for part in chain if is_python(part)], [p.name for p in chain if not is_python(p)]
        return [*parts, *event.stack[::-1], *ops]
    frames: list[str] = []
    before = None
    for part in chain:
        at = None if part.line is None or is_python(part) else str(part.line)
        if at is not None and at != before:
            frames.append(at)
            before = at
        frames.append(part.name)
    return frames


def write_stacks(events: EventList, path: Path, metric: str) -> None:
    """Raises ValueError for another metric."""
    if metric not in _METRICS:
        raise ValueError(f"metric should be one of: {', '.join(_METRICS)}")
    found: dict[str, float] = {}
    for event in events:
        stack = ";".join(frame.replace(" ", "_").replace(";", "_") for frame in frames_of(event))
        found[stack] = found.get(stack, 0.0) + getattr(event, _METRICS[metric])
    lines = [f"{stack} {round(value)}\n" for stack, value in found.items() if round(value)]
    path.write_text("".join(lines), encoding="utf-8")
