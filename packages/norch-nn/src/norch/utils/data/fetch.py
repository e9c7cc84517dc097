"""Loading batches: what every worker does, and the loop itself where there are no workers."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .collate import default_collate
from .dataset import gatherer, loads_batches
from .randomness import BATCH, COLLATE, Keyed
from .worker import COLLATING, LOADING, WorkerError, which

Mark = Callable[[int, int, int], None]
"""Told (phase, batch, place) before each step; may raise to end the work."""

END = type("END", (), {"__slots__": ()})()
"""What a fetch of an exhausted IterableDataset gives, in place of a batch."""


@dataclass
class Job:
    """What is loaded, and how: the same for all workers."""

    dataset: Any
    iterable: bool
    batched: bool
    batch_size: int | None
    drop_last: bool
    collate: Callable[[Any], Any]
    worker_init_fn: Callable[[int], Any] | None = None


@dataclass
class Epoch:
    """Which epoch, and where each worker's stream of an IterableDataset goes on."""

    seed: int
    epoch: int
    streams: list[dict[str, Any]] | None = None


class Fetcher:
    """Makes batches of one epoch, as worker `id` of `count`."""

    def __init__(self, job: Job, epoch: Epoch, id: int, count: int, mark: Mark, whole_process: bool = False) -> None:
        self._job, self._id, self._count, self._mark = job, id, count, mark
        self._keyed = Keyed(epoch.seed, epoch.epoch, whole_process)
        self._iterator: Any = None
        self._number, self._doing = -1, (LOADING, 0)
        self._resume = epoch.streams[id] if epoch.streams else {"samples": 0, "batches": 0}
        self._drawn, self._batches = 0, int(self._resume["batches"])
        self._ended = bool(self._resume.get("ended"))  # what has ended might start again from its last state
        self._gather = gatherer(job.dataset) if job.batched and job.collate is default_collate else None
        self._whole = not job.iterable and loads_batches(job.dataset)

    def fetch(self, number: int, indices: Any) -> Any:
        """Batch `number`: of these indices, or the next of an IterableDataset. An exception says what was loaded."""
        self._number, self._doing = number, (LOADING, 0)
        try:
            if self._gather is not None:
                self._now(LOADING, -1)
                return self._gather(indices)
            with self._keyed:
                samples = self._stream() if self._job.iterable else self._indexed(indices)
                if samples is END:
                    return END
                self._now(COLLATING, 0)
                self._keyed.key(number, COLLATE)
                return self._job.collate(samples)
        except BaseException as error:
            phase, place = self._doing
            what = "collating" if phase == COLLATING else f"loading {which(indices, place)} of"
            error.add_note(f"while {what} batch {number}")
            if isinstance(error, StopIteration):  # from a loop over batches it would end that loop
                raise WorkerError(f"StopIteration was raised while {what} batch {number}") from error
            raise

    def _now(self, phase: int, place: int) -> None:
        self._doing = phase, place
        self._mark(phase, self._number, place)

    def _indexed(self, indices: Any) -> Any:
        dataset, key, mark = self._job.dataset, self._keyed.key, self._now
        if not self._job.batched:
            mark(LOADING, 0)
            key(indices)
            return dataset[indices]
        if self._whole:
            mark(LOADING, -1)
            key(indices, BATCH)
            return dataset.__getitems__(indices)
        samples = []
        for place, index in enumerate(indices):
            mark(LOADING, place)
            key(index)
            samples.append(dataset[index])
        return samples

    # --- Iterable datasets ------------------------------------------------------------------------------------------

    def _stream(self) -> Any:
        if self._iterator is None and not self._ended:
            self._start()
        if self._ended:
            return END
        job = self._job
        samples: list[Any] = []
        for _ in range(job.batch_size or 1) if job.batched else (0,):
            self._now(LOADING, self._drawn)
            if not self._next(samples):
                break
        short = job.batched and len(samples) < (job.batch_size or 1)
        if not samples or (short and job.drop_last):
            return END
        self._batches += 1
        return samples if job.batched else samples[0]

    def _next(self, samples: list[Any] | None) -> bool:
        self._keyed.key(self._drawn * self._count + self._id)
        try:
            sample = next(self._iterator)
        except StopIteration:
            self._ended = True
            return False
        self._drawn += 1
        if samples is not None:
            samples.append(sample)
        return True

    def _start(self) -> None:
        dataset, state = self._job.dataset, self._resume
        self._now(LOADING, 0)
        self._keyed.key(self._id)
        if "dataset" in state:
            dataset.load_state_dict(copy.deepcopy(state["dataset"]))
        self._iterator = iter(dataset)
        if "iterator" in state:
            self._iterator.load_state_dict(copy.deepcopy(state["iterator"]))
        if "dataset" in state or "iterator" in state:
            self._drawn = state["samples"]
            return
        for place in itertools.takewhile(lambda _: not self._ended, range(state["samples"])):
            self._now(LOADING, place)
            self._next(None)

    def stream_state(self) -> dict[str, Any] | None:
        """From where an IterableDataset's stream goes on after the batch fetched last."""
        if not self._job.iterable:
            return None
        state: dict[str, Any] = {"samples": self._drawn, "batches": self._batches, "ended": self._ended}
        for name, owner in (("iterator", self._iterator), ("dataset", self._job.dataset)):
            if hasattr(owner, "state_dict") and hasattr(owner, "load_state_dict"):
                state[name] = copy.deepcopy(owner.state_dict())
                break
        return state


def own_copy(dataset: Any) -> Any:
    """A worker's shallow copy of a dataset and of the datasets in it: what one worker sets, others do not see."""
    from .dataset import Dataset

    if not isinstance(dataset, Dataset):
        return dataset
    copied = copy.copy(dataset)
    for name, value in list(getattr(copied, "__dict__", {}).items()):
        if isinstance(value, Dataset):
            copied.__dict__[name] = own_copy(value)
        elif type(value) in (list, tuple) and any(isinstance(v, Dataset) for v in value):
            copied.__dict__[name] = type(value)(own_copy(v) for v in value)
        elif type(value) is dict and any(isinstance(v, Dataset) for v in value.values()):
            copied.__dict__[name] = {k: own_copy(v) for k, v in value.items()}
    return copied
