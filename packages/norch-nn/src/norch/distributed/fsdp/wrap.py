"""Which modules of a model are blocks of FullyShardedDataParallel."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from norch import nn


class ModuleWrapPolicy:
    """Says of modules of certain classes that they are blocks."""

    def __init__(self, module_classes: Iterable[type[nn.Module]]) -> None:
        self.classes = tuple(module_classes)

    def __call__(self, module: nn.Module, recurse: bool = False, nonwrapped_numel: int = 0) -> bool:
        return recurse or isinstance(module, self.classes)


def transformer_auto_wrap_policy(
    module: nn.Module, recurse: bool, nonwrapped_numel: int, transformer_layer_cls: Iterable[type[nn.Module]]
) -> bool:
    """Says so of modules of these classes."""
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def size_based_auto_wrap_policy(
    module: nn.Module, recurse: bool, nonwrapped_numel: int, min_num_params: int = 100_000_000, **options: Any
) -> bool:
    """Says so of modules with so many parameters that are in no other block."""
    return recurse or nonwrapped_numel >= min_num_params
