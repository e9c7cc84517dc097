"""What the two kinds of workers have in common: the loader's side of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from .fetch import Epoch
from .worker import Doing


@dataclass
class Answer:
    """What worker `worker` made of batch `number`: the batch and from where its stream goes on, or an exception."""

    worker: int
    number: int
    batch: Any
    stream: Any
    error: BaseException | None


class Pool(Protocol):
    """Workers that have been started."""

    size: int

    def begin(self, epoch: Epoch) -> None:
        """Tells all workers, which have nothing to do, of a new epoch."""

    def send(self, worker: int | None, number: int, indices: Any) -> None:
        """Asks a worker, or any that has time, for a batch. Never waits for it."""

    def receive(self, timeout: float) -> Answer | None:
        """The next answer of any worker; None if none comes in time. Raises WorkerError if a worker has died."""

    def name(self, worker: int) -> str:
        """What a worker is called in messages."""

    def doing(self) -> list[Doing]:
        """What each worker is doing."""

    def close(self, grace: float) -> None:
        """Ends the workers: at once, or when they have done what they are doing if that takes less than `grace`."""
