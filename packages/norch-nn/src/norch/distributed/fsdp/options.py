"""What FullyShardedDataParallel is told, by PyTorch's names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

import norch

from .policy import MixedPrecisionPolicy


class ShardingStrategy(Enum):
    """FULL_SHARD frees parameters between forward and backward pass, SHARD_GRAD_OP keeps them until after it."""

    FULL_SHARD = auto()
    SHARD_GRAD_OP = auto()
    NO_SHARD = auto()
    HYBRID_SHARD = auto()


class BackwardPrefetch(Enum):
    """Accepted, and changes nothing: parameters are always gathered ahead of the block that needs them."""

    BACKWARD_PRE = auto()
    BACKWARD_POST = auto()


class StateDictType(Enum):
    """Whether a state dict has whole tensors or this rank's shards."""

    FULL_STATE_DICT = auto()
    LOCAL_STATE_DICT = auto()
    SHARDED_STATE_DICT = auto()


@dataclass
class FullStateDictConfig:
    """offload_to_cpu: whole tensors are on the CPU. rank0_only: ranks but 0 get an empty dict."""

    offload_to_cpu: bool = False
    rank0_only: bool = False


@dataclass
class CPUOffload:
    """offload_params must be False."""

    offload_params: bool = False


@dataclass
class MixedPrecision:
    """As MixedPrecisionPolicy. buffer_dtype: what buffers are cast to, once.

    cast_root_forward_inputs: whether the inputs are cast. keep_low_precision_grads: ignored.
    """

    param_dtype: norch.DType | None = None
    reduce_dtype: norch.DType | None = None
    buffer_dtype: norch.DType | None = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = True
    cast_root_forward_inputs: bool = True

    def policy(self) -> MixedPrecisionPolicy:
        """The same as a MixedPrecisionPolicy."""
        return MixedPrecisionPolicy(
            self.param_dtype, self.reduce_dtype, cast_forward_inputs=self.cast_root_forward_inputs
        )
