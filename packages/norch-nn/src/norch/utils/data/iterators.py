"""What libraries with loaders of their own take of PyTorch's DataLoader: its kinds of datasets and its iterator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class _DatasetKind:
    """Whether a dataset is asked for samples by index, or gives them in an order of its own."""

    Map, Iterable = 0, 1


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
        dataset, collate = self._loader.dataset, self._loader.collate_fn
        if self._loader._dataset_kind == _DatasetKind.Map:
            for index in self._loader._index_sampler:
                yield collate([dataset[i] for i in index] if self._loader._auto_collation else dataset[index])
            return
        samples = iter(dataset)
        if not self._loader._auto_collation:
            yield from map(collate, samples)
            return
        for indices in self._loader._index_sampler:
            batch = [sample for _, sample in zip(indices, samples, strict=False)]
            if batch and (len(batch) == len(indices) or not self._loader.drop_last):
                yield collate(batch)
            if len(batch) < len(indices):
                return
