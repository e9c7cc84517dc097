"""Training where some processes have fewer batches: those that are through take part in what the others do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import norch
import norch.distributed as dist

from .replicas import broadcast_all

if TYPE_CHECKING:
    from .model import DistributedDataParallel


class Uneven:
    """What the processes tell each other before each forward pass: who has a batch, and whether gradients are averaged.

    by_active: averages are those of the processes that have a batch, not of all.
    """

    def __init__(self, model: DistributedDataParallel, by_active: bool, throw: bool) -> None:
        self.model, self.throw, self.group = model, throw, model.process_group
        self.active = list(range(self.group.size()))
        reducer = model.reducer
        reducer.rebuilt = True  # in which order is settled by processes that have a batch; all might not have
        if by_active:
            reducer.weight = lambda: len(self.active)

    @property
    def source(self) -> int:
        """Whose buffers all others take: as in PyTorch the last member that has a batch."""
        return self.active[-1]

    def tell(self, has_batch: bool) -> bool:
        """Tells whether this process has a batch. Returns whether those that have one average gradients."""
        size = self.group.size()
        kind = "cpu" if "cpu" in self.group.engines else str(self.model.device)
        told = norch.zeros(size + 1, dtype=norch.int32)
        if has_batch:
            told[self.group.member] = 1
            told[size] = int(norch.is_grad_enabled() and self.model.require_backward_grad_sync)
        told = told.to(kind)
        dist.all_reduce(told, group=self.group)
        *flags, averaging = told.tolist()
        active = [member for member, flag in enumerate(flags) if flag]
        self.active = active or self.active
        if self.throw and len(active) < size:
            gone = [self.group.ranks[member] for member, flag in enumerate(flags) if not flag]
            raise RuntimeError(f"Detected at least one rank that exhausted inputs: {gone}. Throwing across all ranks.")
        self.over = not active
        return bool(averaging)

    def follow(self) -> None:
        """Does its part in the collectives of the others, until no process has a batch."""
        model, reducer = self.model, self.model.reducer
        while True:
            averaging = self.tell(False)
            if self.over:
                break
            if model.will_sync_module_buffers():
                broadcast_all(model._synced_buffers(), self.group, self.source)
            if averaging:
                reducer.follow()
            model.require_forward_param_sync = averaging
        broadcast_all([*model.parameters(), *model._synced_buffers()], self.group, self.source)

    def end(self) -> None:
        self.model.reducer.weight = None
