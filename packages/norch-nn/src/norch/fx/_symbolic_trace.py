"""Tracer: runs a module or function on proxies, which record what it does."""

from __future__ import annotations

import builtins
import functools
import inspect
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar, cast

import norch
from norch import nn, overrides

from .graph import Graph
from .graph_module import GraphModule
from .naming import snake_case
from .node import Argument
from .proxy import ParameterProxy, Proxy, TracerBase, find_proxies

F = TypeVar("F")


class PHBase:
    """What in `concrete_args` is traced rather than given: `PH`."""

    def __repr__(self) -> str:
        return "PH"


PH = PHBase()

_wrapped_fns_to_patch: dict[tuple[int, str], dict[str, Any]] = {}
_is_fx_tracing_flag = False


def is_fx_tracing() -> bool:
    """Whether a function is being traced, in any thread."""
    return _is_fx_tracing_flag


is_fx_symbolic_tracing = is_fx_tracing


class Tracer(TracerBase):
    """Makes the graph of a module or function. A subclass says which modules are steps of it, `is_leaf_module`, and may
    change what the calls of modules and functions give."""

    root: nn.Module

    def __init__(
        self,
        autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        """autowrap_modules: modules whose functions, and autowrap_functions: functions which are recorded where they
        are called with proxies, as those of `wrap`. param_shapes_constant: whether shapes of parameters are constants
        rather than steps."""
        self._autowrap_search = list(autowrap_modules)
        self._autowrapped = {
            id(function): function
            for module in autowrap_modules
            for name, function in vars(module).items()
            if not name.startswith("_") and callable(function)
        } | {id(function): function for function in autowrap_functions}
        self.param_shapes_constant = param_shapes_constant
        self.submodule_paths: dict[nn.Module, str] | None = None
        self.module_stack: dict[str, Any] = {}

    # --- What a subclass may change ---------------------------------------------------------------------------------

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether the calls of a module are nodes of their own: by default those of norch.nn, but for Sequential."""
        module = type(m).__module__
        return f"{module}.".startswith("norch.nn.") and not isinstance(m, nn.Sequential)

    def path_of_module(self, mod: nn.Module) -> str:
        """The dotted path of a module below the root. Raises NameError where it is not there."""
        if self.submodule_paths:
            path = self.submodule_paths.get(mod)
            if path is not None:
                return path
        for name, module in self.root.named_modules():
            if module is mod:
                return name
        raise NameError("module is not installed as a submodule")

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """What a call of a module gives while it is traced: a node for a leaf, else what `forward(*args, **kwargs)`
        gives, whose steps are recorded. Raises NameError as `path_of_module`."""
        path = self.path_of_module(m)
        if not self.is_leaf_module(m, path):
            return forward(*args, **kwargs)
        return self.create_proxy("call_module", path, args, kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """What an attribute of a module, `attr`, gives a traced function: of a parameter of the root a Proxy, else
        `attr_val` as it is. parameter_proxy_cache: the proxies by name, so that each parameter has one node."""
        name = self.tensor_attrs.get(id(attr_val)) if isinstance(attr_val, norch.Tensor) else None
        if name is None or not (isinstance(attr_val, nn.Parameter) or self.proxy_buffer_attributes):
            return attr_val
        if name not in parameter_proxy_cache:
            options: dict[str, Any] = {}
            if self.param_shapes_constant:
                options["proxy_factory_fn"] = functools.partial(ParameterProxy, self, name=name, param=attr_val)
            parameter_proxy_cache[name] = self.create_proxy("get_attr", name, (), {}, **options)
        return parameter_proxy_cache[name]

    def create_arg(self, a: Any) -> Argument:
        """As `TracerBase.create_arg`; tensors that the root has are nodes of the op "get_attr", and others become
        attributes of it. Raises NameError for parameters that it has not."""
        if isinstance(a, norch.Tensor):
            name = self.tensor_attrs.get(id(a))
            if name is None and isinstance(a, nn.Parameter):
                raise NameError("parameter is not a member of this module")
            return self.create_node("get_attr", name or self._constant(a, "_tensor_constant"), (), {})
        if isinstance(a, nn.Module):
            return self.create_node("get_attr", self.path_of_module(a), (), {})
        if isinstance(a, tuple | list | dict | slice):
            return super().create_arg(a)
        try:
            return super().create_arg(a)
        except NotImplementedError:  # an object that the code names as an attribute of the root
            name = self._constant(a, f"_{snake_case(type(a).__name__)}_constant")
            return self.create_node("get_attr", name, (), {})

    def _constant(self, value: Any, prefix: str) -> str:
        """The name under which the root has `value` from now on."""
        name = self.get_fresh_qualname(prefix)
        setattr(self.root, name, value)
        if isinstance(value, norch.Tensor):
            self.tensor_attrs[id(value)] = name
        return name

    def get_fresh_qualname(self, prefix: str) -> str:
        """A name of an attribute that the root has not yet: the prefix and a number."""
        count = 0
        while hasattr(self.root, f"{prefix}{count}"):
            count += 1
        return f"{prefix}{count}"

    # --- Tracing ----------------------------------------------------------------------------------------------------

    def trace(self, root: nn.Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None) -> Graph:
        """The graph of a module or function, which is run once on proxies.

        concrete_args: values for arguments, by name: the graph holds for these alone. `PH` in tuples, lists and dicts
        among them stands for what is traced. Raises TraceError where it asks for values, and as `create_arg`.
        """
        if isinstance(root, nn.Module):
            self.root = root
            function: Callable[..., Any] = getattr(type(root), getattr(self, "traced_func_name", "forward"))
            self.submodule_paths = {module: name for name, module in root.named_modules()}
        else:
            self.root = nn.Module()
            function = root
        self.tensor_attrs = {
            id(value): f"{name}.{key}".lstrip(".")
            for name, module in self.root.named_modules()
            for key, value in vars(module).items()
            if isinstance(value, norch.Tensor)
        }
        self.graph = Graph(tracer_cls=type(self))
        called, args = self.create_args_for_root(function, isinstance(root, nn.Module), concrete_args)
        with self._recording(function):
            result = called(*args)
        annotation = getattr(function, "__annotations__", {}).get("return")
        self.create_node("output", "output", (self.create_arg(result),), {}, type_expr=annotation)
        return self.graph

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: dict[str, Any] | None = None
    ) -> tuple[Callable[..., Any], list[Any]]:
        """A function that does what `root_fn` does, and its arguments: the root, and proxies of placeholders.

        Of `*args` and `**kwargs` too there is one placeholder each. Raises RuntimeError where there is no such
        argument as `concrete_args` names.
        """
        concrete = dict(concrete_args or {})
        function = root_fn if isinstance(inspect.unwrap(root_fn), FunctionType) else _as_function(root_fn)
        parameters = list(inspect.signature(function).parameters.values())[is_module:]
        args: list[Any] = [self.root] if is_module else []
        for parameter in sorted(parameters, key=lambda p: _LAST.get(p.kind, 0)):
            stars = _STARS.get(parameter.kind, "")
            default = () if parameter.default is parameter.empty else (self.create_arg(parameter.default),)
            annotation = None if parameter.annotation is parameter.empty else parameter.annotation
            proxy = self.create_proxy("placeholder", f"{stars}{parameter.name}", default, {}, type_expr=annotation)
            args.append(_given(proxy, concrete.pop(parameter.name)) if parameter.name in concrete else proxy)
        if concrete:
            raise RuntimeError(f"concrete_args names what is no argument of the function: {', '.join(concrete)}")
        if any(p.kind in _LAST or p.kind is p.KEYWORD_ONLY for p in parameters) and isinstance(root_fn, FunctionType):
            function = _with_plain_arguments(inspect.unwrap(root_fn))  # type: ignore[arg-type]
        return function, args

    @contextmanager
    def _recording(self, function: Callable[..., Any]) -> Iterator[None]:
        """Within it calls of modules, of wrapped functions and of those of `autowrap_modules` come to this tracer."""
        global _is_fx_tracing_flag
        patched = _Patches()
        call = nn.Module.__call__
        seen: set[int] = set()

        @functools.wraps(call)
        def call_module(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            def forward(*args: Any, **kwargs: Any) -> Any:
                return call(module, *args, **kwargs)

            wrap_names(getattr(getattr(type(module), "forward", None), "__globals__", {}))
            return self.call_module(module, forward, args, kwargs)

        proxies: dict[str, Any] = {}

        def attribute(module: nn.Module, name: str) -> Any:
            value = object.__getattribute__(module, name)
            if not isinstance(value, norch.Tensor) or _is_of_module(sys._getframe(1).f_globals.get("__name__", "")):
                return value
            return self.getattr(name, value, proxies)

        def wrap_names(names: dict[str, Any]) -> None:
            if id(names) not in seen:
                seen.add(id(names))
                for name, value in list(names.items()):
                    if not name.startswith("_") and id(value) in self._autowrapped and callable(value):
                        patched.replace(names, name, _recorded(value))

        before = _is_fx_tracing_flag
        try:
            patched.replace_attribute(nn.Module, "__call__", call_module)
            patched.replace_attribute(nn.Module, "__getattribute__", attribute)
            for (_, name), names in _wrapped_fns_to_patch.items():
                wrapped: Any = names.get(name, getattr(builtins, name, None))
                if wrapped is not None:
                    patched.replace(names, name, _recorded(wrapped))
            for module in self._autowrap_search:
                wrap_names(vars(module))
            wrap_names(getattr(inspect.unwrap(function), "__globals__", {}))
            _is_fx_tracing_flag = True
            yield
        finally:
            _is_fx_tracing_flag = before
            patched.undo()


_STARS: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
_LAST: dict[Any, int] = {inspect.Parameter.VAR_POSITIONAL: 1, inspect.Parameter.VAR_KEYWORD: 2}


def _is_of_module(name: str) -> bool:
    """Whether code is that of modules and tracers, which know parameters as they are."""
    return name.startswith(("norch.nn.", "norch.fx.")) or overrides.is_inside(name)


def _given(proxy: Proxy, value: Any) -> Any:
    """A value of `concrete_args`, with the parts of the proxy in the place of each PH."""
    if isinstance(value, PHBase):
        return proxy
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[_part(proxy, i, part) for i, part in enumerate(value)])
    if isinstance(value, list | tuple):
        return type(value)([_part(proxy, i, part) for i, part in enumerate(value)])
    if isinstance(value, dict):
        return {key: _part(proxy, key, part) for key, part in value.items()}
    return value


def _part(proxy: Proxy, key: Any, value: Any) -> Any:
    is_traced = isinstance(value, PHBase | list | tuple | dict)
    return _given(proxy[key], value) if is_traced else value


def _as_function(called: Callable[..., Any]) -> Callable[..., Any]:
    """What can be called and is no function, such as a bound method, as one that takes all arguments by position."""
    signature = inspect.signature(called)

    def function(*values: Any) -> Any:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for parameter, value in zip(sorted(signature.parameters.values(), key=lambda p: _LAST.get(p.kind, 0)), values):
            if parameter.kind in _LAST:
                args.extend(value)  # a TraceError: how many there are is not known
            elif parameter.kind is parameter.KEYWORD_ONLY:
                kwargs[parameter.name] = value
            else:
                args.append(value)
        return called(*args, **kwargs)

    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def _with_plain_arguments(function: FunctionType) -> FunctionType:
    """The function, whose `args` of `*args` is an argument as others: a Proxy rather than a tuple of them."""
    code: CodeType = function.__code__
    flags = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
    count = code.co_argcount + code.co_kwonlyargcount + bin(code.co_flags & flags).count("1")
    plain = code.replace(co_flags=code.co_flags & ~flags, co_argcount=count, co_posonlyargcount=0, co_kwonlyargcount=0)
    changed = FunctionType(plain, function.__globals__, function.__name__, None, function.__closure__)
    changed.__annotations__ = function.__annotations__
    return changed


class _Patches:
    """Names and attributes that have other values for a time."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def replace(self, names: dict[str, Any], name: str, value: Any) -> None:
        self._undo.append(
            functools.partial(names.__setitem__, name, names[name]) if name in names else lambda: names.pop(name)
        )
        names[name] = value

    def replace_attribute(self, owner: Any, name: str, value: Any) -> None:
        if name in vars(owner):
            self._undo.append(functools.partial(setattr, owner, name, vars(owner)[name]))
        else:
            self._undo.append(functools.partial(delattr, owner, name))
        setattr(owner, name, value)

    def undo(self) -> None:
        while self._undo:
            self._undo.pop()()


def _recorded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is recorded where it is given proxies."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        proxies = find_proxies(args, kwargs)
        if not proxies:
            return function(*args, **kwargs)
        found = proxies[0].tracer.create_proxy("call_function", function, args, kwargs)
        found.node.meta["is_wrapped"] = True
        return found

    return call


def wrap(fn_or_name: F) -> F:
    """Has calls of a function of the calling module, given by name or as a decorator, recorded as one step.

    It is called at the top level of a module; "len" and other names of Python's can be given too. Returns what it is
    given. Raises RuntimeError for what is no function or name, NotImplementedError where it is called in a function.
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError("Unsupported type for global function! Must be either a callable or string name")
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__  # type: ignore[attr-defined]
    frame = inspect.currentframe()
    caller = frame.f_back if frame is not None else None
    if caller is None or caller.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    _wrapped_fns_to_patch[id(caller.f_globals), name] = caller.f_globals
    return fn_or_name


def symbolic_trace(root: nn.Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None) -> GraphModule:
    """A GraphModule that does what a module or function does, which is run once on proxies to record it.

    Its parts are those of the module. concrete_args: see `Tracer.trace`, whose errors it raises.
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, nn.Module) else getattr(root, "__name__", type(root).__name__)
    return GraphModule(tracer.root, graph, cast("str", name))
