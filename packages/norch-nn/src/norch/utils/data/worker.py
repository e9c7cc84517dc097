"""What a worker is, knows and says."""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple

import norch


class WorkerError(norch.NorchError, RuntimeError):
    """A DataLoader's worker died, stalled, or raised an exception that cannot be shown as it is."""


@dataclass
class WorkerInfo:
    """id: from 0 to num_workers - 1. seed: differs by worker and epoch. dataset: this worker's shallow copy.

    shared_seed: of all workers of an epoch, by which they may agree on an order; None where the loader is another's.
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any
    shared_seed: int | None = None


_info: ContextVar[WorkerInfo | None] = ContextVar("worker", default=None)


def get_worker_info() -> WorkerInfo | None:
    """Of the DataLoader worker (thread or process) that this is called in; None where it is called in none."""
    made_by_others = sys.modules.get("norch.utils.data._utils.worker")  # which loaders after PyTorch's write
    return _info.get() or getattr(made_by_others, "_worker_info", None)


@contextlib.contextmanager
def as_worker(info: WorkerInfo | None) -> Iterator[None]:
    """Within it, `get_worker_info()` is `info`."""
    token = _info.set(info)
    try:
        yield
    finally:
        _info.reset(token)


# --- What a worker is doing ------------------------------------------------------------------------------------------

STARTING, PREPARING, IDLE, LOADING, COLLATING, PINNING, SENDING = range(7)


class Doing(NamedTuple):
    """A phase; the batch, where there is one; the sample's place in it; and since when, on `time.monotonic`."""

    phase: int
    batch: int
    place: int
    since: float


def now(phase: int, batch: int = -1, place: int = 0) -> Doing:
    return Doing(phase, batch, place, time.monotonic())


def in_words(doing: Doing, indices: Callable[[int], Any]) -> str:
    """`indices` gives what a batch was to be made of: a list, one index, or None where there are no indices."""
    seconds = f"{max(0.0, time.monotonic() - doing.since):.1f} s"
    batch = f"batch {doing.batch}"
    if doing.phase == LOADING:
        return f"loading {which(indices(doing.batch), doing.place)} of {batch} since {seconds}"
    words = {
        STARTING: "starting",
        PREPARING: "running worker_init_fn",
        IDLE: "idle",
        COLLATING: f"collating {batch}",
        PINNING: f"pinning {batch}",
        SENDING: f"sending {batch}",
    }
    return f"{words[doing.phase]} since {seconds}"


def which(indices: Any, place: int) -> str:
    """The sample at `place` of a batch, in words. A place of -1 means all of them at once."""
    if indices is None:
        return f"sample {place} of its stream"
    if not isinstance(indices, list):
        return f"index {indices!r}"
    if place < 0:
        shown = ", ".join(repr(i) for i in indices[:8])
        return f"indices [{shown}{', …' if len(indices) > 8 else ''}]"
    return f"index {indices[place]!r}" if place < len(indices) else f"sample {place}"


# --- Exceptions from one process to another --------------------------------------------------------------------------


class RemoteTraceback(Exception):
    """The traceback of a worker process, as text: the cause of the exception that is raised here."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


def pack_exception(error: BaseException) -> tuple[bytes | None, str, str]:
    """An exception as bytes (None if it cannot be pickled), its name and message, and its traceback."""
    import pickle

    text = "".join(traceback.format_exception(error))
    try:
        data = pickle.dumps(error)
        pickle.loads(data)
    except Exception:
        data = None
    message = "".join(traceback.format_exception_only(error)).strip()
    return data, message, text


def unpack_exception(packed: tuple[bytes | None, str, str]) -> BaseException:
    import pickle

    data, message, text = packed
    error: BaseException | None = None
    if data is not None:
        with contextlib.suppress(Exception):
            error = pickle.loads(data)
    if error is None:
        error = WorkerError(f"a DataLoader worker raised an exception that cannot be pickled: {message}")
    error.__cause__ = RemoteTraceback(text)
    return error
