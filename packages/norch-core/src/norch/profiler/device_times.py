"""Time on devices, by events that the backend's module has: `Event(enable_timing=True)` with `record()` and
`elapsed_time(end)` in milliseconds, as `norch.cuda` has it. Of a device without them there is the host's time only."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

from ..device import Device


class DeviceSpan:
    """Between two events on a device; once it is `measured`, when it began on the host's clock, and how long it was."""

    __slots__ = ("begin", "device", "end", "ns", "start")

    def __init__(self, device: Device, begin: Any) -> None:
        self.device, self.begin, self.end = device, begin, None
        self.start, self.ns = 0, 0.0


class DeviceClock:
    """The events of a profile, and for each device the one that its clock is read against."""

    def __init__(self) -> None:
        self._origins: dict[Device, tuple[Any, int]] = {}
        self._modules: dict[Device, Any] = {}
        self._free: list[Any] = []
        self.spans: list[DeviceSpan] = []

    def module(self, device: Device) -> Any:
        """The module whose events time the device; None where there are none."""
        if device not in self._modules:
            module = None if device.type in ("cpu", "meta") else getattr(device.backend, "module", None)
            self._modules[device] = module if hasattr(module, "Event") else None
            if self._modules[device] is not None:
                origin = module.Event(enable_timing=True)  # type: ignore[union-attr]
                self._record(origin, device)
                device.backend.synchronize(device.index)
                self._origins[device] = origin, perf_counter_ns()
        return self._modules[device]

    def _record(self, event: Any, device: Device) -> None:
        if device.index == device.backend.current_device():
            event.record()
        else:
            self._modules[device].current_stream(device.index).record_event(event)

    def begin(self, device: Device) -> DeviceSpan | None:
        """A span that begins now, behind all work that the device was given; None where it cannot be timed."""
        module = self.module(device)
        recording = getattr(module, "is_current_stream_capturing", None)
        if module is None or (recording is not None and recording()):
            return None  # an event in a recorded graph times nothing
        event = self._free.pop() if self._free else module.Event(enable_timing=True)
        self._record(event, device)
        return DeviceSpan(device, event)

    def end(self, span: DeviceSpan, is_whole: bool) -> bool:
        """Ends a span where its work is done; one that is made of parts is dropped. Whether it is kept."""
        if not is_whole:
            self._free.append(span.begin)
            return False
        span.end = self._free.pop() if self._free else self._modules[span.device].Event(enable_timing=True)
        self._record(span.end, span.device)
        self.spans.append(span)
        return True

    def measure(self) -> None:
        """Waits for the devices and reads all spans."""
        for device in self._origins:
            device.backend.synchronize(device.index)
        for span in self.spans:
            origin, zero = self._origins[span.device]
            span.ns = 1e6 * span.begin.elapsed_time(span.end)
            span.start = zero + round(1e6 * origin.elapsed_time(span.begin))
            span.begin = span.end = None
        self.spans = []
