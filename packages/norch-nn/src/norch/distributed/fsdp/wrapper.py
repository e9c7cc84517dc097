"""FullyShardedDataParallel: `fully_shard` in the form of a module around a module."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import norch
from norch import nn

from .fully_shard import FSDPModule, fully_shard
from .policy import MixedPrecisionPolicy


class FullyShardedDataParallel(nn.Module):
    """`module`, fully sharded; see `fully_shard`. Its state dict has the names that `module` has.

    auto_wrap_policy: which modules are blocks, as `partial(transformer_auto_wrap_policy,
        transformer_layer_cls={Block})` or ModuleWrapPolicy({Block}): it is called as `policy(module=..., recurse=False,
        nonwrapped_numel=...)`.
    mixed_precision: a MixedPrecisionPolicy. The rest is PyTorch's: arguments that are about how, such as
        prefetching, are accepted and change nothing; `cpu_offload` is not supported, and the only sharding strategy is
        that of shards among all.
    """

    def __init__(
        self,
        module: nn.Module,
        process_group: Any = None,
        sharding_strategy: Any = None,
        cpu_offload: Any = None,
        auto_wrap_policy: Callable[..., bool] | None = None,
        backward_prefetch: Any = None,
        mixed_precision: MixedPrecisionPolicy | None = None,
        ignored_modules: Iterable[nn.Module] = (),
        device_id: Any = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if cpu_offload:
            raise NotImplementedError("FullyShardedDataParallel: there is no cpu_offload")
        if device_id is not None:
            module.to(device_id if not isinstance(device_id, int) else f"cuda:{device_id}")
        ignored = [p for part in ignored_modules or () for p in part.parameters()]
        shard = partial(fully_shard, mesh=process_group, mp_policy=mixed_precision, ignored_params=ignored)
        if auto_wrap_policy is not None:
            for part in reversed(list(module.modules())[1:]):
                size = sum(p.numel() for p in part.parameters() if not hasattr(p, "shard"))
                if auto_wrap_policy(module=part, recurse=False, nonwrapped_numel=size):
                    shard(part)
        self.module = shard(module)
        self.register_state_dict_post_hook(lambda _, state, prefix, __: _rename(state, f"{prefix}module.", prefix))
        self.register_load_state_dict_pre_hook(lambda _, state, prefix, *__: _rename(state, prefix, f"{prefix}module."))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

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
    def summon_full_params(module: nn.Module, recurse: bool = True, writeback: bool = True, **options: Any) -> Any:
        """See `summon_full_params` of this module."""
        return summon_full_params(module, recurse, writeback)


def _rename(state: dict[str, Any], old: str, new: str) -> None:
    """The names in a state dict that begin with `old`, beginning with `new` instead, in their order."""
    for name in list(state):
        value = state.pop(name)
        state[new + name.removeprefix(old) if name.startswith(old) else name] = value


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
