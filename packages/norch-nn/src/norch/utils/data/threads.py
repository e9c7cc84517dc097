"""Workers that are threads: nothing is copied, and what they load runs side by side where it leaves Python alone."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any

from .fetch import END, Epoch, Job
from .pinning import Pin
from .pool import Answer
from .serve import Stop, serve
from .worker import PINNING, SENDING, STARTING, Doing, now


class _Shared:
    """All that the threads hold: not the pool, whose end is to be theirs too."""

    def __init__(self, count: int, pin: Pin | None, one_queue: bool) -> None:
        queues: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in range(1 if one_queue else count)]
        self.tasks = queues * count if one_queue else queues
        self.answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self.doing = [now(STARTING) for _ in range(count)]
        self.stopping = False
        self.pin = pin


class _ThreadLink:
    def __init__(self, shared: _Shared, id: int) -> None:
        self._shared, self._id, self._tasks = shared, id, shared.tasks[id]
        self._epoch: Epoch | None = None
        self._next: Any = None

    def mark(self, phase: int, batch: int = -1, place: int = 0) -> None:
        shared = self._shared
        if shared.stopping:
            raise Stop
        shared.doing[self._id] = Doing(phase, batch, place, time.monotonic())

    def receive(self) -> Any:
        task, self._next = self._next or self._tasks.get(), None
        if task is None:
            raise Stop
        epoch, number, indices = task
        if epoch is not self._epoch:  # first the news, then the task
            self._epoch, self._next = epoch, task
            return epoch
        return number, indices

    def send(self, number: int, batch: Any, stream: Any, error: BaseException | None) -> None:
        shared = self._shared
        if shared.pin is not None and error is None and batch is not END:
            self.mark(PINNING, number)
            batch = shared.pin(batch)
        self.mark(SENDING, number)
        shared.answers.put(Answer(self._id, number, batch, stream, error))


class ThreadPool:
    """Threads that load batches. They are daemons: one that is stuck in user code does not keep Python from exiting."""

    def __init__(self, job: Job, epoch: Epoch, count: int, pin: Pin | None = None) -> None:
        self.size, self._epoch = count, epoch
        self._shared = _Shared(count, pin, one_queue=not job.iterable)
        self._threads = [
            threading.Thread(
                target=serve,
                args=(job, epoch, id, count, _ThreadLink(self._shared, id)),
                name=f"norch-loader-{id}",
                daemon=True,
            )
            for id in range(count)
        ]
        try:
            for thread in self._threads:
                thread.start()
        except RuntimeError:  # the system gives no more
            self.close(0.0)
            raise

    def begin(self, epoch: Epoch) -> None:
        self._epoch = epoch

    def send(self, worker: int | None, number: int, indices: Any) -> None:
        self._shared.tasks[worker or 0].put((self._epoch, number, indices))

    def receive(self, timeout: float) -> Answer | None:
        try:
            return self._shared.answers.get(timeout=timeout)
        except queue.Empty:
            return None

    def name(self, worker: int) -> str:
        return f"worker {worker} (thread {self._threads[worker].name})"

    def doing(self) -> list[Doing]:
        return list(self._shared.doing)

    def close(self, grace: float) -> None:
        self._shared.stopping = True
        for tasks in self._shared.tasks:
            tasks.put(None)
        end = time.monotonic() + grace
        for thread in self._threads:
            if (
                thread.ident is not None and thread is not threading.current_thread()
            ):  # the garbage collector may run in a worker
                thread.join(max(0.0, end - time.monotonic()))
