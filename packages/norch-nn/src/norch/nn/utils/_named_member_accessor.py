"""Tensors of modules, put in and taken out by name: PyTorch's `torch.nn.utils._named_member_accessor`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import norch

from ..module import Module

_MISSING: Any = object()
"""In place of a tensor that a module does not have."""


def set_tensor(module: Module, name: str, tensor: Any) -> None:
    """Puts `tensor` in the place of the parameter or buffer `name` of a module, or makes it an attribute.

    It need not be a Parameter. Raises KeyError for a dotted name, AttributeError for an attribute that is no tensor.
    """
    swap_tensor(module, name, tensor, allow_missing=True)


def swap_tensor(module: Module, name: str, tensor: Any, allow_missing: bool = False) -> Any:
    """`set_tensor`, and gives what was there. With `allow_missing` that may be nothing, for which there is a mark, that
    can be put back. Raises AttributeError where it is nothing otherwise."""
    if "." in name:
        raise KeyError(f"a tensor's name in its module has no dot, got {name!r}")
    before = module.__dict__.get(name, _MISSING)
    if before is _MISSING and not allow_missing:
        raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
    if before is not _MISSING and before is not None and not isinstance(before, norch.Tensor):
        raise TypeError(f"attribute `{name}` of {type(module).__name__} is of type {type(before).__name__}, no tensor")
    if tensor is not _MISSING:
        module.__dict__[name] = tensor
    elif before is not _MISSING:
        delattr(module, name)
    return before


class NamedMemberAccessor:
    """Access to the tensors of a module and those below it by dotted names."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def _place(self, name: str) -> tuple[Module, str]:
        path, _, own = name.rpartition(".")
        return self.get_submodule(path), own

    def get_submodule(self, name: str) -> Module:
        """The module of that name. Raises AttributeError where there is none."""
        return self.module.get_submodule(name)

    def get_tensor(self, name: str) -> norch.Tensor:
        """The tensor of that name. Raises AttributeError where there is none, TypeError for what is none."""
        module, own = self._place(name)
        found = getattr(module, own)
        if not isinstance(found, norch.Tensor):
            raise TypeError(f"{name} is of type {type(found).__name__}, no tensor")
        return found

    def set_tensor(self, name: str, value: Any) -> None:
        """`set_tensor` by a dotted name."""
        module, own = self._place(name)
        set_tensor(module, own, value)

    def swap_tensor(self, name: str, value: Any, allow_missing: bool = False) -> Any:
        """`swap_tensor` by a dotted name."""
        module, own = self._place(name)
        return swap_tensor(module, own, value, allow_missing)

    def del_tensor(self, name: str) -> None:
        """Removes the tensor of that name."""
        module, own = self._place(name)
        delattr(module, own)

    def get_tensors(self, names: Iterable[str]) -> list[norch.Tensor]:
        """The tensors of these names."""
        return [self.get_tensor(name) for name in names]

    def set_tensors(self, names: Iterable[str], values: Iterable[Any]) -> None:
        """`set_tensor` of each. Raises ValueError for another number of values than of names."""
        for name, value in zip(names, values, strict=True):
            self.set_tensor(name, value)

    def swap_tensors(self, names: Iterable[str], values: Iterable[Any], allow_missing: bool = False) -> list[Any]:
        """`swap_tensor` of each. Raises ValueError for another number of values than of names."""
        return [self.swap_tensor(n, v, allow_missing) for n, v in zip(names, values, strict=True)]

    def swap_tensors_dict(
        self, named_tensors: Mapping[str, Any], allow_missing: bool = False
    ) -> tuple[dict[str, Any], list[str]]:
        """`swap_tensor` of each: what was there by name, and the names of nothing that was there."""
        before = {n: self.swap_tensor(n, v, allow_missing) for n, v in named_tensors.items()}
        return before, [n for n, v in before.items() if v is _MISSING]

    def check_keys(self, keys: Iterable[str]) -> tuple[list[str], list[str]]:
        """The names that are missing from `keys`, and those in it that are none of the module's tensors."""
        given, own = set(keys), {name for name, _ in self.named_tensors()}
        return sorted(own - given), sorted(given - own)

    def named_parameters(self, remove_duplicate: bool = True) -> Iterator[tuple[str, norch.Tensor]]:
        """The parameters by dotted name."""
        yield from self.module.named_parameters(remove_duplicate=remove_duplicate)

    def named_buffers(self, remove_duplicate: bool = True) -> Iterator[tuple[str, norch.Tensor]]:
        """The buffers by dotted name."""
        yield from self.module.named_buffers(remove_duplicate=remove_duplicate)

    def named_tensors(self, remove_duplicate: bool = True) -> Iterator[tuple[str, norch.Tensor]]:
        """The parameters, and then the buffers, by dotted name."""
        yield from self.named_parameters(remove_duplicate)
        yield from self.named_buffers(remove_duplicate)

    def named_modules(self, remove_duplicate: bool = True) -> Iterator[tuple[str, Module]]:
        """The modules by dotted name."""
        yield from self.module.named_modules(remove_duplicate=remove_duplicate)
