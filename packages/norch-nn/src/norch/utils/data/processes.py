"""Workers that are processes: for samples whose making keeps Python busy, at the price of copies between processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import multiprocessing.reduction
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

from .fetch import END, Epoch, Job
from .mailbox import Board, File, read, write
from .pool import Answer
from .process_worker import Parcel, main
from .worker import STARTING, Doing, WorkerError, in_words, unpack_exception


class ProcessPool:
    """Processes that load batches.

    They are spawned, unless a context says otherwise: a forked process has the locks of all threads of this one as they
    were at that moment, held for ever if held then, and norch, NumPy and thread workers do have threads.
    """

    def __init__(self, job: Job, epoch: Epoch, count: int, prefetch: int, context: Any) -> None:
        if not hasattr(multiprocessing.reduction, "DupFd"):
            raise RuntimeError("DataLoader: worker processes need a POSIX system; use workers='thread' here")
        self.size = count
        self._sent: dict[int, Any] = {}
        self._free = [list(range(prefetch)) for _ in range(count)]
        self._boxes = [[File() for _ in range(prefetch)] for _ in range(count)]
        self._boards = [Board() for _ in range(count)]
        self._processes: list[Any] = []
        self._tasks: list[Any] = []
        self._answers: list[Any] = []
        context = multiprocessing.get_context(context) if isinstance(context, str) else context
        try:
            for id in range(count):
                self._start(context, Parcel(job), epoch, id)
        except BaseException:
            self.close(0.0)
            raise

    def _start(self, context: Any, parcel: Parcel, epoch: Epoch, id: int) -> None:
        their_tasks, tasks = context.Pipe(duplex=False)
        answers, their_answers = context.Pipe(duplex=False)
        self._tasks.append(tasks)
        self._answers.append(answers)
        # A forked process has the ends of all pipes; it must not keep those that are not its own open.
        inherited = [*self._tasks, *self._answers] if context.get_start_method() == "fork" else []
        process = context.Process(
            target=main,
            name=f"norch-loader-{id}",
            daemon=True,
            args=(
                parcel, epoch, id, self.size, their_tasks, their_answers, self._boxes[id], self._boards[id], inherited,
            ),
        )  # fmt: skip
        with _without_interrupts():
            process.start()
        self._processes.append(process)
        their_tasks.close()
        their_answers.close()

    def begin(self, epoch: Epoch) -> None:
        for id, tasks in enumerate(self._tasks):
            self._checked_send(id, tasks, epoch)

    def send(self, worker: int | None, number: int, indices: Any) -> None:
        if worker is None:
            worker = max(range(self.size), key=lambda w: len(self._free[w]))
        box = self._free[worker].pop()
        self._sent[number] = indices
        where = write(self._boxes[worker][box], indices)  # a pipe might have no room for many
        self._checked_send(worker, self._tasks[worker], (box, number, where))

    def _checked_send(self, worker: int, tasks: Any, message: Any) -> None:
        try:
            tasks.send(message)
        except OSError:
            answer = self.receive(1.0)  # it may have said why
            if answer is not None and answer.number < 0 and answer.error is not None:
                answer.error.add_note(f"in DataLoader {self.name(answer.worker)}")
                raise answer.error from answer.error.__cause__
            raise self._death(worker) from None

    def receive(self, timeout: float) -> Answer | None:
        owners: dict[Any, int] = {connection: id for id, connection in enumerate(self._answers)}
        sentinels: dict[Any, int] = {process.sentinel: id for id, process in enumerate(self._processes)}
        ready: list[Any] = multiprocessing.connection.wait([*owners, *sentinels], timeout)
        for connection in ready:
            if connection in owners:  # what a process sent before it died counts
                try:
                    return self._open(owners[connection], connection.recv())
                except (EOFError, OSError):
                    raise self._death(owners[connection]) from None
        for sentinel in ready:
            raise self._death(sentinels[sentinel])
        return None

    def _open(self, worker: int, message: Any) -> Answer:
        number, box, where = message
        ended, batch, stream, error = read(self._boxes[worker][box], *where)
        if number >= 0:
            self._free[worker].append(box)
            self._sent.pop(number, None)
        return Answer(worker, number, END if ended else batch, stream, unpack_exception(error) if error else None)

    def _death(self, worker: int) -> WorkerError:
        process = self._processes[worker]
        process.join(5.0)
        doing = self._boards[worker].read()
        code = process.exitcode
        if code is None:
            cause = "closed its pipes"
        elif code < 0:
            with contextlib.suppress(ValueError):
                code = signal.Signals(-code).name
            cause = f"was killed by {code}" + (", as the system does when memory runs out" if code == "SIGKILL" else "")
        else:
            cause = f"exited with code {code}"
        lines = [
            f"  {self.name(id)}: {in_words(d, self._sent.get)}" + (", when it died" if id == worker else "")
            for id, d in enumerate(self.doing())
        ]
        hint = (
            "\nIt got no further than its start: a script that uses worker processes needs its main part inside "
            "`if __name__ == '__main__':`, since each worker imports it"
            if doing.phase == STARTING
            else ""
        )
        return WorkerError(f"DataLoader {self.name(worker)} {cause}\n" + "\n".join(lines) + hint)

    def name(self, worker: int) -> str:
        started = worker < len(self._processes)
        return f"worker {worker} (process {self._processes[worker].pid})" if started else f"worker {worker}"

    def doing(self) -> list[Doing]:
        return [board.read() for board in self._boards]

    def close(self, grace: float) -> None:
        for connection in self._tasks:
            connection.close()  # an idle worker ends then
        end = time.monotonic() + grace
        for step in ("join", "terminate", "kill"):
            for process in self._processes:
                if process.is_alive():
                    if step == "join":
                        process.join(max(0.0, end - time.monotonic()))
                    else:
                        getattr(process, step)()
            if step != "join":
                for process in self._processes:
                    process.join(2.0)
        for connection in self._answers:
            connection.close()
        self._boxes = []


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """A process that is started in it does not hear Ctrl-C until it says so."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
