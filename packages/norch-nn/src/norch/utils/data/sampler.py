"""Samplers: which indices an epoch has, and in which order.

Those that draw take numbers from their `generator`, if they have one. Else they take a seed from norch's default
generator, for which a DataLoader gives them one keyed by (seed, epoch).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

import numpy as np

import norch

T_co = TypeVar("T_co", covariant=True)
_CHUNK = 1 << 16


class Sampler(Generic[T_co]):
    """Base of samplers: define `__iter__`, which gives indices or lists of them, and `__len__` where it is known.

    data_source: ignored, as in PyTorch.
    """

    def __init__(self, data_source: Sized | None = None) -> None:
        pass

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__()")


class SequentialSampler(Sampler[int]):
    """0, 1, 2, … up to the last sample of `data_source`."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """All indices of `data_source` in random order; with `replacement`, `num_samples` drawn independently.

    Without replacement `num_samples` may also be less or more than there are samples: it cuts the order off, or more
    orders follow. Raises TypeError unless `replacement` is a bool, ValueError for a count below 1.
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: norch.Generator | None = None,
    ) -> None:
        if not isinstance(replacement, bool):
            raise TypeError(f"RandomSampler: replacement must be a bool, got {replacement!r}")
        _check_count("RandomSampler", num_samples, none=True)
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        if not len(data_source) and num_samples is None and replacement:
            raise ValueError("RandomSampler: there are no samples to draw from")

    @property
    def num_samples(self) -> int:
        """How many indices an epoch has."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        total, left = len(self.data_source), self.num_samples
        generator = _source(self.generator)
        if not total and left:
            raise ValueError(f"RandomSampler: {left} indices wanted of no samples")
        while left > 0:
            if self.replacement:
                drawn = norch.randint(0, total, (min(left, _CHUNK),), generator=generator, device="cpu")
            else:
                drawn = norch.randperm(total, generator=generator, device="cpu")[:left]
            left -= drawn.shape[0]
            yield from drawn.tolist()

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given indices in random order."""

    def __init__(self, indices: Sequence[int], generator: norch.Generator | None = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        order = norch.randperm(len(self.indices), generator=_source(self.generator), device="cpu").tolist()
        return (self.indices[i] for i in order)

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """`num_samples` indices drawn with probabilities proportional to `weights`, with replacement or without.

    Without replacement by the order of exponential variables whose rates are the weights (Efraimidis and Spirakis,
    2006). Raises ValueError for weights that are not probabilities, and for more indices than there are to be drawn.
    TypeError unless `replacement` is a bool.
    """

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: norch.Generator | None = None,
    ) -> None:
        _check_count("WeightedRandomSampler", num_samples)
        if not isinstance(replacement, bool):
            raise TypeError(f"WeightedRandomSampler: replacement must be a bool, got {replacement!r}")
        self.weights = norch.as_tensor(weights, dtype=norch.float64, device="cpu")
        if self.weights.ndim != 1:
            raise ValueError(f"WeightedRandomSampler: weights must be 1-D, got shape {tuple(self.weights.shape)}")
        values = self.weights.numpy()
        if not values.size or not np.isfinite(values).all() or (values < 0).any() or not values.sum() > 0:
            raise ValueError("WeightedRandomSampler: weights must be finite, not negative, and not all zero")
        if not replacement and num_samples > np.count_nonzero(values):
            raise ValueError(
                f"WeightedRandomSampler: {num_samples} indices without replacement, but only "
                f"{np.count_nonzero(values)} have a weight above 0"
            )
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        generator, weights = _source(self.generator), self.weights.numpy()
        count = self.num_samples if self.replacement else len(weights)
        uniform = norch.rand(count, generator=generator, dtype=norch.float64, device="cpu").numpy()
        if self.replacement:
            ends = np.cumsum(weights)
            drawn = np.searchsorted(ends, uniform * ends[-1], side="right")
            last = int(np.flatnonzero(weights)[-1])  # where rounding leads beyond the end
            return iter(np.minimum(drawn, last).tolist())
        with np.errstate(divide="ignore"):
            waits = -np.log1p(-uniform) / weights
        waits[weights == 0] = np.inf
        return iter(np.argsort(waits, kind="stable")[: self.num_samples].tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[Any]]):
    """The indices of `sampler` in lists of `batch_size`; the last may be shorter, and is left out if `drop_last`.

    Raises ValueError for a `batch_size` below 1, and unless `drop_last` is a bool.
    """

    def __init__(self, sampler: Iterable[Any], batch_size: int, drop_last: bool) -> None:
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size <= 0:
            raise ValueError(f"BatchSampler: batch_size must be an int above 0, got {batch_size!r}")
        if not isinstance(drop_last, bool):
            raise ValueError(f"BatchSampler: drop_last must be a bool, got {drop_last!r}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[Any]]:
        indices, size = iter(self.sampler), self.batch_size
        while batch := list(itertools.islice(indices, size)):
            if len(batch) == size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        count = len(self.sampler)  # type: ignore[arg-type]
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


def _source(generator: norch.Generator | None) -> norch.Generator:
    if generator is not None:
        return generator
    return norch.Generator().manual_seed(int(norch.randint(0, 2**63 - 1, (), device="cpu")))


def _check_count(name: str, count: Any, none: bool = False) -> None:
    if none and count is None:
        return
    if isinstance(count, bool) or not isinstance(count, int) or count <= 0:
        raise ValueError(f"{name}: num_samples must be an int above 0, got {count!r}")
