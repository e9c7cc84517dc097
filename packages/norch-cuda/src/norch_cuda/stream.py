"""Streams, and graphs recorded from them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import norch
from norch.backend import feeders, unseen

from . import _ext
from ._ext import Event as NativeEvent


def device_index(device: Any) -> int:
    """The index of a device; of the current one for None. Raises DeviceError for one that is no CUDA device."""
    if device is None:
        index: int = _ext.current_device()
        return index
    if isinstance(device, int):
        return device
    if hasattr(device, "idx"):  # a context of `norch.cuda.device`
        return int(device.idx)
    found = norch.device(device)
    if found.type != "cuda":
        raise norch.DeviceError(f"norch.cuda: {found} is no CUDA device")
    return int(found.index)


class Stream:
    """A queue of work on a device. It does not wait for the default stream, nor that one for it."""

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        """A new stream on `device` (the current one); a lower `priority` is served first."""
        self._native = _ext.make_stream(device_index(device), priority)
        self._entered: list[stream] = []

    @property
    def device(self) -> norch.device:
        """The device that the stream belongs to."""
        return norch.device("cuda", self._native.device)

    @property
    def cuda_stream(self) -> int:
        """The cudaStream_t, as a number."""
        handle: int = self._native.cuda_stream
        return handle

    @property
    def priority(self) -> int:
        """What it was made with, cut to `priority_range`."""
        found: int = self._native.priority
        return found

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """The least and the greatest priority there are: 0 and a negative number."""
        least, greatest = _ext.priority_range()
        return least, greatest

    def query(self) -> bool:
        """Whether all work given to the stream is done."""
        done: bool = self._native.query()
        return done

    def synchronize(self) -> None:
        """Waits until all work given to the stream is done; then raises what kernels of its device reported."""
        self._native.synchronize()

    def record_event(self, event: Event | None = None) -> Event:
        """Records `event` (a new one) after the work given so far, and returns it."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Work given from now on waits for `event`."""
        event.wait(self)

    def wait_stream(self, other: Stream) -> None:
        """Work given from now on waits for what `other` was given so far."""
        self.wait_event(other.record_event())

    def __enter__(self) -> Stream:
        """Within the context the work of this thread on the stream's device goes to the stream."""
        entered = stream(self)
        entered.__enter__()
        self._entered.append(entered)
        return self

    def __exit__(self, *error: object) -> None:
        self._entered.pop().__exit__(*error)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self._native is other._native

    def __hash__(self) -> int:
        return hash(id(self._native))

    def __repr__(self) -> str:
        return f"<norch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class ExternalStream(Stream):
    """Another library's stream, a cudaStream_t as the number `stream_ptr`, which must live as long as its tensors."""

    def __init__(self, stream_ptr: int, device: Any = None) -> None:
        """On `device`, the current one unless given."""
        self._native = _ext.stream_of(stream_ptr, device_index(device))
        self._entered = []


def get_stream_from_external(data_ptr: int, device: Any = None) -> Stream:
    """Another library's stream, a cudaStream_t as the number `data_ptr`: see `ExternalStream`."""
    return ExternalStream(data_ptr, device)


class Event(NativeEvent):  # type: ignore[misc]
    """A place in the work of a stream: `Event(enable_timing=False, blocking=False, interprocess=False)`.

    enable_timing: whether `elapsed_time` may be asked of it; the others are taken as PyTorch's, and ignored.
    """

    def record(self, stream: Stream | None = None) -> None:
        """Places it behind the work that `stream`, the current one unless given, was given so far."""
        super().record(None if stream is None else stream._native)

    def wait(self, stream: Stream | None = None) -> None:
        """Work that `stream`, the current one unless given, is given from now on waits for the event."""
        super().wait(None if stream is None else stream._native)


def _wrap(native: Any) -> Stream:
    made = object.__new__(Stream)
    made._native, made._entered = native, []
    return made


def current_stream(device: Any = None) -> Stream:
    """The stream that this thread's work on a device goes to."""
    return _wrap(_ext.current_stream(device_index(device)))


def default_stream(device: Any = None) -> Stream:
    """The stream that work on a device goes to where no other was chosen."""
    return _wrap(_ext.default_stream(device_index(device)))


def set_stream(stream: Stream | None) -> None:
    """Makes `stream` the one that this thread's work on its device goes to; None changes nothing."""
    if stream is not None:
        _ext.set_current_stream(stream._native)


class stream:
    """Within this context the work of this thread on the stream's device goes to `stream`; None changes nothing."""

    __slots__ = ("_before", "_device", "_native")

    def __init__(self, stream: Stream | None) -> None:
        self._native = None if stream is None else stream._native

    def __enter__(self) -> None:
        native = self._native
        if native is not None:
            self._before, self._device = _ext.current_stream(native.device), _ext.current_device()
            _ext.set_current_device(native.device)
            _ext.set_current_stream(native)

    def __exit__(self, *error: object) -> None:
        if self._native is not None:
            _ext.set_current_stream(self._before)
            _ext.set_current_device(self._device)


def is_current_stream_capturing() -> bool:
    """Whether the current stream records a graph."""
    capturing: bool = _ext.current_stream(_ext.current_device()).is_capturing
    return capturing


class CUDAGraph:
    """Work that was recorded once and is given to the device as a whole: `replay()` costs one launch.

    The replay reads and writes the memory of the recording: write new inputs into the same tensors with `copy_`. Before
    it optimisers run their Python, which gives learning rates and step counts, and generators move on as if the work
    had run. Other numbers of Python stay as they were recorded. Host data cannot be copied, and nothing can be read
    back, while recording.
    """

    def __init__(self) -> None:
        self._native = _ext.Graph()
        self._recording: Any = None
        self._numbers: Any = None

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        """Records what the current stream is given from now on, until `capture_end()`; `graph` is the context of both.

        pool, capture_error_mode: as in `graph`. Raises ValueError where the current stream is the default one, is being
        recorded, or the graph was recorded already and not `reset()`.
        """
        if not feeders:
            norch.capture  # noqa: B018  which puts it there
        numbers = feeders[0](self._native.calls)
        self._native.begin()
        try:
            numbers.__enter__()
        except BaseException:
            self.reset()
            raise
        self._recording = numbers

    def capture_end(self) -> None:
        """Ends what `capture_begin` began. Raises CaptureError as `graph` does, and ValueError where nothing began."""
        numbers, self._recording = self._recording, None
        if numbers is None:
            raise ValueError("capture_end(): this graph is not being recorded")
        try:
            numbers.__exit__(None, None, None)
            self._native.end()
        except BaseException:
            self.reset()
            raise
        self._numbers = numbers

    def reset(self) -> None:
        """Forgets what was recorded, gives up what is being recorded: the graph can be recorded again."""
        numbers, self._recording = self._recording, None
        if numbers is not None:
            numbers.__exit__(norch.CaptureError, None, None)
        self._native, self._numbers = _ext.Graph(), None

    def pool(self) -> tuple[int, int]:
        """What PyTorch's graphs share memory by; here each has its own."""
        return graph_pool_handle()

    def replay(self) -> None:
        """Gives the recorded work to the current stream. Raises ValueError where nothing was recorded."""
        for tell in unseen:
            tell("CUDAGraph.replay()")
        if self._numbers is not None:
            for call, numbers in self._numbers.feed():
                self._native.feed(call, numbers)
        self._native.replay()


def graph_pool_handle() -> tuple[int, int]:
    """What `pool` of `graph` takes, and ignores."""
    return (0, 0)


@contextmanager
def graph(
    cuda_graph: CUDAGraph, pool: Any = None, stream: Stream | None = None, capture_error_mode: str = "global"
) -> Iterator[None]:
    """Records the work of this context into `cuda_graph`; none of it runs. On `stream`, or on one of its own.

    pool, capture_error_mode: taken as PyTorch's, ignored: each graph has memory of its own.

    For training, run the step a few times on another stream before, and set gradients to None. Raises CaptureError for
    what would get the same numbers in each replay and should not, such as a draw from a generator of its own.
    """
    chosen = stream or Stream()
    chosen.synchronize()
    with _use(chosen):
        cuda_graph.capture_begin(pool, capture_error_mode)
        try:
            yield
        except BaseException:
            cuda_graph.reset()
            raise
        cuda_graph.capture_end()


_use = stream
