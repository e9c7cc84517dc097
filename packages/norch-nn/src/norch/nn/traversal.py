"""Going through the parts of a module, and finding one by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import norch

if TYPE_CHECKING:
    from .module import Module
    from .parameter import Parameter


class Traversable:
    """The part of Module that lists and finds its modules, parameters and buffers."""

    _module_names: Any

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules that this one is directly made of, each once, with their names."""
        seen: set[int] = set()
        for name in self._module_names:
            child = self.__dict__[name]
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                yield name, child

    def children(self) -> Iterator[Module]:
        """`named_children` without the names."""
        for _, child in self.named_children():
            yield child

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module and all below it, parents first, with dotted names behind `prefix`; each once if
        `remove_duplicate`.

        memo: the modules that were given already.
        """
        own: Any = self
        memo = set() if memo is None else memo
        if own in memo:
            return
        if remove_duplicate:
            memo.add(own)
        yield prefix, own
        for name in self._module_names:
            child = self.__dict__[name]
            if child is not None:
                yield from child.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self) -> Iterator[Module]:
        """`named_modules` without the names."""
        for _, module in self.named_modules():
            yield module

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """The parameters of this module and, if `recurse`, of all below it, with dotted names behind `prefix`.

        A parameter that has several names is given once, unless `remove_duplicate=False`.
        """
        return self._named("_parameter_names", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """`named_parameters` without the names."""
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, norch.Tensor]]:
        """The buffers, as `named_parameters` gives the parameters."""
        return self._named("_buffer_names", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[norch.Tensor]:
        """`named_buffers` without the names. recurse: those of modules below it too."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def _named(self, registry: str, prefix: str, recurse: bool, once: bool) -> Iterator[tuple[str, Any]]:
        def members(module: Any) -> list[tuple[str, Any]]:
            return [(name, module.__dict__[name]) for name in getattr(module, registry)]

        return self._named_members(members, prefix, recurse, once)

    def _named_members(
        self,
        get_members_fn: Callable[[Any], Iterable[tuple[str, Any]]],
        prefix: str = "",
        recurse: bool = True,
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, Any]]:
        """What `get_members_fn` gives of each module, with dotted names; None is left out."""
        seen: set[Any] = set()
        for path, module in self.named_modules(None, prefix, remove_duplicate) if recurse else ((prefix, self),):
            for name, value in get_members_fn(module):
                if value is not None and value not in seen:
                    if remove_duplicate:
                        seen.add(value)
                    yield (f"{path}.{name}" if path else name), value

    def get_submodule(self, target: str) -> Module:
        """The module of the dotted name `target`; this one for "". Raises AttributeError naming the part that is
        missing.
        """
        module: Any = self
        for name in target.split(".") if target else ():
            child = getattr(module, name, None)
            if not isinstance(child, Traversable):
                problem = "is not a Module" if hasattr(module, name) else "does not exist"
                raise AttributeError(f"'{target}': {type(module).__name__} attribute '{name}' {problem}")
            module = child
        return module  # type: ignore[no-any-return]

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Puts `module` in the place of the dotted name `target`. With `strict` there must be one already.

        Raises ValueError for an empty name and for what is no module, AttributeError where the path leads nowhere.
        """
        if not target:
            raise ValueError("set_submodule(): the name must not be empty")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict:
            self.get_submodule(target)
        if not isinstance(module, Traversable):
            raise ValueError(f"set_submodule(): {type(module).__name__} is not a Module subclass")
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter of the dotted name `target`. Raises AttributeError where there is none."""
        found: Parameter = self._get(target, "_parameter_names", "parameter")
        return found

    def get_buffer(self, target: str) -> norch.Tensor:
        """The buffer of the dotted name `target`. Raises AttributeError where there is none."""
        found: norch.Tensor = self._get(target, "_buffer_names", "buffer")
        return found

    def _get(self, target: str, registry: str, kind: str) -> Any:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if name not in getattr(module, registry):
            raise AttributeError(f"'{target}': {type(module).__name__} has no {kind} '{name}'")
        return getattr(module, name)
