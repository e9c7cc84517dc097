"""Parameters, gradients and optimiser states shared out among ranks (ZeRO-3): `fully_shard`.

    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = norch.optim.AdamW(model.parameters())   # after it: these are the shards

The parameters of a block, laid flat one after the other, are cut into equal parts, one for each rank
(`norch.distributed.shard`). Before the block's forward pass all ranks' parts are gathered, after it they are freed; the
backward pass gathers them again, and averages the gradients into the parts as soon as the block is through.

How the graph gets along with memory that comes and goes: a node saves the *tensor* of a parameter, so the same tensor
objects stand in the modules for good, and gathering and freeing give them other memory (`tensor.data = ...`): in
between that of the meta device, on which any op raises, so that a use at the wrong time is an error and no wrong
number. Views of parameters that nodes saved are looked up in the block's part of the graph and treated alike. A view
that is not found there keeps its memory alive until the backward pass: that costs memory, and the result is right. No
backend needs anything for it, and nothing is computed twice.
"""

from __future__ import annotations

import norch

from .fully_shard import FSDPModule, fully_shard, register_fsdp_forward_method
from .options import (
    BackwardPrefetch,
    CPUOffload,
    FullStateDictConfig,
    MixedPrecision,
    ShardingStrategy,
    StateDictType,
)
from .policy import MixedPrecisionPolicy, OffloadPolicy
from .wrapper import FullyShardedDataParallel, summon_full_params

__all__ = [
    "BackwardPrefetch",
    "CPUOffload",
    "FSDPModule",
    "FullStateDictConfig",
    "FullyShardedDataParallel",
    "MixedPrecision",
    "MixedPrecisionPolicy",
    "OffloadPolicy",
    "ShardingStrategy",
    "StateDictType",
    "fully_shard",
    "register_fsdp_forward_method",
    "summon_full_params",
]

__getattr__ = norch.late_submodules(__name__)
