"""Which modules of a model are blocks of FullyShardedDataParallel, or are wrapped otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from norch import nn


class ModuleWrapPolicy:
    """Says of modules of certain classes that they are blocks."""

    def __init__(self, module_classes: Iterable[type[nn.Module]]) -> None:
        self.classes = tuple(module_classes)

    def __call__(self, module: nn.Module, recurse: bool = False, nonwrapped_numel: int = 0) -> bool:
        return recurse or isinstance(module, self.classes)


class CustomPolicy:
    """Says of modules that they are blocks where `lambda_fn(module)` is true, or a dict: of options, which are those
    of the others here."""

    def __init__(self, lambda_fn: Callable[[nn.Module], bool | dict[str, Any]]) -> None:
        self.chosen = lambda_fn

    def __call__(self, module: nn.Module, recurse: bool = False, nonwrapped_numel: int = 0) -> bool:
        return recurse or self.chosen(module) is not False


def always_wrap_policy(*args: Any, **kwargs: Any) -> bool:
    """Says so of all modules."""
    return True


def transformer_auto_wrap_policy(
    module: nn.Module, recurse: bool, nonwrapped_numel: int, transformer_layer_cls: Iterable[type[nn.Module]]
) -> bool:
    """Says so of modules of these classes."""
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def lambda_auto_wrap_policy(
    module: nn.Module, recurse: bool, nonwrapped_numel: int, lambda_fn: Callable[[nn.Module], bool]
) -> bool:
    """Says so where `lambda_fn(module)` is true."""
    return recurse or lambda_fn(module)


def size_based_auto_wrap_policy(
    module: nn.Module, recurse: bool, nonwrapped_numel: int, min_num_params: int = 100_000_000, **options: Any
) -> bool:
    """Says so of modules with so many parameters that are in no other block."""
    return recurse or nonwrapped_numel >= min_num_params


def _or_policy(
    module: nn.Module, recurse: bool, nonwrapped_numel: int, policies: Sequence[Callable[..., bool]]
) -> bool:
    """Says so where one of `policies` does."""
    return any(policy(module=module, recurse=recurse, nonwrapped_numel=nonwrapped_numel) for policy in policies)


def parts_to_wrap(model: nn.Module, policy: Callable[..., bool]) -> Iterator[tuple[nn.Module, str, nn.Module]]:
    """(parent, name, module) of the modules below `model` that `policy` names, each after those within it.

    A module that has several places comes for each of them, asked for once.
    """
    answers: dict[nn.Module, bool] = {}
    wrapped: set[nn.Parameter] = set()
    for parent in reversed(list(model.modules())):
        for name, part in list(parent._modules.items()):
            if part is None:
                continue
            if part not in answers:
                own = [p for p in part.parameters() if p not in wrapped and not hasattr(p, "shard")]
                answers[part] = policy(module=part, recurse=False, nonwrapped_numel=sum(p.numel() for p in own))
                if answers[part]:
                    wrapped.update(own)
            if answers[part]:
                yield parent, name, part


_enabled: ContextVar[tuple[Callable[..., nn.Module], dict[str, Any]] | None] = ContextVar("fsdp_wrap", default=None)


@contextmanager
def enable_wrap(*, wrapper_cls: Any, **wrapper_kwargs: Any) -> Iterator[None]:
    """In the block `wrap(module)` gives `wrapper_cls(module, **wrapper_kwargs)`."""
    before = _enabled.set((wrapper_cls, wrapper_kwargs))
    try:
        yield
    finally:
        _enabled.reset(before)


def wrap(module: nn.Module, **wrap_overrides: Any) -> nn.Module:
    """What `enable_wrap` says, with `wrap_overrides` before its options; `module` itself outside of its block."""
    found = _enabled.get()
    return module if found is None else found[0](module, **{**found[1], **wrap_overrides})
