"""Pipes of samples that are gone through.

Arguments that mean the same in every class:

    source_datapipe, datapipe: the pipe that samples come from, or any iterable.
"""

from __future__ import annotations

import copy
import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

import norch

from ...collate import default_collate
from ...worker import get_worker_info
from ..combining import Concater as Concater
from ..combining import Demultiplexer as Demultiplexer
from ..combining import Forker as Forker
from ..combining import Multiplexer as Multiplexer
from ..combining import Zipper as Zipper
from ..datapipe import DataChunk, IterDataPipe, functional_datapipe


class IterableWrapper(IterDataPipe[Any]):
    """A pipe of what `iterable` gives; of a copy of it in each pass, unless deepcopy=False."""

    def __init__(self, iterable: Iterable[Any], deepcopy: bool = True) -> None:
        self.iterable, self.deepcopy = iterable, deepcopy

    def __iter__(self) -> Iterator[Any]:
        source = self.iterable
        if self.deepcopy:
            try:
                source = copy.deepcopy(source)
            except TypeError:  # what cannot be copied, such as an open file, is gone through as it is
                source = self.iterable
        yield from source

    def __len__(self) -> int:
        return len(self.iterable)  # type: ignore[arg-type]


def _changed(sample: Any, fn: Callable[..., Any], input_col: Any, output_col: Any) -> Any:
    """A sample with `fn` of one or several of its parts in the place of these, of another part, or at its end (-1)."""
    if input_col is None:
        return fn(sample)
    several = isinstance(input_col, list | tuple)
    result = fn(*[sample[c] for c in input_col]) if several else fn(sample[input_col])
    kind = type(sample)
    out = list(sample) if isinstance(sample, tuple) else copy.copy(sample)
    if output_col is None:
        if several:
            out[input_col[0]] = result
            for column in sorted(input_col[1:], reverse=True):
                del out[column]
        else:
            out[input_col] = result
    elif output_col == -1 and isinstance(out, list):
        out.append(result)
    else:
        out[output_col] = result
    return kind(out) if isinstance(sample, tuple) else out


@functional_datapipe("map")
class Mapper(IterDataPipe[Any]):
    """`fn` of each sample; or of its parts `input_col`, in their place or in that of `output_col` (-1: at the end)."""

    def __init__(self, datapipe: Any, fn: Callable[..., Any], input_col: Any = None, output_col: Any = None) -> None:
        if input_col is None and output_col is not None:
            raise ValueError("Mapper: output_col needs an input_col")
        self.datapipe, self.fn, self.input_col, self.output_col = datapipe, fn, input_col, output_col

    def __iter__(self) -> Iterator[Any]:
        for sample in self.datapipe:
            yield _changed(sample, self.fn, self.input_col, self.output_col)

    def __len__(self) -> int:
        return len(self.datapipe)


@functional_datapipe("filter")
class Filter(IterDataPipe[Any]):
    """The samples that `filter_fn` of them, or of their parts `input_col`, says True of."""

    def __init__(self, datapipe: Any, filter_fn: Callable[..., Any], input_col: Any = None) -> None:
        self.datapipe, self.filter_fn, self.input_col = datapipe, filter_fn, input_col

    def _keeps(self, sample: Any) -> bool:
        if self.input_col is None:
            return bool(self.filter_fn(sample))
        if isinstance(self.input_col, list | tuple):
            return bool(self.filter_fn(*[sample[c] for c in self.input_col]))
        return bool(self.filter_fn(sample[self.input_col]))

    def __iter__(self) -> Iterator[Any]:
        return (sample for sample in self.datapipe if self._keeps(sample))


@functional_datapipe("collate")
class Collator(Mapper):
    """`collate_fn` of each sample, a batch. conversion: another name of it."""

    def __init__(self, datapipe: Any, conversion: Any = None, collate_fn: Any = None) -> None:
        super().__init__(datapipe, collate_fn or conversion or default_collate)


@functional_datapipe("batch")
class Batcher(IterDataPipe[Any]):
    """Lists of `batch_size` samples, of the class `wrapper_class`; drop_last: without a last one that is shorter."""

    def __init__(
        self, datapipe: Any, batch_size: int, drop_last: bool = False, wrapper_class: type = DataChunk
    ) -> None:
        if batch_size <= 0:
            raise ValueError(f"Batcher: batch_size must be positive, got {batch_size}")
        self.datapipe, self.batch_size, self.drop_last, self.wrapper_class = (
            datapipe, batch_size, drop_last, wrapper_class,
        )  # fmt: skip

    def __iter__(self) -> Iterator[Any]:
        batch: list[Any] = []
        for sample in self.datapipe:
            batch.append(sample)
            if len(batch) == self.batch_size:
                yield self.wrapper_class(batch)
                batch = []
        if batch and not self.drop_last:
            yield self.wrapper_class(batch)

    def __len__(self) -> int:
        rest = 0 if self.drop_last else self.batch_size - 1
        return (len(self.datapipe) + rest) // self.batch_size


@functional_datapipe("unbatch")
class UnBatcher(IterDataPipe[Any]):
    """The samples of batches, of `unbatch_level` levels of them, or of all (-1)."""

    def __init__(self, datapipe: Any, unbatch_level: int = 1) -> None:
        if unbatch_level < -1:
            raise ValueError("UnBatcher: unbatch_level must be -1 or more")
        self.datapipe, self.unbatch_level = datapipe, unbatch_level

    def _within(self, value: Any, level: int) -> Iterator[Any]:
        if level == 0 or (level < 0 and not isinstance(value, list)):
            yield value
        elif not isinstance(value, list):
            raise IndexError(f"UnBatcher: unbatch_level {self.unbatch_level} exceeds the depth of the samples")
        else:
            for part in value:
                yield from self._within(part, level - 1)

    def __iter__(self) -> Iterator[Any]:
        for sample in self.datapipe:
            yield from self._within(sample, self.unbatch_level)


@functional_datapipe("shuffle")
class Shuffler(IterDataPipe[Any]):
    """The samples in a random order: each from among `buffer_size` that are held. unbatch_level: of batches taken apart
    first.

    By Python's generator, which each pass seeds from norch's unless `set_seed` was called; the workers of a DataLoader
    go through one order, so that a `sharding_filter` after this leaves each a part of it.
    """

    _numbers = itertools.count()

    def __init__(self, datapipe: Any, *, buffer_size: int = 10000, unbatch_level: int = 0) -> None:
        if buffer_size <= 0:
            raise ValueError(f"Shuffler: buffer_size must be positive, got {buffer_size}")
        self.datapipe = datapipe if unbatch_level == 0 else UnBatcher(datapipe, unbatch_level)
        self.buffer_size, self._shuffle_enabled = buffer_size, True
        self._seed: int | None = None
        self._number = next(self._numbers)  # by which the orders of two in one graph differ

    def _fresh_seed(self) -> int | str:
        worker = get_worker_info()
        if worker is None:
            return int(norch.randint(2**62, ()).item())
        shared = worker.seed - worker.id if worker.shared_seed is None else worker.shared_seed
        return f"{shared} {self._number}"

    def set_shuffle(self, shuffle: bool = True) -> Shuffler:
        """Whether samples are shuffled. Returns the pipe."""
        self._shuffle_enabled = shuffle
        return self

    def set_seed(self, seed: int) -> Shuffler:
        """Seeds the next pass. Returns the pipe."""
        self._seed = seed
        return self

    def __iter__(self) -> Iterator[Any]:
        if not self._shuffle_enabled:
            yield from self.datapipe
            return
        seed, self._seed = self._seed, None
        draw = random.Random(self._fresh_seed() if seed is None else seed)
        held: list[Any] = []
        for sample in self.datapipe:
            if len(held) == self.buffer_size:
                at = draw.randint(0, len(held) - 1)
                held[at], sample = sample, held[at]
                yield sample
            else:
                held.append(sample)
        draw.shuffle(held)
        while held:
            yield held.pop()

    def __len__(self) -> int:
        return len(self.datapipe)


@functional_datapipe("sharding_filter")
class ShardingFilter(IterDataPipe[Any]):
    """Every n-th sample, from the i-th on: `apply_sharding(n, i)` says which; else in a worker of a DataLoader those of
    this worker, and all elsewhere."""

    def __init__(self, source_datapipe: Any, sharding_group_filter: Any = None) -> None:
        self.source_datapipe = source_datapipe
        self._sharding: tuple[int, int] | None = None

    def is_shardable(self) -> bool:
        """True."""
        return True

    def apply_sharding(self, num_of_instances: int, instance_id: int, sharding_group: Any = None) -> None:
        """Says which samples are given. sharding_group: ignored. Raises ValueError unless instance_id is from 0 to
        below num_of_instances."""
        if not 0 <= instance_id < num_of_instances:
            raise ValueError(f"apply_sharding(): instance_id {instance_id} of {num_of_instances}")
        self._sharding = num_of_instances, instance_id

    def _shard(self) -> tuple[int, int]:
        if self._sharding is not None:
            return self._sharding
        worker = get_worker_info()
        return (1, 0) if worker is None else (worker.num_workers, worker.id)

    def __iter__(self) -> Iterator[Any]:
        count, own = self._shard()
        for i, sample in enumerate(self.source_datapipe):
            if i % count == own:
                yield sample

    def __len__(self) -> int:
        total, (count, own) = len(self.source_datapipe), self._shard()
        return total // count + (own < total % count)


@functional_datapipe("groupby")
class Grouper(IterDataPipe[Any]):
    """Lists of samples of which `group_key_fn` gives one key, of `group_size` at most; a pair of key and list if
    keep_key.

    Up to `buffer_size` samples are held; of more, the largest group is given, where it has `guaranteed_group_size` (the
    group_size unless given), or left out if drop_remaining; else RuntimeError is raised.
    """

    def __init__(
        self,
        datapipe: Any,
        group_key_fn: Callable[[Any], Hashable],
        *,
        keep_key: bool = False,
        buffer_size: int = 10000,
        group_size: int | None = None,
        guaranteed_group_size: int | None = None,
        drop_remaining: bool = False,
    ) -> None:
        self.datapipe, self.group_key_fn, self.keep_key = datapipe, group_key_fn, keep_key
        self.buffer_size, self.group_size, self.drop_remaining = buffer_size, group_size, drop_remaining
        self.guaranteed = group_size if guaranteed_group_size is None else guaranteed_group_size
        self.wrapper_class = DataChunk

    def _given(self, key: Any, group: list[Any]) -> Any:
        return (key, self.wrapper_class(group)) if self.keep_key else self.wrapper_class(group)

    def __iter__(self) -> Iterator[Any]:
        groups: dict[Any, list[Any]] = defaultdict(list)
        held = 0
        for sample in self.datapipe:
            key = self.group_key_fn(sample)
            groups[key].append(sample)
            held += 1
            if self.group_size is not None and len(groups[key]) == self.group_size:
                group = groups.pop(key)
                held -= len(group)
                yield self._given(key, group)
            if held == self.buffer_size:
                largest = max(groups, key=lambda k: len(groups[k]))
                group = groups.pop(largest)
                held -= len(group)
                if self.guaranteed is None or len(group) >= self.guaranteed:
                    yield self._given(largest, group)
                elif not self.drop_remaining:
                    raise RuntimeError(f"Grouper: no group has {self.guaranteed} of {self.buffer_size} samples")
        for key, group in groups.items():
            yield self._given(key, group)


from . import combinatorics as combinatorics  # noqa: E402  (which names a class of this module)
