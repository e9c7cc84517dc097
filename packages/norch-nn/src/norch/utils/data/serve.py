"""The loop of a worker, be it a thread or a process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

from .fetch import Epoch, Fetcher, Job, own_copy
from .randomness import INIT, Keyed, shared_seed, worker_seed
from .worker import IDLE, PREPARING, WorkerInfo, as_worker


class Stop(BaseException):
    """Raised in a worker to end it."""


class Link(Protocol):
    """How a worker hears from and answers the loader. Any of these may raise `Stop`."""

    def mark(self, phase: int, batch: int = -1, place: int = 0) -> None:
        """Says what the worker is doing from now on."""

    def receive(self) -> Any:
        """An Epoch, or the number and the indices of a batch."""

    def send(self, number: int, batch: Any, stream: Any, error: BaseException | None) -> None:
        """Hands over a batch and from where its stream goes on, or what was raised in its place."""


def serve(job: Job, epoch: Epoch, id: int, count: int, link: Link, whole_process: bool = False) -> None:
    """Serves batches until `Stop` is raised. What the user's code raises is sent; batch -1 stands for the start."""
    info = WorkerInfo(id, count, worker_seed(epoch.seed, epoch.epoch, id), None, shared_seed(epoch.seed, epoch.epoch))
    with as_worker(info):
        try:
            info.dataset = own_copy(job.dataset)
            if job.worker_init_fn is not None:
                link.mark(PREPARING)
                keyed = Keyed(epoch.seed, epoch.epoch, whole_process)
                with keyed:
                    keyed.key(id, INIT)
                    job.worker_init_fn(id)
            job = replace(job, dataset=info.dataset)
        except Stop:
            return
        except BaseException as error:
            error.add_note("while starting, before the first batch")
            link.send(-1, None, None, error)
            return
        try:
            _batches(job, epoch, info, link, whole_process)
        except Stop:
            return


def _batches(job: Job, epoch: Epoch, info: WorkerInfo, link: Link, whole_process: bool) -> None:
    fetcher = Fetcher(job, epoch, info.id, info.num_workers, link.mark, whole_process)
    while True:
        link.mark(IDLE)
        task = link.receive()
        if isinstance(task, Epoch):
            info.seed = worker_seed(task.seed, task.epoch, info.id)
            info.shared_seed = shared_seed(task.seed, task.epoch)
            fetcher = Fetcher(job, task, info.id, info.num_workers, link.mark, whole_process)
            continue
        number, indices = task
        try:
            link.send(number, fetcher.fetch(number, indices), fetcher.stream_state(), None)
        except Stop:
            raise
        except BaseException as error:
            link.send(number, None, None, error)
