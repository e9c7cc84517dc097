"""FullyShardedDataParallel: `fully_shard` in the form of a module around a module."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import norch
from norch import nn

from .fully_shard import FSDPModule, fully_shard
from .options import CPUOffload, FullStateDictConfig, MixedPrecision, ShardingStrategy, StateDictType
from .policy import MixedPrecisionPolicy
from .wrap import parts_to_wrap


class FullyShardedDataParallel(nn.Module):
    """`module`, fully sharded; see `fully_shard`. Its state dict has the names that `module` has.

    auto_wrap_policy: which modules are blocks, as `partial(transformer_auto_wrap_policy,
        transformer_layer_cls={Block})` or ModuleWrapPolicy({Block}): it is called as `policy(module=..., recurse=False,
        nonwrapped_numel=...)`.
    mixed_precision: MixedPrecision or MixedPrecisionPolicy. sharding_strategy: FULL_SHARD or SHARD_GRAD_OP.
    Arguments that are about how, such as prefetching, are accepted and change nothing; `cpu_offload` is not
    supported. process_group: among whom. ignored_modules: whose parameters stay whole. device_id: where `module` is
    moved to first. backward_prefetch: changes nothing.
    """

    def __init__(
        self,
        module: nn.Module,
        process_group: Any = None,
        sharding_strategy: ShardingStrategy | None = None,
        cpu_offload: CPUOffload | bool | None = None,
        auto_wrap_policy: Callable[..., bool] | None = None,
        backward_prefetch: Any = None,
        mixed_precision: MixedPrecision | MixedPrecisionPolicy | None = None,
        ignored_modules: Iterable[nn.Module] = (),
        device_id: Any = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if cpu_offload and getattr(cpu_offload, "offload_params", True):
            raise NotImplementedError("FullyShardedDataParallel: there is no cpu_offload")
        if sharding_strategy not in (None, ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP):
            raise NotImplementedError(
                f"FullyShardedDataParallel: there is no {sharding_strategy}; take FULL_SHARD or SHARD_GRAD_OP, or "
                "DistributedDataParallel to shard nothing"
            )
        if device_id is not None:
            module.to(device_id if not isinstance(device_id, int) else f"cuda:{device_id}")
        ignored = [p for part in ignored_modules or () for p in part.parameters()]
        if isinstance(mixed_precision, MixedPrecision):
            if mixed_precision.buffer_dtype is not None:
                for part in module.modules():
                    for name, buffer in part.named_buffers(recurse=False):
                        if buffer.is_floating_point():
                            part._buffers[name] = buffer.to(mixed_precision.buffer_dtype)
            mixed_precision = mixed_precision.policy()
        shard = partial(
            fully_shard,
            mesh=process_group,
            reshard_after_forward=False if sharding_strategy is ShardingStrategy.SHARD_GRAD_OP else None,
            mp_policy=mixed_precision,
            ignored_params=ignored,
        )
        self._whole: FullStateDictConfig | None = None
        if auto_wrap_policy is not None:
            for _, _, part in parts_to_wrap(module, auto_wrap_policy):
                if not isinstance(part, FSDPModule):
                    shard(part)
        self.module = shard(module)
        self.register_state_dict_post_hook(_rename_or_gather)
        self.register_load_state_dict_pre_hook(lambda _, state, prefix, *__: _rename(state, prefix, f"{prefix}module."))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        if name in own:
            return own[name]
        if "module" not in own:  # while it is being made
            raise AttributeError(name)
        return getattr(own["module"], name)

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> norch.Tensor:
        """`nn.utils.clip_grad_norm_` of all parameters."""
        return nn.utils.clip_grad_norm_(self.parameters(), max_norm, norm_type)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes in the block keep their gradients, for the first after it to reduce."""
        self.module.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self.module.set_requires_gradient_sync(True)

    @staticmethod
    @contextmanager
    def state_dict_type(
        module: nn.Module, state_dict_type: StateDictType, state_dict_config: Any = None, *_: Any
    ) -> Iterator[None]:
        """In the block `state_dict()` gives whole tensors where FULL_STATE_DICT asks for them: all ranks call it.

        state_dict_type: that; state_dict_config: ignored.
        """
        parts = [part for part in module.modules() if isinstance(part, FullyShardedDataParallel)]
        before = [part._whole for part in parts]
        is_full = state_dict_type is StateDictType.FULL_STATE_DICT
        for part in parts:
            part._whole = (state_dict_config or FullStateDictConfig()) if is_full else None
        try:
            yield
        finally:
            for part, value in zip(parts, before, strict=True):
                part._whole = value

    @staticmethod
    def summon_full_params(module: nn.Module, recurse: bool = True, writeback: bool = True, **options: Any) -> Any:
        """See `summon_full_params` of this module. writeback: whether changes are kept."""
        return summon_full_params(module, recurse, writeback)


def _rename(state: dict[str, Any], old: str, new: str) -> None:
    """The names in a state dict that begin with `old`, beginning with `new` instead, in their order."""
    for name in list(state):
        value = state.pop(name)
        state[new + name.removeprefix(old) if name.startswith(old) else name] = value


def _rename_or_gather(module: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
    _rename(state, f"{prefix}module.", prefix)
    how = module._whole
    if how is None:
        return
    for name, value in list(state.items()):
        if isinstance(value, norch.Tensor):
            whole = value.shard.gather(value) if hasattr(value, "shard") else value
            state[name] = whole.cpu() if how.offload_to_cpu else whole
    if how.rank0_only and module.module._fsdp.flats[0].group.rank() != 0:
        state.clear()


@contextmanager
def summon_full_params(module: nn.Module, recurse: bool = True, writeback: bool = True) -> Iterator[None]:
    """In the block the parameters of `module`, and with `recurse` of those below it, are whole: to look at, or, with
    `writeback`, to set, as `reset_parameters` does. What rank 0 has set counts. All ranks come here."""
    parts = [m for m in (module.modules() if recurse else [module]) if isinstance(m, FSDPModule)]
    for part in parts:
        part.unshard()
    try:
        yield
        if writeback:
            for part in parts:
                for flat in part._fsdp.flats:
                    flat.take_over([full.detach() for full in flat.fulls])
    finally:
        for part in parts:
            part.reshard()
