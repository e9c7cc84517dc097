"""The iterators of PyTorch's DataLoader, which libraries with loaders of their own make."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing import get_context
from typing import Any

from .base_iterators import _DatasetKind, _InfiniteConstantSampler
from .loader import DataLoader


class _SingleProcessDataLoaderIter:
    """The batches of a loader with PyTorch's attributes, made in this process."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._batches = self._iterate()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._batches)

    def _iterate(self) -> Iterator[Any]:
        loader = self._loader
        kind, in_batches = loader._dataset_kind, loader._auto_collation
        fetcher = _DatasetKind.create_fetcher(kind, loader.dataset, in_batches, loader.collate_fn, loader.drop_last)
        samples_alone = kind == _DatasetKind.Iterable and not in_batches
        for index in _InfiniteConstantSampler() if samples_alone else loader._index_sampler:
            try:
                batch = fetcher.fetch(index)
            except StopIteration:
                return
            yield batch


class _Processes(DataLoader[Any]):
    """A loader with the attributes of another that has PyTorch's names. Its workers are processes, as PyTorch's are."""

    def __init__(self, other: Any) -> None:
        self._kind = other._dataset_kind
        order: dict[str, Any] = {"batch_size": None}
        if self._kind == _DatasetKind.Map:
            order = {"batch_sampler": other._index_sampler} if other._auto_collation else order
            if not other._auto_collation:
                order["sampler"] = other._index_sampler
        elif other._auto_collation:
            order = {"batch_size": other.batch_size, "drop_last": other.drop_last}
        super().__init__(
            other.dataset,
            num_workers=other.num_workers,
            collate_fn=other.collate_fn,
            pin_memory=other.pin_memory,
            timeout=other.timeout,
            worker_init_fn=other.worker_init_fn,
            multiprocessing_context=other.multiprocessing_context or get_context(),
            generator=other.generator,
            prefetch_factor=other.prefetch_factor,
            pin_memory_device=other.pin_memory_device,
            **order,
        )

    @property
    def _iterable(self) -> bool:
        return bool(self._kind == _DatasetKind.Iterable)


class _MultiProcessingDataLoaderIter:
    """The batches of a loader with PyTorch's attributes, made by `num_workers` processes."""

    def __init__(self, loader: Any) -> None:
        self._batches = iter(_Processes(loader))

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._batches)
