"""What turns a program of one process into that of a worker."""

from __future__ import annotations

import os
from typing import Any

import ray

import norch
from norch import distributed, nn
from norch.utils.data import DataLoader


def get_device() -> norch.device:
    """This worker's device: the first GPU that Ray gave it, the CPU where it gave none."""
    given = [str(i) for i in ray.get_gpu_ids()]
    if not given:
        return norch.device("cpu")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return norch.device("cuda", visible.index(given[0]) if given[0] in visible else 0)


def prepare_model(model: nn.Module, move_to_device: Any = True, **kwargs: Any) -> nn.Module:
    """The model on this worker's device, or that given, in a DistributedDataParallel with `kwargs` where there are
    several workers."""
    if move_to_device:
        model = model.to(get_device() if move_to_device is True else move_to_device)
    if distributed.is_initialized() and distributed.get_world_size() > 1:
        from norch.distributed.data_parallel import DistributedDataParallel

        return DistributedDataParallel(model, **kwargs)
    return model


def prepare_data_loader(loader: DataLoader) -> DataLoader:
    """A loader of the same data set of which each worker sees its part: with a DistributedSampler, which shuffles where
    the loader did. `loader.sampler.set_epoch(epoch)` before each epoch gives it another order."""
    from norch.utils.data import IterableDataset, SequentialSampler
    from norch.utils.data.distributed import DistributedSampler

    alone = not distributed.is_initialized() or distributed.get_world_size() == 1
    if alone or isinstance(loader.dataset, IterableDataset) or isinstance(loader.sampler, DistributedSampler):
        return loader
    shuffle = not isinstance(loader.sampler, SequentialSampler)
    return DataLoader(
        loader.dataset,
        batch_size=loader.batch_size,
        sampler=DistributedSampler(loader.dataset, shuffle=shuffle),
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        drop_last=loader.drop_last,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=loader.generator,
        prefetch_factor=loader.prefetch_factor if loader.num_workers else None,
        persistent_workers=loader.persistent_workers,
        in_order=loader.in_order,
        seed=loader.seed,
        workers=loader.workers if loader.num_workers else None,
    )
