"""DistributedSampler: each process of a group has its part of the samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sized
from typing import TypeVar

import norch

from .sampler import Sampler

T_co = TypeVar("T_co", covariant=True)


class DistributedSampler(Sampler[T_co]):
    """Every `num_replicas`-th index, from `rank` on, of 0, 1, 2, … to the last of `dataset`, or with `shuffle` of a
    random order.

    The order is keyed by `seed` and the epoch: call `set_epoch(epoch)` before each, or all have the same one. All
    processes get equally many: the first indices come again at the end, or with `drop_last` the last are left out.
    num_replicas, rank: by default those of the processes. Raises ValueError for a rank that there is not.
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None or rank is None:
            dist = norch.distributed  # imported here and not before
            num_replicas = dist.get_world_size() if num_replicas is None else num_replicas
            rank = dist.get_rank() if rank is None else rank
        if not 0 <= rank < num_replicas:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.shuffle, self.seed, self.drop_last = shuffle, seed, drop_last
        self.epoch = 0
        count = len(dataset)
        self.num_samples = count // num_replicas if drop_last else math.ceil(count / num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[T_co]:
        count, total = len(self.dataset), self.total_size
        if self.shuffle:
            generator = norch.Generator().manual_seed(self.seed + self.epoch)
            indices = norch.randperm(count, generator=generator, device="cpu").tolist()
        else:
            indices = list(range(count))
        if not self.drop_last and indices:
            indices = (indices * math.ceil(total / count))[:total]
        return iter(indices[self.rank : total : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Chooses the order of the next iteration."""
        self.epoch = epoch
