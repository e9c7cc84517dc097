"""A module around a module, whose activations are computed again in the backward pass or kept on the CPU; its state and
parameters have the names that they have without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import Any

import norch
from norch import nn
from norch.utils.checkpoint import checkpoint

from ...fsdp.wrap import parts_to_wrap

_WRAPPED = "_checkpoint_wrapped_module"
_PREFIX = f"{_WRAPPED}."


class CheckpointImpl(Enum):
    """Whether the second computation has a backward pass of its own: see `norch.utils.checkpoint.checkpoint`."""

    REENTRANT = auto()
    NO_REENTRANT = auto()


class ActivationWrapper(nn.Module):
    """A module around `mod`, which it passes attributes and indices on to."""

    def __init__(self, mod: nn.Module) -> None:
        super().__init__()
        self._checkpoint_wrapped_module = mod
        self.register_state_dict_post_hook(_without_prefix)
        self.register_load_state_dict_pre_hook(_with_prefix)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)  # type: ignore[misc]
        except AttributeError:
            if name == _WRAPPED:
                raise
            return getattr(self._checkpoint_wrapped_module, name)

    def __getitem__(self, key: Any) -> Any:
        return self._checkpoint_wrapped_module[key]  # type: ignore[index]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """To be written by the subclass. Raises ValueError."""
        raise ValueError("ActivationWrapper: a subclass has to define forward")

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, norch.nn.Parameter]]:
        """As `Module.named_parameters`, by the names without this wrapper."""
        for name, parameter in super().named_parameters(*args, **kwargs):
            yield name.replace(_PREFIX, ""), parameter


def _without_prefix(module: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
    for name in [n for n in state if n.startswith(f"{prefix}{_PREFIX}")]:
        state[f"{prefix}{name.removeprefix(f'{prefix}{_PREFIX}')}"] = state.pop(name)


def _with_prefix(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    for name in [n for n in state if n.startswith(prefix)]:
        state[f"{prefix}{_PREFIX}{name.removeprefix(prefix)}"] = state.pop(name)


class CheckpointWrapper(ActivationWrapper):
    """`mod`, run by `checkpoint`.

    checkpoint_impl: which kind. checkpoint_fn: a function called as `checkpoint_fn(mod, *args, **kwargs)` in its place,
    with checkpoint_fn_kwargs. Others are arguments of `checkpoint`.
    """

    def __init__(
        self,
        mod: nn.Module,
        checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
        checkpoint_fn: Callable[..., Any] | None = None,
        **checkpoint_fn_kwargs: Any,
    ) -> None:
        super().__init__(mod)
        self.checkpoint_impl = checkpoint_impl
        options = checkpoint_fn_kwargs
        if checkpoint_fn is None:
            options = {"use_reentrant": checkpoint_impl is CheckpointImpl.REENTRANT, **options}
        self._run, self._options = checkpoint_fn or checkpoint, options

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(self._checkpoint_wrapped_module, *args, **self._options, **kwargs)


class OffloadWrapper(ActivationWrapper):
    """`mod`, of which what ops save for their gradients is kept on the CPU: see `save_on_cpu`."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with norch.autograd.graph.save_on_cpu():
            return self._checkpoint_wrapped_module(*args, **kwargs)


def checkpoint_wrapper(
    module: nn.Module,
    checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
    checkpoint_fn: Callable[..., Any] | None = None,
    **checkpoint_fn_kwargs: Any,
) -> nn.Module:
    """A CheckpointWrapper of `module`, made of these arguments."""
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


def offload_wrapper(module: nn.Module) -> nn.Module:
    """An OffloadWrapper of `module`."""
    return OffloadWrapper(module)


def apply_activation_checkpointing(
    model: nn.Module,
    checkpoint_wrapper_fn: Callable[[nn.Module], nn.Module] = checkpoint_wrapper,
    check_fn: Callable[[nn.Module], bool] = lambda _: True,
    auto_wrap_policy: Callable[..., bool] | None = None,
) -> None:
    """Puts what `checkpoint_wrapper_fn` gives in the place of modules of `model`, those within first: of those that
    `check_fn` is true of, or, in its place, those that `auto_wrap_policy` (of `norch.distributed.fsdp.wrap`) names."""
    policy = auto_wrap_policy or (lambda module, recurse, nonwrapped_numel: recurse or check_fn(module))
    made: dict[nn.Module, nn.Module] = {}
    for parent, name, part in parts_to_wrap(model, policy):
        if part not in made:
            made[part] = checkpoint_wrapper_fn(part)
        setattr(parent, name, made[part])
