"""Pipes of samples by index or key. datapipe is the pipe that samples come from, or any sequence."""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import norch

from .datapipe import DataChunk, IterDataPipe, MapDataPipe, functional_datapipe


class SequenceWrapper(MapDataPipe[Any]):
    """A pipe of the samples of `sequence`, a sequence or mapping; of a copy of it, unless deepcopy=False."""

    def __init__(self, sequence: Any, deepcopy: bool = True) -> None:
        self.sequence = copy.deepcopy(sequence) if deepcopy else sequence

    def __getitem__(self, index: Any) -> Any:
        return self.sequence[index]

    def __len__(self) -> int:
        return len(self.sequence)


@functional_datapipe("map")
class Mapper(MapDataPipe[Any]):
    """`fn` of each sample."""

    def __init__(self, datapipe: Any, fn: Callable[[Any], Any]) -> None:
        self.datapipe, self.fn = datapipe, fn

    def __getitem__(self, index: Any) -> Any:
        return self.fn(self.datapipe[index])

    def __len__(self) -> int:
        return len(self.datapipe)


@functional_datapipe("concat")
class Concater(MapDataPipe[Any]):
    """The samples of one pipe after those of another."""

    def __init__(self, *datapipes: Any) -> None:
        if not datapipes:
            raise ValueError("Concater: expected at least one pipe")
        self.datapipes, self._ends = datapipes, list(accumulate(map(len, datapipes)))

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(f"index {index} of {len(self)} samples")
        at = bisect_right(self._ends, index)
        return self.datapipes[at][index - (self._ends[at - 1] if at else 0)]

    def __len__(self) -> int:
        return self._ends[-1]


@functional_datapipe("zip")
class Zipper(MapDataPipe[Any]):
    """Tuples of a sample of each pipe."""

    def __init__(self, *datapipes: Any) -> None:
        if not datapipes:
            raise ValueError("Zipper: expected at least one pipe")
        self.datapipes = datapipes

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple([pipe[index] for pipe in self.datapipes])

    def __len__(self) -> int:
        return min(map(len, self.datapipes))


@functional_datapipe("batch")
class Batcher(MapDataPipe[Any]):
    """Lists of `batch_size` samples, of the class `wrapper_class`; drop_last: without a last one that is shorter."""

    def __init__(
        self, datapipe: Any, batch_size: int, drop_last: bool = False, wrapper_class: type = DataChunk
    ) -> None:
        if batch_size <= 0:
            raise ValueError(f"Batcher: batch_size must be positive, got {batch_size}")
        self.datapipe, self.batch_size, self.drop_last = datapipe, batch_size, drop_last
        self.wrapper_class = wrapper_class

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(f"index {index} of {len(self)} batches")
        begin = index * self.batch_size
        end = min(begin + self.batch_size, len(self.datapipe))
        return self.wrapper_class([self.datapipe[i] for i in range(begin, end)])

    def __len__(self) -> int:
        return (len(self.datapipe) + (0 if self.drop_last else self.batch_size - 1)) // self.batch_size


class Shuffler(IterDataPipe[Any]):
    """The samples in a random order, by norch's generator. indices: those of the pipe; from 0 on unless given."""

    def __init__(self, datapipe: Any, *, indices: Sequence[Any] | None = None) -> None:
        self.datapipe = datapipe
        self.indices = list(range(len(datapipe))) if indices is None else list(indices)
        self._enabled = True
        self._seed: int | None = None

    def set_shuffle(self, shuffle: bool = True) -> Shuffler:
        """Whether samples are shuffled. Returns the pipe."""
        self._enabled = shuffle
        return self

    def set_seed(self, seed: int) -> Shuffler:
        """Seeds the next pass. Returns the pipe."""
        self._seed = seed
        return self

    def __iter__(self) -> Any:
        generator = None if self._seed is None else norch.Generator().manual_seed(self._seed)
        self._seed = None
        count = len(self.indices)
        order = norch.randperm(count, generator=generator).tolist() if self._enabled else range(count)
        for at in order:
            yield self.datapipe[self.indices[at]]

    def __len__(self) -> int:
        return len(self.datapipe)


MapDataPipe.functions["shuffle"] = Shuffler
