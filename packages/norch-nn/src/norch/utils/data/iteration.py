"""Iterators over one epoch: without workers, and with."""

from __future__ import annotations

import itertools
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from .fetch import END, Fetcher, Job
from .pinning import Pin
from .pool import Answer, Pool
from .progress import Progress
from .randomness import ORDER, Keyed
from .worker import WorkerError, in_words

STALL_SECONDS = 600.0
"""With `timeout=0`: how long no worker may do anything at all before the loop ends with an error."""
_POLL_SECONDS = 5.0  # how often, in seconds, to look at the workers while waiting for one
_GRACE_SECONDS = 5.0  # how long, in seconds, workers get to end by themselves


class _Order:
    """The batches of indices that are still to come, numbered as in the whole epoch.

    Samplers draw from norch's generator what is keyed by (seed, epoch).
    """

    def __init__(self, sampler: Any, progress: Progress) -> None:
        self._keyed = Keyed(progress.seed, progress.epoch)
        self._keyed.key(0, ORDER)
        with self._keyed:
            self._batches = enumerate(iter(sampler))
            skipped = itertools.islice(self._batches, progress.batches)
            for _ in skipped:
                pass
        self._done = frozenset(progress.ahead)

    def next(self) -> tuple[int, Any] | None:
        """A batch's number and its indices; None after the last."""
        with self._keyed:
            for number, indices in self._batches:
                if number not in self._done:
                    return number, indices
        return None


class DirectIterator:
    """Loads each batch when it is asked for, in the thread that asks."""

    def __init__(self, job: Job, sampler: Any, progress: Progress, pin: Pin | None) -> None:
        self._fetcher = Fetcher(job, progress.at(), 0, 1, _unmarked)
        self._order = None if job.iterable else _Order(sampler, progress)
        self._progress, self._pin = progress, pin
        self._closed = False
        self._failed: int | None = None  # left out if the user goes on after the exception

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._closed:
            raise StopIteration
        progress = self._progress
        if self._failed is not None:
            progress.deliver(self._failed)
            self._failed = None
        task = (progress.batches, None) if self._order is None else self._order.next()
        if task is None:
            return self._end()
        number, indices = task
        try:
            batch = self._fetcher.fetch(number, indices)
            if self._pin is not None and batch is not END:
                batch = self._pin(batch)
        except Exception:
            self._failed = number
            raise
        if batch is END:
            return self._end()
        progress.deliver(number)
        if self._order is None:
            progress.streams = [self._fetcher.stream_state() or {}]
        return batch

    def _end(self) -> Any:
        self._closed = True
        self._progress.finished = True
        raise StopIteration

    def close(self) -> None:
        """Ends the epoch here."""
        self._closed = True


def _unmarked(phase: int, batch: int, place: int) -> None:
    pass


class WorkerIterator:
    """Asks workers for batches, at most `ahead` more than have been delivered, and hands these over in order."""

    def __init__(
        self,
        pool: Pool,
        progress: Progress,
        ahead: int,
        timeout: float,
        in_order: bool,
        pin: Pin | None,
        finish: Callable[[Pool], bool],
        again: Callable[[Progress], Iterator[Any]],
    ) -> None:
        self._pool, self._progress, self._pin, self._finish = pool, progress, pin, finish
        self._ahead, self._timeout, self._in_order = ahead, timeout, in_order
        self._tasks: dict[int, Any] = {}
        self._open = 0
        self._closed = False
        self._again = again
        self._failed: int | None = None
        self._rest: Iterator[Any] | None = None
        self._finalizer = weakref.finalize(self, pool.close, 1.0)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._closed:
            return self._go_on()
        try:
            while True:
                self._ask()
                answer = self._ready()
                if answer is not None:
                    break
                if not self._open:
                    return self._end()
                answer = self._wait()
                self._open -= 1
                self._keep(answer)
            return self._deliver(answer)
        except StopIteration:
            raise
        except BaseException as error:
            # Whoever interrupts does not wait, and a worker that is stuck would not end.
            self._shut(0.0 if isinstance(error, WorkerError | KeyboardInterrupt) else 1.0)
            raise

    def _go_on(self) -> Any:
        """After an exception in a batch, whoever asks for the next one gets it, from new workers, as in PyTorch."""
        if self._failed is not None:
            self._skip(self._failed)
            self._failed, self._rest = None, self._again(self._progress)
        if self._rest is None:
            raise StopIteration
        return next(self._rest)

    def _deliver(self, answer: Answer) -> Any:
        if answer.error is not None:
            self._failed = answer.number
            raise self._as_raised(answer)
        batch = answer.batch if self._pin is None else self._pin(answer.batch)
        self._delivered(answer)
        return batch

    def _as_raised(self, answer: Answer) -> BaseException:
        error = answer.error
        assert error is not None
        if isinstance(error, StopIteration):  # it would end the user's loop
            stopped, error = error, WorkerError("a DataLoader worker raised StopIteration")
            error.__cause__ = stopped
        error.add_note(f"in DataLoader {self._pool.name(answer.worker)}")
        return error

    def _wait(self) -> Answer:
        start = time.monotonic()
        while True:
            left = start + self._timeout - time.monotonic() if self._timeout else _POLL_SECONDS
            answer = self._pool.receive(max(0.0, min(left, _POLL_SECONDS)))
            if answer is not None:
                if answer.number < 0:
                    raise self._as_raised(answer)
                return answer
            if self._timeout:
                if time.monotonic() - start >= self._timeout:
                    raise WorkerError(f"DataLoader: no batch came within timeout={self._timeout:g} s\n{self.report()}")
            elif time.monotonic() - max(start, *(d.since for d in self._pool.doing())) >= STALL_SECONDS:
                raise WorkerError(
                    f"DataLoader: no worker has done anything for {STALL_SECONDS:g} s (timeout=float('inf') waits for "
                    f"ever)\n{self.report()}"
                )

    def report(self) -> str:
        """What each worker is doing, a line each."""
        return report(self._pool, self._tasks.get)

    def _send(self, worker: int | None, number: int, indices: Any) -> None:
        self._tasks[number] = indices
        self._open += 1
        self._pool.send(worker, number, indices)

    def _end(self) -> Any:
        self._closed = True
        self._progress.finished = True
        self._finalizer.detach()
        if not self._finish(self._pool):
            self._pool.close(_GRACE_SECONDS)
        raise StopIteration

    def _shut(self, grace: float) -> None:
        self._closed = True
        if self._finalizer.detach():
            self._pool.close(grace)

    def close(self) -> None:
        """Ends the epoch here, and the workers."""
        self._shut(1.0)

    # --- What differs between datasets with and without indices -----------------------------------------------------

    def _ask(self) -> None:
        raise NotImplementedError

    def _keep(self, answer: Answer) -> None:
        raise NotImplementedError

    def _ready(self) -> Answer | None:
        raise NotImplementedError

    def _delivered(self, answer: Answer) -> None:
        raise NotImplementedError

    def _skip(self, number: int) -> None:
        raise NotImplementedError


def report(pool: Pool, indices: Callable[[int], Any]) -> str:
    return "\n".join(f"  {pool.name(w)}: {in_words(doing, indices)}" for w, doing in enumerate(pool.doing()))


class IndexedIterator(WorkerIterator):
    """Any worker may load any batch."""

    def __init__(self, *args: Any, sampler: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._order: _Order | None = _Order(sampler, self._progress)
        self._waiting: dict[int, Answer] = {}
        self._due: deque[int] = deque()
        self._broken: Exception | None = None  # what the sampler raised, when the batches before have been delivered

    def _ask(self) -> None:
        while self._order is not None and len(self._due) < self._ahead:
            try:
                task = self._order.next()
            except Exception as error:
                task, self._broken = None, error
            if task is None:
                self._order = None
                return
            number, indices = task
            self._due.append(number)
            self._send(None, number, indices)

    def _keep(self, answer: Answer) -> None:
        self._waiting[answer.number] = answer

    def _ready(self) -> Answer | None:
        if self._broken is not None and not self._due:
            raise self._broken
        number: int | None = self._due[0] if self._due else None
        if not self._in_order:
            number = next(iter(self._waiting), None)
        return None if number is None else self._waiting.pop(number, None)

    def _delivered(self, answer: Answer) -> None:
        self._due.remove(answer.number)
        del self._tasks[answer.number]
        self._progress.deliver(answer.number)

    def _skip(self, number: int) -> None:
        self._progress.deliver(number)


class StreamIterator(WorkerIterator):
    """Each worker has a stream of its own, and the workers that have not come to its end take turns."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        progress, size = self._progress, self._pool.size
        progress.streams = progress.streams or [{"samples": 0, "batches": 0} for _ in range(size)]
        self._waiting: list[deque[Answer]] = [deque() for _ in range(size)]
        self._live = set(range(size))
        self._asked = [0] * size
        self._next = [int(stream["batches"]) for stream in progress.streams]  # numbers do not depend on a resumption

    def _ask(self) -> None:
        each = self._ahead // self._pool.size
        for worker in self._live:
            while self._asked[worker] + len(self._waiting[worker]) < each:
                self._send(worker, self._next[worker] * self._pool.size + worker, None)
                self._next[worker] += 1
                self._asked[worker] += 1

    def _keep(self, answer: Answer) -> None:
        self._asked[answer.worker] -= 1
        self._waiting[answer.worker].append(answer)

    def _ready(self) -> Answer | None:
        progress, size = self._progress, self._pool.size
        for step in range(size):
            worker = (progress.turn + step) % size
            waiting = self._waiting[worker]
            while waiting and waiting[0].batch is END:
                waiting.popleft()
                self._live.discard(worker)
            if waiting:
                return waiting.popleft()
            if worker in self._live and self._in_order:
                return None
        return None

    def _delivered(self, answer: Answer) -> None:
        progress = self._progress
        del self._tasks[answer.number]
        assert progress.streams is not None
        progress.streams = [*progress.streams]
        progress.streams[answer.worker] = answer.stream
        progress.turn = (answer.worker + 1) % self._pool.size
        progress.batches += 1

    def _skip(self, number: int) -> None:
        raise WorkerError(
            "DataLoader: the stream of a worker raised an exception, behind which an IterableDataset cannot go on"
        )
