"""Datasets for the tests of DataLoader: in a module of their own, since worker processes import them by name."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from typing import Any

import numpy as np

import norch
from norch.utils.data import Dataset, IterableDataset, get_worker_info, sample_rng


class Noisy(Dataset):
    """Sample i: i, and numbers from the two sources of randomness that are keyed by the sample."""

    def __init__(self, length: int = 11) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {
            "index": index,
            "numpy": sample_rng().random(3, dtype=np.float32),
            "norch": norch.rand(2, device="cpu"),
            "more": sample_rng().integers(1 << 40),
        }


class Legacy(Dataset):
    """Numbers from the state that a process has once."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> tuple[float, float]:
        return random.random(), np.random.random()


class Stream(IterableDataset):
    """Counts up to `length`, sharing the numbers with the other workers; each with a number drawn for it."""

    def __init__(self, length: int = 11) -> None:
        self.length = length

    def __iter__(self):
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for i in range(first, self.length, step):
            yield i, float(sample_rng().random())


class Remembering(Stream):
    """A Stream that says where it is, and how often it was asked for a number."""

    def __init__(self, length: int = 11) -> None:
        super().__init__(length)
        self.position, self.asked = -1, 0

    def __iter__(self):
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        i = first if self.position < 0 else self.position
        self.position = -1
        while i < self.length:
            self.asked += 1
            self.position = i + step
            yield i, self.asked
            i += step
        self.position = -1

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]


class Failing(Dataset):
    """Does something bad at one index."""

    def __init__(self, how: str, at: int = 5, length: int = 12) -> None:
        self.how, self.at, self.length = how, at, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        if index == self.at:
            getattr(self, self.how)()
        return index

    def key_error(self) -> None:
        raise KeyError("no such thing")

    def stop(self) -> None:
        next(iter(()))

    def unpicklable(self) -> None:
        class Odd(Exception):
            pass

        raise Odd("of a class that nobody else knows")

    def two_arguments(self) -> None:
        raise TwoArguments("left", "right")

    def exits(self) -> None:
        os._exit(3)

    def killed(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def hangs(self) -> None:
        time.sleep(60)

    def leaves(self) -> None:
        sys.exit("leaving")


class TwoArguments(Exception):
    def __init__(self, a: str, b: str) -> None:
        super().__init__(f"{a} and {b}")


class Waiting(Dataset):
    """Waits for an event of this process at one index: what a thread does meanwhile is then known."""

    def __init__(self, at: int, length: int = 8) -> None:
        self.at, self.length, self.event = at, length, threading.Event()

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        if index == self.at:
            self.event.wait(60)
        return index


class Mixed(Dataset):
    """What a batch may hold."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {
            "tensor": norch.full((2, 3), index, dtype=norch.bfloat16, device="cpu"),
            "array": np.full((300, 200), index, np.float64),
            "text": f"sample {index}",
            "pair": (index, index / 2),
            "empty": np.zeros((0, 4), np.int32),
            "scalar": np.float32(index),
            "flag": index > 2,
        }


def first_only(batch: list[Any]) -> Any:
    return batch[0]


def as_they_are(batch: list[Any]) -> list[Any]:
    return batch


def failing_collate(batch: list[Any]) -> Any:
    raise ZeroDivisionError("in collate")


def shifted_by_worker(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    assert info.id == worker
    info.dataset.length = 4 + worker


def failing_init(worker: int) -> None:
    raise LookupError(f"no disk for worker {worker}")
