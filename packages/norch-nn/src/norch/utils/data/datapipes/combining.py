"""Pipes that are made of several, and several that are made of one.

datapipe: as in `iter`, the pipe that samples come from, or any iterable.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .datapipe import IterDataPipe, functional_datapipe


@functional_datapipe("zip")
class Zipper(IterDataPipe[Any]):
    """Tuples of a sample of each pipe, to the end of the shortest."""

    def __init__(self, *datapipes: Any) -> None:
        self.datapipes = datapipes

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return zip(*self.datapipes, strict=False)

    def __len__(self) -> int:
        return min(map(len, self.datapipes))


@functional_datapipe("concat")
class Concater(IterDataPipe[Any]):
    """The samples of one pipe after those of another."""

    def __init__(self, *datapipes: Any) -> None:
        if not datapipes:
            raise ValueError("Concater: expected at least one pipe")
        self.datapipes = datapipes

    def __iter__(self) -> Iterator[Any]:
        for pipe in self.datapipes:
            yield from pipe

    def __len__(self) -> int:
        return sum(map(len, self.datapipes))


@functional_datapipe("mux")
class Multiplexer(IterDataPipe[Any]):
    """A sample of each pipe in turn, to the end of the shortest."""

    def __init__(self, *datapipes: Any) -> None:
        self.datapipes = datapipes

    def __iter__(self) -> Iterator[Any]:
        for samples in zip(*self.datapipes, strict=False):
            yield from samples

    def __len__(self) -> int:
        return min(map(len, self.datapipes)) * len(self.datapipes)


class _Branch(IterDataPipe[Any]):
    """One of the pipes that another one was made into."""

    def __init__(self, parts: _Parts, number: int) -> None:
        self.parts, self.number = parts, number

    def __iter__(self) -> Iterator[Any]:
        return self.parts.stream(self.number)

    def __len__(self) -> int:
        return self.parts.length()


class _Parts:
    """What several pipes that come from one share: its pass, and samples that some have not had yet."""

    def __init__(
        self, source: Any, count: int, places: Callable[[Any], Iterable[int]], limit: int, known: bool
    ) -> None:
        self.source, self.places, self.limit, self.known = source, places, limit, known
        self.count = count
        self.held: list[deque[Any]] = [deque() for _ in range(count)]
        self.pass_: Iterator[Any] | None = None
        self.begun = [False] * count

    def length(self) -> int:
        if not self.known:
            raise TypeError("the length of what is classified is not known")
        return len(self.source)

    def stream(self, number: int) -> Iterator[Any]:
        if self.pass_ is None or self.begun[number]:  # a new pass, which those of the others end with
            self.pass_, self.begun = iter(self.source), [False] * self.count
            for held in self.held:
                held.clear()
        self.begun[number] = True
        mine, own = self.pass_, self.held[number]
        while self.pass_ is mine:
            if own:
                yield own.popleft()
                continue
            try:
                sample = next(mine)
            except StopIteration:
                return
            for place in self.places(sample):
                self.held[place].append(sample)
                if 0 <= self.limit < len(self.held[place]):
                    raise BufferError(f"more than buffer_size={self.limit} samples wait for one of the pipes")
        raise RuntimeError("this pass has ended, since another one of the same pipe has begun")


@functional_datapipe("fork")
class Forker(IterDataPipe[Any]):
    """`num_instances` pipes of the samples of one, which hold up to `buffer_size` (-1: any number) of them for each
    other. copy: "shallow" or "deep", of each sample for each."""

    def __new__(cls, datapipe: Any, num_instances: int, buffer_size: int = 1000, copy: str | None = None) -> Any:
        if num_instances < 1:
            raise ValueError(f"Forker: num_instances must be positive, got {num_instances}")
        everywhere = range(num_instances)
        parts = _Parts(datapipe, num_instances, lambda sample: everywhere, buffer_size, True)
        branches = [_Branch(parts, i) for i in everywhere]
        if copy is None:
            return branches
        return [branch.map(_COPIES[copy]) for branch in branches]


@functional_datapipe("demux")
class Demultiplexer(IterDataPipe[Any]):
    """`num_instances` pipes of the samples of one: `classifier_fn` says which has a sample, or None for none, which
    raises ValueError unless drop_none. They hold up to `buffer_size` samples (-1: any number) for each other."""

    def __new__(
        cls,
        datapipe: Any,
        num_instances: int,
        classifier_fn: Callable[[Any], int | None],
        drop_none: bool = False,
        buffer_size: int = 1000,
    ) -> Any:
        def places(sample: Any) -> list[int]:
            place = classifier_fn(sample)
            if place is None and drop_none:
                return []
            if place is None or not 0 <= place < num_instances:
                raise ValueError(f"Demultiplexer: classifier_fn gave {place}, of {num_instances} pipes")
            return [int(place)]

        parts = _Parts(datapipe, num_instances, places, buffer_size, False)
        return [_Branch(parts, i) for i in range(num_instances)]


_COPIES: dict[str, Callable[[Any], Any]] = {"shallow": copy.copy, "deep": copy.deepcopy}
