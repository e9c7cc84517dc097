"""Communication hooks of DistributedDataParallel: how gradients are brought together instead of by a plain average."""

from enum import Enum, member
from functools import partial
from typing import Any

from . import default_hooks as default_hooks

default = default_hooks


class DDPCommHookType(Enum):
    """The hooks by name; `value` gives one as a function of what `register_comm_hook` takes."""

    ALLREDUCE = member(partial(default_hooks.allreduce_hook))
    FP16_COMPRESS = member(partial(default_hooks.fp16_compress_hook))
    BF16_COMPRESS = member(partial(default_hooks.bf16_compress_hook))


def register_ddp_comm_hook(comm_hook_type: DDPCommHookType, model: Any, state: Any = None) -> None:
    """`model.register_comm_hook(state, hook)` of a DistributedDataParallel with the hook of that name. state: the
    process group, by default the one of the model. Raises as that does."""
    model.register_comm_hook(state, comm_hook_type.value)
