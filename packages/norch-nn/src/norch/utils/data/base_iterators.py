"""What loaders that are written after PyTorch's own, such as torchdata's StatefulDataLoader, take of it: the base of
iterators, what fetches samples, and what is sent between processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import norch

from .dataset import get_items
from .pinning import pinner
from .sampler import Sampler
from .worker import get_worker_info


class _MapDatasetFetcher:
    """Samples by index, collated. auto_collation: whether it is asked for the indices of a batch, or for one."""

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Callable[[Any], Any], drop_last: bool) -> None:
        self.dataset, self.collate_fn = dataset, collate_fn
        self.auto_collation, self.drop_last = auto_collation, drop_last

    def fetch(self, possibly_batched_index: Any) -> Any:
        if not self.auto_collation:
            return self.collate_fn(self.dataset[possibly_batched_index])
        return self.collate_fn(get_items(self.dataset, possibly_batched_index))


class _IterableDatasetFetcher(_MapDatasetFetcher):
    """The next samples of a dataset, as many as there are indices. ended: whether it has given its last."""

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Callable[[Any], Any], drop_last: bool) -> None:
        super().__init__(dataset, auto_collation, collate_fn, drop_last)
        self.dataset_iter, self.ended = iter(dataset), False

    def fetch(self, possibly_batched_index: Any) -> Any:
        if self.ended:
            raise StopIteration
        if not self.auto_collation:
            return self.collate_fn(next(self.dataset_iter))
        count = len(possibly_batched_index)
        batch = [sample for _, sample in zip(range(count), self.dataset_iter, strict=False)]
        self.ended = len(batch) < count
        if not batch or (self.ended and self.drop_last):
            raise StopIteration
        return self.collate_fn(batch)


class _DatasetKind:
    """Whether a dataset is asked for samples by index, or gives them in an order of its own."""

    Map, Iterable = 0, 1

    @staticmethod
    def create_fetcher(
        kind: int, dataset: Any, auto_collation: bool, collate_fn: Callable[[Any], Any], drop_last: bool
    ) -> Any:
        """What makes the batches of a dataset of that kind."""
        fetcher = _IterableDatasetFetcher if kind == _DatasetKind.Iterable else _MapDatasetFetcher
        return fetcher(dataset, auto_collation, collate_fn, drop_last)


class _InfiniteConstantSampler(Sampler[Any]):
    """None, again and again: the indices of a dataset that has none."""

    def __iter__(self) -> Iterator[None]:
        while True:
            yield None


class _BaseDataLoaderIter:
    """An iterator over a loader with PyTorch's attributes, whose subclasses have `_next_data`, which gives a batch."""

    def __init__(self, loader: Any) -> None:
        self._dataset, self._dataset_kind = loader.dataset, loader._dataset_kind
        self._IterableDataset_len_called = loader._IterableDataset_len_called
        self._auto_collation, self._drop_last = loader._auto_collation, loader.drop_last
        self._index_sampler, self._collate_fn = loader._index_sampler, loader.collate_fn
        self._num_workers, self._timeout = loader.num_workers, loader.timeout
        self._world_size, self._rank, self._pg = 1, 0, None
        self._shared_seed: int | None = None
        self._pin_memory = bool(loader.pin_memory and pinner(loader.pin_memory_device))
        self._pin_memory_device = (loader.pin_memory_device or "cuda") if self._pin_memory else None
        self._persistent_workers = getattr(loader, "persistent_workers", False)
        self._sampler_iter = iter(self._index_sampler)
        self._base_seed = self._drawn(loader)
        self._num_yielded = 0
        self._profile_name = f"enumerate(DataLoader)#{type(self).__name__}.__next__"

    @staticmethod
    def _drawn(loader: Any) -> int:
        return int(norch.randint(0, 2**63 - 1, (), generator=loader.generator, device="cpu"))

    def __iter__(self) -> Any:
        return self

    def __len__(self) -> int:
        return len(self._index_sampler)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        self._sampler_iter, self._num_yielded = iter(self._index_sampler), 0
        self._IterableDataset_len_called = loader._IterableDataset_len_called

    def _next_index(self) -> Any:
        return next(self._sampler_iter)

    def _next_data(self) -> Any:
        raise NotImplementedError("an iterator of a loader needs a method _next_data")

    def __next__(self) -> Any:
        if self._sampler_iter is None:
            self._reset(None)
        data = self._next_data()
        self._num_yielded += 1
        return data


def _sharding_worker_init_fn(
    worker_init_fn: Callable[[int], Any] | None, world_size: int, rank_id: int, worker_id: int
) -> None:
    """Has a data pipe give the samples of one worker of one process alone, and calls `worker_init_fn(worker_id)`."""
    info = get_worker_info()
    if info is not None and hasattr(info.dataset, "apply_sharding"):
        info.dataset.apply_sharding(world_size * info.num_workers, worker_id * world_size + rank_id)
    if worker_init_fn is not None:
        worker_init_fn(worker_id)


@dataclass(frozen=True)
class _IterableDatasetStopIteration:
    """Says that the dataset of a worker has given its last sample."""

    worker_id: int


@dataclass(frozen=True)
class _ResumeIteration:
    """Asks a worker for a new epoch."""

    seed: int | None = None


class ManagerWatchdog:
    """Whether the process that has started this one runs."""

    def __init__(self) -> None:
        self.manager_pid = os.getppid()

    def is_alive(self) -> bool:
        return os.getppid() == self.manager_pid
