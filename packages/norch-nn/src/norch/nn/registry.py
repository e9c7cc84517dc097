"""The names that a module has registered, and what it says of those that it has not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from types import FunctionType
from typing import TYPE_CHECKING, Any
from weakref import ref

from norch import switches

if TYPE_CHECKING:
    from .module import Module


REGISTRIES = "_module_names", "_parameter_names", "_buffer_names"

_global_parameter_registration_hooks: dict[int, Callable[..., Any]] = {}
_global_buffer_registration_hooks: dict[int, Callable[..., Any]] = {}
_global_module_registration_hooks: dict[int, Callable[..., Any]] = {}
ON_REGISTRATION = dict(
    zip(
        REGISTRIES,
        (_global_module_registration_hooks, _global_parameter_registration_hooks, _global_buffer_registration_hooks),
        strict=True,
    )
)


def asked_hooks(module: Module, registry: str, name: str, value: Any) -> Any:
    """What the hooks on registration make of a value that a module registers."""
    for hook in [*ON_REGISTRATION[registry].values()]:
        found = hook(module, name, value)
        value = value if found is None else found
    return value


LISTED = dict(zip(("_modules", "_parameters", "_buffers"), REGISTRIES, strict=True))
"""By PyTorch's name of a registry, ours."""

_get = object.__getattribute__


class Registry:
    """Stands for a registry of a module until it has one of its own: asking for it raises."""

    def __get__(self, module: Module | None, owner: type[Module]) -> Any:
        if module is None:
            return self
        raise uninitialised(module)


def uninitialised(module: Module) -> AttributeError:
    title = type(module).__name__
    return AttributeError(
        f"{title}: Module.__init__() was not called; call super().__init__() first in {title}.__init__()"
    )


class Registered(MutableMapping[str, Any]):
    """A registry as the dict that PyTorch's modules keep: `model._modules["fc"] = layer`.

    Called as a dict is, `type(model._parameters)(items)`, the class gives a dict.
    """

    _module: Module
    _names: str

    def __new__(cls, *items: Any, **named: Any) -> Any:
        return dict(*items, **named)

    @classmethod
    def of(cls, names: str) -> property:
        """The attribute of a module that is the registry `names`, and takes another mapping in its place."""

        def get(module: Module) -> Registered:
            registered: Registered = object.__new__(cls)
            registered._module, registered._names = module, names
            return registered

        def replace(module: Module, items: Mapping[str, Any]) -> None:
            given, own = dict(items), module.__dict__
            before = own.get(names, {})
            own[names] = {}  # that of a module whose attributes were copied from another is the other's too
            for name in before:
                own.pop(name, None)
            for name, value in given.items():
                module._register(names, name, value, before.get(name, True), any_name=True)
            switches.replaced(module, names)

        return property(get, replace)

    def _own(self) -> dict[str, Any]:
        own: dict[str, Any] = getattr(self._module, self._names)
        return own

    def __getitem__(self, name: str) -> Any:
        if name not in self._own():
            raise KeyError(name)
        return self._module.__dict__[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._module._register(self._names, name, value, self._own().get(name, True), any_name=True)

    def __delitem__(self, name: str) -> None:
        del self._own()[name], self._module.__dict__[name]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._own()))

    def __len__(self) -> int:
        return len(self._own())

    def items(self) -> Any:
        return dict(self).items()  # which, unlike a Mapping's, can be reversed

    def values(self) -> Any:
        return dict(self).values()

    def copy(self) -> dict[str, Any]:
        return dict(self)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self))

    def __repr__(self) -> str:
        return repr(dict(self))


class Listed(Registered):
    """A registry in the `__dict__` of its module, where programs look for it too. It does not keep that alive."""

    _of: Any  # a weak reference to the module

    @property
    def _module(self) -> Module:  # type: ignore[override]
        module: Module | None = self._of()
        if module is None:
            raise ReferenceError("the module whose registry this is is gone")
        return module

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


def list_registries(module: Module) -> None:
    """Has `vars(module)["_parameters"]` and its like be the registries of a module."""
    own = module.__dict__
    for name, names in LISTED.items():
        own[name] = listed = object.__new__(Listed)
        listed._of, listed._names = ref(module), names


def unlisted(attributes: Any) -> Any:
    """The attributes of a module without its registries, of which a copy has its own."""
    if isinstance(attributes, dict) and "_module_names" in attributes:
        return {name: value for name, value in attributes.items() if name not in LISTED}
    return attributes


class NamedAccess:
    """The last base of modules whose code names `__getattr__`, for `super().__getattr__(name)`.

    Module itself has none: with it every attribute of a module would be found four times slower.
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__[name]
        except KeyError:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'") from None


class AskedFirst(NamedAccess):
    """The last base of modules with a `__getattr__` of their own, which is asked for what is registered too: PyTorch's
    modules have that in no other way, and programs count on it."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        own = _get(self, "__dict__")
        if name in own:
            modules, parameters, buffers = REGISTRIES
            if name in own.get(modules, ()) or name in own.get(parameters, ()) or name in own.get(buffers, ()):
                return type(self).__getattr__(self, name)
        return _get(self, name)


def is_own(cls: type) -> bool:
    """Whether the class is norch's, not a user's."""
    return getattr(cls, "__module__", "").startswith("norch.nn.")


def defines_getattr(cls: type, base: type) -> bool:
    """Whether a `__getattr__` comes before that of `base`, PyTorch's Module, in the class's order: its own, or one of a
    class that is mixed in."""
    before = cls.__mro__[: cls.__mro__.index(base)]
    return any("__getattr__" in vars(kind) for kind in before if not is_own(kind))


def names_getattr(cls: type) -> bool:
    """Whether a function of the class is called `__getattr__`, or names it."""
    codes = [value.__code__ for value in vars(cls).values() if isinstance(value, FunctionType)]
    return "__getattr__" in vars(cls) or any("__getattr__" in code.co_names for code in codes)
