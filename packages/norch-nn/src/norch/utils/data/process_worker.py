"""What runs in a worker process."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from typing import Any

import norch

from .fetch import END, Epoch, Job
from .mailbox import Board, File, read, write
from .serve import Stop, serve
from .worker import SENDING, pack_exception


class Parcel:
    """A job on its way to a process: opened there by the worker, so that what goes wrong has somewhere to be told."""

    def __init__(self, job: Job) -> None:
        self.job: Job | None = job
        self._data: bytes | None = None

    def __reduce__(self) -> Any:
        try:
            data = bytes(ForkingPickler.dumps((self.job, norch.get_default_dtype()), pickle.HIGHEST_PROTOCOL))
        except Exception as error:
            error.add_note(
                "while sending the dataset, collate_fn and worker_init_fn to a DataLoader's worker process: they have "
                "to be picklable, which what is defined inside a function is not. Threads (workers='thread') need none "
                "of this"
            )
            raise
        return _sealed, (data,)

    def open(self) -> Job:
        if self._data is not None:
            self.job, dtype = pickle.loads(self._data)
            self._data = None
            norch.set_default_dtype(dtype)
        assert self.job is not None
        return self.job


def _sealed(data: bytes) -> Parcel:
    parcel = Parcel.__new__(Parcel)
    parcel.job, parcel._data = None, data
    return parcel


class ProcessLink:
    """The pipe for tasks, that for answers, a mailbox for each batch under way, and the board."""

    def __init__(self, tasks: Connection, answers: Connection, boxes: list[File], board: Board) -> None:
        self._tasks, self._answers, self._boxes, self._board = tasks, answers, boxes, board
        self._box = 0
        self.mark = board.write

    def receive(self) -> Any:
        try:
            message = self._tasks.recv()
        except (EOFError, OSError):
            raise Stop from None
        if isinstance(message, Epoch):
            return message
        self._box, number, where = message
        return number, read(self._boxes[self._box], *where)

    def send(self, number: int, batch: Any, stream: Any, error: BaseException | None) -> None:
        self.mark(SENDING, number)
        packed = None if error is None else pack_exception(error)
        value = (batch is END, None if batch is END else batch, stream, packed)
        where = write(self._boxes[self._box], value)
        try:
            self._answers.send((number, self._box, where))
        except OSError:
            raise Stop from None


def _die_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def main(
    parcel: Parcel,
    epoch: Epoch,
    id: int,
    count: int,
    tasks: Connection,
    answers: Connection,
    boxes: list[File],
    board: Board,
    inherited: list[Connection],
) -> None:
    """The entry of the process. Ctrl-C is the loader's business: it ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    for connection in inherited:
        connection.close()
    threading.Thread(target=_die_with_parent, daemon=True).start()
    link = ProcessLink(tasks, answers, boxes, board)
    try:
        norch.set_num_threads(1)  # the other processors are for the other workers
        job = parcel.open()
    except BaseException as error:
        error.add_note("while starting, before the first batch")
        link.send(-1, None, None, error)
        return
    serve(job, epoch, id, count, link, whole_process=True)
