"""A GradScaler for models of which each rank has a part."""

from __future__ import annotations

from typing import Any

import norch

from .. import collectives


class ShardedGradScaler(norch.amp.GradScaler):
    """A GradScaler whose steps are left out on all ranks of a group as soon as one has a gradient that is not finite.

    For ranks that have different parameters, as those of pipelines and of tensor parallel layers have.
    DistributedDataParallel and `fully_shard` need no more than a GradScaler.
    """

    def __init__(
        self,
        device: Any = "cuda",
        init_scale: float = 2.0**16,
        backoff_factor: float = 0.5,
        growth_factor: float = 2.0,
        growth_interval: int = 2000,
        enabled: bool = True,
        process_group: Any = None,
    ) -> None:
        super().__init__(device, init_scale, growth_factor, backoff_factor, growth_interval, enabled)
        self.process_group = process_group

    def _everywhere(self, optimizer: Any, finite: norch.Tensor | None) -> norch.Tensor | None:
        kind = self._device if finite is None else finite.device
        flag = norch.ones((), dtype=norch.int32, device=kind) if finite is None else finite.to(norch.int32)
        collectives.all_reduce(flag, "min", self.process_group)
        return flag
