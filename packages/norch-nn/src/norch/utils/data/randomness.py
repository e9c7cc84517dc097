"""Randomness keyed by (seed, epoch, sample index), so that who loads a sample, and when, does not change it."""

from __future__ import annotations

import hashlib
import operator
import random
import struct
from contextvars import ContextVar
from typing import Any

import numpy as np

import norch

SAMPLE, COLLATE, ORDER, BATCH, INIT, _FREE = range(6)
"""What numbers are drawn for: a sample, the collation of a batch, the order of an epoch, a batch loaded as a whole,
a worker's start."""

_MASK = 2**64 - 1


class Keyed(norch.Generator):
    """A generator that is given a new key for each sample. In a `with` block norch's random ops draw from it.

    The keys are worked out when something is drawn: most samples draw nothing, and pay nothing.
    whole_process: also seeds `random` and `numpy.random`, which no other thread may be using.
    """

    def __init__(self, seed: int, epoch: int, whole_process: bool = False) -> None:
        super().__init__()
        self._base, self._epoch = seed & _MASK, epoch
        self._whole_process = whole_process
        self._tokens: list[Any] = []
        self._numpy: np.random.Generator | None = None
        self.key(0)

    def key(self, index: Any, purpose: int = SAMPLE) -> None:
        """Starts the numbers of a sample, or what else `purpose` and `index` say."""
        self._index, self._purpose, self._numpy, self._due = index, purpose, None, True
        if self._whole_process:
            mixed = self._mixed()
            random.seed(mixed)
            np.random.seed(mixed & 0xFFFFFFFF)

    def _mixed(self) -> int:
        number, kind = _number(self._index)
        data = struct.pack("<5Q", self._base, self._epoch & _MASK, self._purpose, kind, number)
        return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")

    def _settle(self) -> None:
        if self._due:
            self._due = False
            super().manual_seed(self._mixed())

    def numpy(self) -> np.random.Generator:
        """The NumPy generator of the current key: the same one until the next key."""
        if self._numpy is None:
            self._numpy = self.numpy_for(self._index, self._purpose)
        return self._numpy

    def numpy_for(self, index: Any, purpose: int = SAMPLE) -> np.random.Generator:
        """A new NumPy generator of a key: the counter starts where no other sample's of the epoch comes to."""
        number, kind = _number(index)
        counter = np.array((0, 0, purpose * 2 + kind, number), np.uint64)
        return np.random.Generator(
            np.random.Philox(key=np.array((self._base, self._epoch & _MASK), np.uint64), counter=counter)
        )

    # As Generator's, once the key has been worked out.

    def manual_seed(self, seed: int) -> norch.Generator:
        self._due = False
        return super().manual_seed(seed)

    def initial_seed(self) -> int:
        """63 bits of the seed: what int64 holds, as of PyTorch's workers."""
        self._settle()
        return super().initial_seed() & (_MASK >> 1)

    def get_state(self) -> norch.Tensor:
        self._settle()
        return super().get_state()

    def set_state(self, state: norch.Tensor | tuple[int, int]) -> norch.Generator:
        self._due = False
        return super().set_state(state)

    def next(self) -> tuple[int, int]:
        self._settle()
        return super().next()

    def __enter__(self) -> Keyed:
        scope = norch.use_generator(self)
        scope.__enter__()
        self._tokens.append((scope, _current.set(self)))
        return self

    def __exit__(self, *exception: object) -> None:
        scope, token = self._tokens.pop()
        _current.reset(token)
        scope.__exit__(*exception)


_current: ContextVar[Keyed | None] = ContextVar("sample", default=None)


def _number(index: Any) -> tuple[int, int]:
    """64 bits for an index, and whether it is an integer (0) or something else (1), which is known by its repr."""
    try:
        return operator.index(index) & _MASK, 0
    except TypeError:
        return int.from_bytes(hashlib.blake2b(repr(index).encode(), digest_size=8).digest(), "little"), 1


def sample_rng(index: Any = None) -> np.random.Generator:
    """The NumPy generator of the sample that a DataLoader is loading in this thread: what a transform draws from.

    It is keyed by (seed, epoch, sample index), whatever the number and kind of workers and the batch size. All calls
    for one sample return the same generator. In a collate function it is keyed by the batch's number; in
    `__getitems__`, by all indices of the batch, and with `index` by that sample's. In an IterableDataset the index is
    i * workers + worker for the i-th sample of a worker. Outside a loader: one with a seed from norch's generator.
    An index that comes more than once in an epoch (replacement) draws the same each time.

    norch's own random ops without `generator=` are keyed likewise. `random` and `numpy.random` have one state for the
    whole process: worker processes seed it for each sample, but nothing does so in threads or without workers.
    """
    current = _current.get()
    if current is None:
        seed, epoch = norch.current_generator().next()
        return Keyed(seed, epoch).numpy_for(0 if index is None else index, _FREE)
    return current.numpy() if index is None else current.numpy_for(index)


def worker_seed(seed: int, epoch: int, id: int) -> int:
    """63 bits that differ by worker and epoch: `get_worker_info().seed`."""
    data = struct.pack("<3Q", seed & _MASK, epoch & _MASK, id)
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") >> 1


def shared_seed(seed: int, epoch: int) -> int:
    """63 bits that differ by epoch alone: `get_worker_info().shared_seed`."""
    return worker_seed(seed, epoch, _MASK)
