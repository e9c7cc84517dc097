"""Tracer: runs a module or function on proxies, which record what it does."""

from __future__ import annotations

import functools
import inspect
import math
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar, cast

import norch
from norch import nn, overrides

from .graph import Graph
from .graph_module import GraphModule
from .naming import snake_case
from .node import Argument, base_types
from .patching import _autowrap_check as _autowrap_check
from .patching import _orig_module_call as _orig_module_call
from .patching import _orig_module_getattr as _orig_module_getattr
from .patching import _patch_wrapped_functions as _patch_wrapped_functions
from .patching import _Patcher as _Patcher
from .patching import _wrapped_fns_to_patch as _wrapped_fns_to_patch
from .patching import wrap as wrap
from .proxy import ParameterProxy, Proxy, TracerBase

F = TypeVar("F")


class ScriptObject:
    """PyTorch's of TorchScript, of which norch has none; tracers of programs name it."""


def compatibility(is_backward_compatible: bool) -> Callable[[F], F]:
    """A decorator of PyTorch's own functions, that changes nothing. is_backward_compatible: whether they will stay."""
    return lambda function: function


class PHBase:
    """What in `concrete_args` is traced rather than given: `PH`."""

    def __repr__(self) -> str:
        return "PH"


PH = PHBase()

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
        self._autowrap_function_ids = {
            id(function)
            for module in autowrap_modules
            for name, function in vars(module).items()
            if not name.startswith("_") and callable(function)
        } | set(map(id, autowrap_functions))
        self.param_shapes_constant = param_shapes_constant
        self.submodule_paths: dict[nn.Module, str] | None = None
        self.module_stack = OrderedDict()
        self.num_calls: Counter[str] = Counter()

    # --- What a subclass may change ---------------------------------------------------------------------------------

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether the calls of a module `m` are nodes of their own: by default those of norch.nn, but for Sequential.

        module_qualified_name: its path below the root.
        """
        module = type(m).__module__
        return f"{module}.".startswith("norch.nn.") and not isinstance(m, nn.Sequential)

    def path_of_module(self, mod: nn.Module) -> str:
        """The dotted path of a module `mod` below the root. Raises NameError where it is not there."""
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
        """What a call of a module `m` gives while it is traced: a node for a leaf, else what `forward(*args, **kwargs)`
        gives, whose steps are recorded. Raises NameError as `path_of_module`."""
        path = self.path_of_module(m)
        before = self.num_calls[path]
        self.num_calls[path] += 1
        assert self.module_stack is not None
        self.module_stack[f"{path}@{before}" if before else path] = path, type(m)
        try:
            if not self.is_leaf_module(m, path):
                return forward(*args, **kwargs)
            return self.create_proxy("call_module", path, args, kwargs)
        finally:
            self.module_stack.popitem()

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """What an attribute of a module, `attr`, gives a traced function: of a parameter of the root a Proxy, else
        `attr_val` as it is. parameter_proxy_cache: the proxies by name, so that each parameter has one node."""
        name = self.tensor_attrs.get(attr_val) if isinstance(attr_val, norch.Tensor) else None
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
            name = self.tensor_attrs.get(a)
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
            self.tensor_attrs[value] = name
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

        concrete_args: values for arguments, by name: the graph holds for these alone, and raises AssertionError for
        others that are compared by `==` or are None. `PH` in tuples, lists and dicts among them stands for what is
        traced. Raises TraceError where it asks for values, and as `create_arg`.
        """
        if isinstance(root, nn.Module):
            self.root = root
            function: Callable[..., Any] = getattr(type(root), getattr(self, "traced_func_name", "forward"))
            self.submodule_paths = {module: name for name, module in root.named_modules()}
        else:
            self.root = nn.Module()
            function = root
        self.tensor_attrs = {
            value: f"{name}.{key}".lstrip(".")
            for name, module in self.root.named_modules()
            for key, value in vars(module).items()
            if isinstance(value, norch.Tensor)
        }
        self.graph = Graph(tracer_cls=type(self))
        self.module_stack, self.num_calls = OrderedDict(), Counter()
        called, args = self.create_args_for_root(function, isinstance(root, nn.Module), concrete_args)
        with self._recording(function):
            result = called(*args)
        annotation = _known(getattr(function, "__annotations__", {}).get("return"))
        self.create_node("output", "output", (self.create_arg(result),), {}, type_expr=annotation)
        return self.graph

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: dict[str, Any] | None = None
    ) -> tuple[Callable[..., Any], list[Any]]:
        """A function that does what `root_fn` does, and its arguments: the root, and proxies of placeholders.

        Of `*args` and `**kwargs` too there is one placeholder each. Raises RuntimeError where there is no such
        argument as `concrete_args` names. is_module: whether `root_fn` is a module's `forward`, which takes it first.
        """
        concrete = dict(concrete_args or {})
        function = root_fn if isinstance(inspect.unwrap(root_fn), FunctionType) else _as_function(root_fn)
        parameters = list(inspect.signature(function).parameters.values())[is_module:]
        args: list[Any] = [self.root] if is_module else []
        for parameter in sorted(parameters, key=lambda p: _LAST.get(p.kind, 0)):
            stars = _STARS.get(parameter.kind, "")
            default = () if parameter.default is parameter.empty else (self.create_arg(parameter.default),)
            annotation = _known(parameter.annotation)
            proxy = self.create_proxy("placeholder", f"{stars}{parameter.name}", default, {}, type_expr=annotation)
            args.append(proxy)
        unknown = concrete.keys() - {parameter.name for parameter in parameters}
        if unknown:
            raise RuntimeError(f"concrete_args names what is no argument of the function: {', '.join(unknown)}")
        for i, parameter in enumerate(sorted(parameters, key=lambda p: _LAST.get(p.kind, 0)), is_module):
            if parameter.name in concrete:
                args[i] = _given(args[i], concrete[parameter.name], parameter.name)
        if any(p.kind in _LAST or p.kind is p.KEYWORD_ONLY for p in parameters) and isinstance(root_fn, FunctionType):
            function = _with_plain_arguments(inspect.unwrap(root_fn))  # type: ignore[arg-type]
        return function, args

    @contextmanager
    def _recording(self, function: Callable[..., Any]) -> Iterator[None]:
        """Within it calls of modules, of wrapped functions and of those of `autowrap_modules` come to this tracer."""
        global _is_fx_tracing_flag
        proxies: dict[str, Any] = {}

        @functools.wraps(_orig_module_call)
        def call_module(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            def forward(*args: Any, **kwargs: Any) -> Any:
                return _orig_module_call(module, *args, **kwargs)

            names = getattr(getattr(type(module), "forward", None), "__globals__", {})
            _autowrap_check(patcher, names, self._autowrap_function_ids)
            return self.call_module(module, forward, args, kwargs)

        def attribute(module: nn.Module, name: str) -> Any:
            value = object.__getattribute__(module, name)
            if not isinstance(value, norch.Tensor) or _is_of_module(sys._getframe(1).f_globals.get("__name__", "")):
                return value
            return self.getattr(name, value, proxies)

        before = _is_fx_tracing_flag
        with _Patcher() as patcher:
            patcher.patch_method(nn.Module, "__call__", call_module)
            patcher.patch_method(nn.Module, "__getattribute__", attribute)
            _patch_wrapped_functions(patcher)
            for names in (*map(vars, self._autowrap_search), getattr(inspect.unwrap(function), "__globals__", {})):
                _autowrap_check(patcher, names, self._autowrap_function_ids)
            _is_fx_tracing_flag = True
            try:
                yield
            finally:
                _is_fx_tracing_flag = before


_STARS: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
_LAST: dict[Any, int] = {inspect.Parameter.VAR_POSITIONAL: 1, inspect.Parameter.VAR_KEYWORD: 2}


def _is_of_module(name: str) -> bool:
    """Whether code is that of modules and tracers, which know parameters as they are."""
    return name.startswith(("norch.nn.", "norch.fx.")) or overrides.is_inside(name)


def _known(annotation: Any) -> Any:
    """An annotation; None for none, and for one that is kept as text, whose names the code does not have."""
    return None if annotation is inspect.Parameter.empty or isinstance(annotation, str) else annotation


def _given(proxy: Proxy, value: Any, name: str) -> Any:
    """A value of `concrete_args`, with the parts of the proxy in the place of each PH; the graph checks the others."""
    if isinstance(value, PHBase):
        return proxy
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[_given(proxy[i], part, name) for i, part in enumerate(value)])
    if isinstance(value, list | tuple):
        return type(value)([_given(proxy[i], part, name) for i, part in enumerate(value)])
    if isinstance(value, dict):
        return {key: _given(proxy[key], part, name) for key, part in value.items()}
    if value is None:
        message = f"{name} has been specialized to have value None but got another value"
        proxy.tracer.create_proxy("call_function", _assert_is_none, (proxy, message), {})
    elif type(value) in base_types and not isinstance(value, norch.Tensor):
        norch._assert(proxy == value, f"{name} has been specialized to have value {value} but got another value")
    return value


def _assert_is_none(value: Any, message: str) -> None:
    if value is not None:
        raise AssertionError(message)


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


def symbolic_trace(root: nn.Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None) -> GraphModule:
    """A GraphModule that does what `root` does, a module or function, which is run once on proxies to record it.

    Its parts are those of the module. concrete_args: see `Tracer.trace`, whose errors it raises.
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, nn.Module) else getattr(root, "__name__", type(root).__name__)
    return GraphModule(tracer.root, graph, cast("str", name))
