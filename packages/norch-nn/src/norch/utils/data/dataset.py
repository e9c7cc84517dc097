"""Datasets: what has samples, and ways to combine and split them."""

from __future__ import annotations

import bisect
import itertools
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

import norch

T_co = TypeVar("T_co", covariant=True)


class Dataset(Generic[T_co]):
    """Samples found by index: define `__getitem__(index)` and `__len__()`.

    A dataset with `__getitems__(indices)` gets the indices of a whole batch at once, and returns a list of samples.
    """

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__(index)")

    def __add__(self, other: Dataset[Any]) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co]):
    """Samples that come one after another: define `__iter__()`.

    Each worker of a DataLoader iterates over its own shallow copy; `get_worker_info()` tells it which part is its own.
    With `state_dict()` and `load_state_dict(state)`, of the dataset or of its iterator, a loader resumes without
    reading again what it had delivered: the state, asked for after a sample, is that from which the next one follows.
    """

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__()")

    def __add__(self, other: Dataset[Any]) -> Any:
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[norch.Tensor, ...]]):
    """Sample i is the tuple of `tensor[i]` of each tensor. Raises ShapeError unless all have as many rows, ValueError
    for none.
    """

    def __init__(self, *tensors: norch.Tensor) -> None:
        if not tensors:
            raise ValueError("TensorDataset: needs at least one tensor")
        if any(not t.ndim or t.shape[0] != tensors[0].shape[0] for t in tensors if tensors[0].ndim) or any(
            not t.ndim for t in tensors
        ):
            shapes = ", ".join(str(tuple(t.shape)) for t in tensors)
            raise norch.ShapeError(f"TensorDataset: the tensors must have the same size in dim 0, got shapes {shapes}")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[norch.Tensor, ...]:
        return tuple([t[index] for t in self.tensors])

    def __len__(self) -> int:
        return self.tensors[0].shape[0]

    def _gather(self, indices: Sequence[int]) -> list[norch.Tensor]:
        rows = norch.as_tensor(np.asarray(indices, np.int64), device=self.tensors[0].device)
        return [t[rows if t.device is rows.device else rows.to(t.device)] for t in self.tensors]


class StackDataset(Dataset[Any]):
    """Sample i is the tuple, or with keyword arguments the dict, of `dataset[i]` of each dataset.

    Raises ValueError for none, for both kinds, and for lengths that differ.
    """

    def __init__(self, *args: Dataset[Any], **kwargs: Dataset[Any]) -> None:
        if bool(args) == bool(kwargs):
            raise ValueError("StackDataset: give datasets either as arguments or as keyword arguments")
        self.datasets: tuple[Any, ...] | dict[str, Any] = args or kwargs
        lengths = [len(d) for d in self._parts()]
        if len(set(lengths)) > 1:
            raise ValueError(f"StackDataset: the datasets differ in length: {lengths}")
        self._length = lengths[0]

    def _parts(self) -> list[Any]:
        return list(self.datasets.values() if isinstance(self.datasets, dict) else self.datasets)

    def _joined(self, parts: Iterable[Any]) -> Any:
        return dict(zip(self.datasets, parts)) if isinstance(self.datasets, dict) else tuple(parts)

    def __getitem__(self, index: Any) -> Any:
        return self._joined([d[index] for d in self._parts()])

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        columns = [get_items(d, indices) for d in self._parts()]
        for column in columns:
            if len(column) != len(indices):
                raise ValueError(
                    f"StackDataset: __getitems__ gave {len(column)} samples for {len(indices)} indices; one each is due"
                )
        return [self._joined(row) for row in zip(*columns)]

    def __len__(self) -> int:
        return self._length


class Subset(Dataset[T_co]):
    """The samples of `dataset` at `indices`."""

    def __init__(self, dataset: Dataset[T_co], indices: Sequence[Any]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: list[Any]) -> list[T_co]:
        return get_items(self.dataset, [self.indices[i] for i in indices])

    def __len__(self) -> int:
        return len(self.indices)

    def _gather(self, indices: Sequence[int]) -> Any:
        gather = gatherer(self.dataset)
        assert gather is not None
        return gather([self.indices[i] for i in indices])


class ConcatDataset(Dataset[Any]):
    """The samples of several datasets, one dataset after another. Raises ValueError for none, and iterable ones."""

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError("ConcatDataset: needs at least one dataset")
        for d in self.datasets:
            if isinstance(d, IterableDataset):
                raise ValueError("ConcatDataset: an IterableDataset has no indices; use ChainDataset")
        self.cumulative_sizes = self.cumsum(self.datasets)

    @staticmethod
    def cumsum(sequence: Iterable[Any]) -> list[int]:
        """The lengths of a `sequence` of datasets, each added to those before it."""
        return list(itertools.accumulate(len(d) for d in sequence))

    def __getitem__(self, index: int) -> Any:
        at = index + len(self) if index < 0 else index
        if at < 0:
            raise ValueError(f"ConcatDataset: index {index} is out of range for {len(self)} samples")
        which = bisect.bisect_right(self.cumulative_sizes, at)
        if which == len(self.datasets):
            raise norch.IndexError(f"ConcatDataset: index {index} is out of range for {len(self)} samples")
        return self.datasets[which][at - (self.cumulative_sizes[which - 1] if which else 0)]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]


class ChainDataset(IterableDataset[Any]):
    """The samples of several iterable datasets, one dataset after another."""

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        self.datasets = datasets

    def __iter__(self) -> Iterator[Any]:
        for d in self.datasets:
            if not isinstance(d, IterableDataset):
                raise TypeError(f"ChainDataset: only takes IterableDataset, got {type(d).__name__}")
            yield from d

    def __len__(self) -> int:
        return sum(len(d) for d in self.datasets)  # type: ignore[arg-type, misc]


def random_split(
    dataset: Dataset[T_co],
    lengths: Sequence[float],
    generator: norch.Generator | None = None,
    *,
    seed: int | None = None,
) -> list[Subset[T_co]]:
    """`dataset` in random parts without overlap: of these lengths, or of these fractions, which add up to 1.

    What rounding down leaves of fractions goes to the first parts, one each. The order comes from `generator`, or from
    `seed`, else from norch's default generator. Raises ValueError for lengths that do not add up.
    """
    if generator is not None and seed is not None:
        raise ValueError("random_split(): give a generator or a seed, not both")
    total = len(dataset)  # type: ignore[arg-type]
    sizes = list(lengths)
    if math.isclose(sum(sizes), 1):
        for i, fraction in enumerate(sizes):
            if not 0 <= fraction <= 1:
                raise ValueError(f"random_split(): fraction {fraction} at position {i} is not between 0 and 1")
        sizes = [math.floor(total * fraction) for fraction in sizes]
        for i in range(int(total - sum(sizes))):
            sizes[i % len(sizes)] += 1
        for i, size in enumerate(sizes):
            if not size:
                warnings.warn(f"random_split(): the part at position {i} is empty", stacklevel=2)
    if sum(sizes) != total or not _whole(sizes):
        raise ValueError(f"random_split(): lengths {list(lengths)} do not add up to the {total} samples of the dataset")
    if seed is not None:
        generator = norch.Generator().manual_seed(seed)
    order = norch.randperm(total, generator=generator, device="cpu").tolist()
    ends = itertools.accumulate(int(s) for s in sizes)
    return [Subset(dataset, order[end - int(size) : end]) for end, size in zip(ends, sizes)]


def _whole(sizes: Sequence[float]) -> bool:
    return all(size == int(size) and size >= 0 for size in sizes)


# --- Whole batches ---------------------------------------------------------------------------------------------------


def loads_batches(dataset: Any) -> bool:
    """Whether `__getitems__` of a dataset does more than to call `__getitem__` for each index.

    That of Subset and of StackDataset is as good as those of the datasets below. Where one of these loads sample by
    sample, a loader does so too, since it then can key each sample's randomness by its index.
    """
    kind = type(dataset)
    if getattr(kind, "__getitems__", None) is Subset.__getitems__ and kind.__getitem__ is Subset.__getitem__:
        return loads_batches(dataset.dataset)
    if getattr(kind, "__getitems__", None) is StackDataset.__getitems__:
        return all(loads_batches(d) for d in dataset._parts())
    return callable(getattr(dataset, "__getitems__", None))


def get_items(dataset: Any, indices: list[Any]) -> list[Any]:
    """The samples at `indices`, in one call where the dataset has `__getitems__`."""
    found = getattr(dataset, "__getitems__", None)
    return [dataset[i] for i in indices] if found is None else found(indices)


def gatherer(dataset: Any) -> Any:
    """The method that makes a whole collated batch of indices, where a dataset is tensors and nothing else; or None."""
    kind = type(dataset)
    if isinstance(dataset, TensorDataset) and kind.__getitem__ is TensorDataset.__getitem__:
        return None if hasattr(dataset, "__getitems__") else dataset._gather
    if isinstance(dataset, Subset) and kind.__getitem__ is Subset.__getitem__:
        same = kind.__getitems__ is Subset.__getitems__
        return dataset._gather if same and gatherer(dataset.dataset) is not None else None
    return None
