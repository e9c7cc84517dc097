"""The trainer: Ray Train's for data-parallel programs, with norch.distributed in its workers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from ray.train import DataConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from .backend import NorchConfig


def in_order() -> DataConfig:
    """Data sets are split evenly, and equally each time: without it a restarted run would see other batches."""
    from ray.data import DataContext

    options = copy.deepcopy(DataContext.get_current().execution_options)
    options.preserve_order = True
    return DataConfig(execution_options=options)


class NorchTrainer(DataParallelTrainer):  # type: ignore[misc]
    """Runs a function in each of several workers of a Ray cluster, as ray.train.torch.TorchTrainer does.

    train_loop_per_worker: the function, of no argument or of `train_loop_config`. norch.distributed is ready in it.
    scaling_config: a ray.train.ScalingConfig: how many workers, and what each has.
    run_config: a ray.train.RunConfig: where checkpoints go, and how often what died is restarted, as in
        RunConfig(failure_config=FailureConfig(max_failures=3)).
    norch_config: a NorchConfig: how the workers are connected.
    datasets: by name, data sets of Ray Data; `ray.train.get_dataset_shard(name)` is a worker's part.
    dataset_config: by default data sets are split in order, so that a worker's part is the same each time.

    `fit()` trains and returns a ray.train.Result. `norch.ray.report` and `norch.ray.resume` keep what a run that was
    interrupted needs in order to end with the same bits.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: dict[str, Any] | None = None,
        norch_config: NorchConfig | None = None,
        scaling_config: Any = None,
        run_config: Any = None,
        datasets: dict[str, Any] | None = None,
        dataset_config: DataConfig | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=norch_config or NorchConfig(),
            scaling_config=scaling_config,
            run_config=run_config,
            datasets=datasets,
            dataset_config=dataset_config or (in_order() if datasets else None),
            **kwargs,
        )
