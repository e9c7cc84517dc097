"""Module: a piece of a model, which knows its parameters, its buffers and the modules it is made of.

What is registered lives where every attribute does, in the instance's `__dict__`, so that `self.weight` costs what any
attribute costs. Beside it a module keeps only the names, in order of registration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any, Self

import norch
from norch import switches

from . import pickled
from .complex_pairs import mark, tensor_of
from .fields import name_constructor
from .hooks import Hookable, PlainCall, call_with_hooks
from .parameter import Buffer, Parameter
from .registry import (
    ON_REGISTRATION,
    REGISTRIES,
    AskedFirst,
    NamedAccess,
    Registered,
    Registry,
    asked_hooks,
    defines_getattr,
    is_own,
    list_registries,
    names_getattr,
    uninitialised,
    unlisted,
)
from .state import LoadResult, get_extra_state, load_state, save_own, save_state, set_extra_state
from .transfer import Movable
from .traversal import Traversable


class Module(Movable, Traversable, Hookable):
    """Base of all modules: a subclass makes its parts in `__init__` and uses them in `forward`.

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(2, 1)

            def forward(self, x):
                return self.fc(x).tanh()

    Parameters, buffers and modules are registered when they are assigned as attributes.
    """

    training: bool
    _version: int = 1  # which classes put into what they save
    _parameter_names: Any = Registry()  # dict[str, bool], as the next two
    _buffer_names: Any = Registry()  # whether the buffer is persistent
    _module_names: Any = Registry()

    def __init__(self) -> None:
        self.__dict__.update(
            training=True,
            _parameter_names={},
            _buffer_names={},
            _module_names={},
            _hooks=None,
        )
        list_registries(self)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own_class = is_own(cls)
        if own_class:
            name_constructor(cls)
        for name, value in [*vars(cls).items()]:
            own = vars(norch).get(value.__name__) if isinstance(value, FunctionType) else None
            if own is not None and own is value:
                setattr(cls, name, staticmethod(own))  # PyTorch's are built in, and no methods of a class
        if "__setstate__" in vars(cls) and not own_class:
            cls.__setstate__ = pickled.adopting(cls.__setstate__)  # type: ignore[assignment]
        access = AskedFirst if defines_getattr(cls, Module) else NamedAccess
        if (access is AskedFirst or names_getattr(cls)) and not issubclass(cls, access):
            cls.__bases__ = (*cls.__bases__, access)

    if TYPE_CHECKING:  # see NamedAccess

        def __getattr__(self, name: str) -> Any: ...

    # --- The call ---------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            hooks = self._hooks
        except AttributeError:
            raise uninitialised(self) from None
        if hooks is not None:
            return call_with_hooks(self, hooks, args, kwargs)
        try:
            if len(args) == 1 and not kwargs:  # most calls, and passing on any arguments takes a third longer
                return self.forward(args[0])
            return self.forward(*args, **kwargs)
        except AttributeError:
            norch.check_arguments(self.forward, args, kwargs, type(self).__name__)
            raise

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        return Module.__call__(self, *args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes. Subclasses define it; users call the module itself. Raises NotImplementedError."""
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    def __getstate__(self) -> Any:
        """What pickle and copy keep. A class whose own calls this finds `_parameters`, `_buffers` and `_modules` in it
        too, as PyTorch's, and may remove entries of them."""
        state = unlisted(super().__getstate__())
        return state if type(self).__getstate__ is Module.__getstate__ else pickled.with_registries(self, state)

    def __setstate__(self, state: Any) -> None:
        """Takes what pickle and copy kept, or what PyTorch pickled of a module with this one's attributes."""
        attributes, slots = state if isinstance(state, tuple) else (state, {})
        if pickled.has_registries(attributes):
            self.__dict__.update(pickled.by_registries(attributes))
        elif pickled.is_pytorch(attributes):
            self._adopt(attributes)
        else:
            self.__dict__.update(attributes or {})
        list_registries(self)
        for name in self.__dict__.get("_pair_names", ()):
            mark(self, name)
        for name, value in slots.items():
            setattr(self, name, value)

    def _adopt(self, attributes: dict[str, Any]) -> None:
        """Takes what PyTorch pickled of a module."""
        Module.__init__(self)
        pickled.adopt(self, attributes)
        self._complete()

    def _complete(self) -> None:
        """Sets the attributes that a module of PyTorch does not have."""

    # --- Registration -----------------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        if _is_plain(value):
            old = self.__dict__.get(name, _ABSENT)
            if old is value:
                return
            if old is _ABSENT or (old is not None and _is_plain(old)):  # and so nothing that is registered
                if old is not _ABSENT and old != value:
                    switches.switched(self, name, old, value)
                object.__setattr__(self, name, value)
                return
        if isinstance(value, Parameter):
            if type(self).register_parameter is not _REGISTER_PARAMETER:  # a class's own, or another put into Module
                if name not in self.__dict__.get("_parameter_names", ()):
                    self.__dict__.pop(name, None)
                self.register_parameter(name, value)
            else:
                self._register("_parameter_names", name, value)
        elif isinstance(value, Module):
            self._register("_module_names", name, value)
        elif isinstance(value, Buffer):
            self._register("_buffer_names", name, value, value.persistent)
        elif (parts := tensor_of(value)) is not value and (isinstance(parts, Parameter) or name in self._buffer_names):
            self._register("_parameter_names" if isinstance(parts, Parameter) else "_buffer_names", name, value)
        else:
            if value is not None:
                self._check_kind(name, value)
            self._note_change(name, value)
            if value is None and any(name in self.__dict__.get(names, ()) for names in REGISTRIES):
                self.__dict__[name] = None  # where a property may hide it, which has no setter
            else:
                object.__setattr__(self, name, value)

    def _note_change(self, name: str, value: Any) -> None:
        """Says where captured steps have to look whether they still do what they did."""
        old = self.__dict__.get(name, _ABSENT)
        if old is value or old is _ABSENT:
            return
        if _is_plain(value) and _is_plain(old):
            if old != value:
                switches.switched(self, name, old, value)
        elif old is None or not (isinstance(value, norch.Tensor) or type(value) in _KEPT) or name in self._buffer_names:
            switches.replaced(self, name)

    def __delattr__(self, name: str) -> None:
        for names in _registries(self):
            names.pop(name, None)
        switches.replaced(self, name)
        object.__delattr__(self, name)

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Adds a parameter, or None as the place of one that is not there. `self.name = param` does the same.

        Raises DTypeError where `param` is not a Parameter, KeyError for a name that is taken, ValueError for a result
        of an op.
        """
        if param is not None:
            if not isinstance(tensor_of(param), Parameter):
                raise norch.DTypeError(
                    f"cannot assign '{type(param).__name__}' object to parameter '{name}' "
                    "(nn.Parameter or None required)"
                )
            if not param.is_leaf:
                raise ValueError(f"cannot assign a result of {param.grad_fn} to parameter '{name}': it is not a leaf")
        self._check_free(name, "_parameter_names")
        self._register("_parameter_names", name, param)

    def register_buffer(self, name: str, tensor: norch.Tensor | None, persistent: bool = True) -> None:
        """Adds a tensor that moves and is saved with the module but is not trained; saved only if `persistent`.

        Raises DTypeError where `tensor` is neither a Tensor nor None, KeyError for a name that is taken.
        """
        if tensor is not None and not isinstance(tensor_of(tensor), norch.Tensor):
            raise norch.DTypeError(
                f"cannot assign '{type(tensor).__name__}' object to buffer '{name}' (Tensor or None required)"
            )
        self._check_free(name, "_buffer_names")
        self._register("_buffer_names", name, tensor, persistent)

    def add_module(self, name: str, module: Module | None) -> None:
        """Adds a child. `self.name = module` does the same, for names that are identifiers.

        Raises DTypeError where `module` is neither a Module nor None, KeyError for a name that is taken.
        """
        if module is not None and not isinstance(module, Module):
            raise norch.DTypeError(f"{type(module).__name__} is not a Module subclass")
        self._check_free(name, "_module_names")
        self._register("_module_names", name, module)

    register_module = add_module

    def _register(self, registry: str, name: str, value: Any, note: bool = True, any_name: bool = False) -> None:
        """Makes `name` one of `registry` and of no other. `note` says of a buffer whether it is persistent. any_name:
        whether the name may have dots, as keys of PyTorch's registries may."""
        names = self.__dict__.get(registry)
        if names is None:
            kind = {"_parameter_names": "parameters", "_buffer_names": "buffers"}.get(registry, "module")
            raise AttributeError(
                f"cannot assign {kind} before Module.__init__() call; call super().__init__() first in "
                f"{type(self).__name__}.__init__()"
            )
        if not isinstance(name, str):
            raise TypeError(f"{registry[1:-6]} name should be a string, got {type(name).__name__}")
        if not any_name and (not name or "." in name):
            raise KeyError(f"{registry[1:-6]} name must not be empty or contain a dot, got {name!r}")
        if ON_REGISTRATION[registry]:
            value = asked_hooks(self, registry, name, value)
        for other in _registries(self):
            if other is not names:
                other.pop(name, None)
        names[name] = note
        parts = tensor_of(value)
        mark(self, name, parts is not value)
        value = parts
        if self.__dict__.get(name, value) is not value:
            switches.replaced(self, name)
        self.__dict__[name] = value

    def _check_free(self, name: str, registry: str) -> None:
        if isinstance(name, str) and name not in self.__dict__.get(registry, ()):
            try:  # what `hasattr` asks, but not a `__getattr__` of the class, which may find what others registered
                object.__getattribute__(self, name)
            except AttributeError:
                return
            raise KeyError(f"attribute '{name}' already exists")

    def _check_kind(self, name: str, value: Any) -> None:
        """Raises DTypeError where `name` stands for something that `value` cannot be."""
        own = self.__dict__
        if name in own.get("_parameter_names", ()):
            kind, wanted = "parameter", "nn.Parameter or None expected"
        elif name in own.get("_module_names", ()):
            kind, wanted = "child module", "nn.Module or None expected"
        elif name in own.get("_buffer_names", ()) and not isinstance(value, norch.Tensor):
            kind, wanted = "buffer", "Tensor or None expected"
        else:
            return
        raise norch.DTypeError(f"cannot assign '{type(value).__name__}' as {kind} '{name}' ({wanted})")

    # As scripts know them from PyTorch.
    @property
    def _non_persistent_buffers_set(self) -> set[str]:
        return {name for name, persistent in self._buffer_names.items() if not persistent}

    _parameters = Registered.of("_parameter_names")
    _buffers = Registered.of("_buffer_names")
    _modules = Registered.of("_module_names")

    # --- State ------------------------------------------------------------------------------------------------------

    def state_dict(
        self, *args: Any, destination: dict[str, Any] | None = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, norch.Tensor]:
        """Every parameter and persistent buffer by its dotted name, behind `prefix`, on the module's own memory, in
        `destination`.

        They are detached unless `keep_vars`. args: these three by position, as PyTorch's first versions took them.
        """
        given: Any = (*args, *(destination, prefix, keep_vars)[len(args) :])
        return save_state(self, given[1], given[2], given[0])

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """For classes that save more: puts the module's own tensors, not those below it, into `destination`."""
        save_own(self, destination, prefix, keep_vars)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> LoadResult:
        """Copies the values of a `state_dict` (tensors or arrays) into this module, casting to its dtypes.

        With `assign` the tensors themselves become the module's, of their dtype and device. Returns the missing and the
        unexpected keys; where there are any and `strict`, or where a shape differs, raises StateDictError naming each
        of them, and changes nothing.
        """
        return load_state(self, state_dict, strict, assign)

    get_extra_state, set_extra_state = get_extra_state, set_extra_state

    # --- Changes to all parts ---------------------------------------------------------------------------------------

    def train(self, mode: bool = True) -> Self:
        """Puts this module and all below it, by their own `train`, into training mode. Returns the module.

        Raises DTypeError unless `mode` is a bool.
        """
        if not isinstance(mode, bool):
            raise norch.DTypeError(f"train(): mode is expected to be a bool, got {mode!r}")
        self.training = mode
        for child in self.children():
            child.train(mode)
        return self

    def eval(self) -> Self:
        """`train(False)`."""
        return self.train(False)

    def apply(self, fn: Callable[[Module], object]) -> Self:
        """Calls `fn` on every module below this one and then on this one. Returns the module."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Sets whether gradients are gathered for the parameters. Returns the module."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Has the calls of this module captured from now on; takes what `norch.compile` takes."""
        self._all_hooks().compiled = None if kwargs.get("disable") else norch.compile(PlainCall(self), *args, **kwargs)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the parameters' gradients, or sets them to 0 where `set_to_none=False`."""
        for parameter in self.parameters():
            if set_to_none or parameter.grad is None:
                parameter.grad = None
            else:
                parameter.grad = norch.zeros_like(parameter.grad)

    # --- Printing ---------------------------------------------------------------------------------------------------

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What `repr` shows between the brackets before the children. Subclasses define it."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        own = len(lines)
        for name in self._module_names:
            lines.append(f"({name}): " + repr(self.__dict__[name]).replace("\n", "\n  "))
        title = self._get_name()
        if len(lines) == own <= 1:
            return f"{title}({extra})"
        return f"{title}(\n  " + "\n  ".join(lines) + "\n)"


_ABSENT = object()
_REGISTER_PARAMETER = Module.register_parameter

_PLAIN = frozenset({bool, int, float, str, type(None)})
"""Types of values that are what a module does, not what it has; None may also stand for a parameter or a module."""

_KEPT = frozenset({list, dict, set, tuple})
"""Types of what a module may keep from one call to the next."""


def _is_plain(value: object) -> bool:
    """Whether a value is what a module does: a tuple may hold tensors, which a module has."""
    return type(value) in _PLAIN or (type(value) is tuple and all(map(_is_plain, value)))


def _registries(module: Module) -> tuple[dict[str, bool], ...]:
    own = module.__dict__
    return tuple([own.get(names, {}) for names in REGISTRIES])
