"""Proxy: stands for a value that is not known while a function is traced, and records what is done with it."""

from __future__ import annotations

import dis
import operator
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from types import MethodType
from typing import TYPE_CHECKING, Any

import norch
from norch import overrides

from .graph import Graph
from .naming import is_public_function
from .node import Argument, Node, Target, base_types, map_aggregate


class TraceError(ValueError):
    """Raised where a function asks a Proxy for what only a value has, such as whether it is true."""


class TracerBase:
    """Makes the nodes of `graph` for what is done with proxies; a subclass may change how.

    graph: where they go. record_stack_traces: whether each node keeps where it was traced, as `Node.stack_trace`.
    module_stack: the modules whose forward runs, each path (with "@" and a number from its second call on) with that
    path and the module's class; each node has a copy, `meta["nn_module_stack"]`.
    """

    graph: Graph
    module_stack: OrderedDict[str, tuple[str, type]] | None = None
    record_stack_traces: bool = False
    check_mutable_operations: bool = False
    trace_asserts: bool = False
    proxy_buffer_attributes: bool = False

    def create_node(
        self,
        kind: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Adds a node of the op `kind` to the graph. The other arguments are those of `Graph.create_node`.

        Raises ValueError as it does.
        """
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        if self.module_stack:
            node.meta["nn_module_stack"] = self.module_stack.copy()
        return node

    def proxy(self, node: Node) -> Proxy:
        """The Proxy of a node."""
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:
        """Adds a node, whose arguments may have proxies in them, and returns its Proxy.

        kind: its op. proxy_factory_fn: makes the Proxy, in the place of `proxy`; the others are those of `create_node`.
        Raises NotImplementedError as `create_arg`, ValueError as `create_node`.
        """
        given, named = self.create_arg(tuple(args)), self.create_arg(dict(kwargs))
        node = self.create_node(kind, target, given, named, name, type_expr)
        if self.record_stack_traces:
            node.stack_trace = _user_stack()
        return (proxy_factory_fn or self.proxy)(node)

    def create_arg(self, a: Any) -> Argument:
        """A value that a traced function gave as an argument, as a node has it: with nodes for proxies.

        Raises NotImplementedError for values of types that no argument may have.
        """
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            return type(a)(*[self.create_arg(part) for part in a])
        if isinstance(a, tuple | list):
            return (tuple if isinstance(a, tuple) else list)([self.create_arg(part) for part in a])
        if isinstance(a, dict):
            for key in a:
                if _has_proxy(key):
                    raise RuntimeError("Keys for dictionaries used as an argument cannot contain a Node.")
            return {self.create_arg(key): self.create_arg(value) for key, value in a.items()}
        if isinstance(a, slice):
            return slice(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        if isinstance(a, range):
            return range(a.start, a.stop, a.step)
        if isinstance(a, Proxy):
            return a.node
        if isinstance(a, (*base_types, Node)) or callable(a):
            return a
        if is_dataclass(a):
            parts = {field.name: self.create_arg(getattr(a, field.name)) for field in fields(a)}
            return self.create_node("call_function", type(a), (), parts)
        raise NotImplementedError(f"argument of type: {type(a)}")

    def to_bool(self, obj: Proxy) -> bool:
        """Asked by `if` and the like whether `obj` is true. Raises TraceError."""
        raise TraceError(
            "symbolically traced variables cannot be used as inputs to control flow: the graph is the same for all "
            "values; trace with concrete_args, or put the part into a function of norch.fx.wrap or a leaf module"
        )

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """Asked by `for` and `*` for the parts of `obj`, which it gives to `a, b = x`. Raises TraceError else."""
        frame = sys._getframe(2)
        code = frame.f_code.co_code
        if not overrides.is_inside(_module_of(frame)) and dis.opname[code[frame.f_lasti]] == "UNPACK_SEQUENCE":
            return (obj[i] for i in range(code[frame.f_lasti + 1]))
        raise TraceError(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or as a *args or "
            "**kwargs function argument: how many parts it has is not known while a function is traced"
        )

    def keys(self, obj: Proxy) -> Any:
        """Asked by `**`: what the method `keys` of `obj` gives, a Proxy."""
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """A tracer that adds to a graph what is done with proxies that are made by hand."""

    def __init__(self, graph: Graph) -> None:
        """graph: where the nodes go."""
        self.graph = graph


def _module_of(frame: Any) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _user_stack() -> str:
    """The lines outside of norch that led here, the innermost last."""
    lines: list[str] = []
    frame: Any = sys._getframe(1)
    while frame is not None:
        if not _module_of(frame).startswith("norch."):
            lines.append(f'File "{frame.f_code.co_filename}", line {frame.f_lineno}, in {frame.f_code.co_name}')
        frame = frame.f_back
    return "\n".join(reversed(lines))


def _refuse_inside() -> None:
    """Raises where norch itself asked: a function of norch that cannot go on is recorded as a whole."""
    if overrides.is_inside(_module_of(sys._getframe(2))):
        raise TraceError("a function of norch cannot be traced: it looks at its arguments; put it into norch.fx.wrap")


def find_proxies(*values: Any) -> list[Proxy]:
    """The proxies among values, and in tuples, lists, dicts and slices among them."""
    found: list[Proxy] = []

    def look(leaf: Any) -> Any:
        if isinstance(leaf, Proxy):
            found.append(leaf)
        return leaf

    map_aggregate(tuple(values), look)
    return found


def _has_proxy(value: Any) -> bool:
    return bool(find_proxies(value))


class Proxy:
    """Stands for the result of `node`: operators, methods, attributes and functions of norch on it add nodes to its
    graph, and give proxies of those."""

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        """tracer: which makes the nodes; by default one that only adds them to the node's graph."""
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.node = node

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, name: str) -> Any:
        if (name.startswith("__") and name.endswith("__")) or overrides.is_inside(_module_of(sys._getframe(1))):
            raise AttributeError(f"a Proxy has no value while a function is traced, and no {name}")
        return Attribute(self, name)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        _refuse_inside()
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        return self.tracer.iter(self)

    def __bool__(self) -> bool:
        return self.tracer.to_bool(self)

    if TYPE_CHECKING:  # operators are put on the class below

        def __getitem__(self, key: Any) -> Proxy: ...

    def __abs__(self) -> Proxy:
        _refuse_inside()
        return self.tracer.create_proxy("call_function", abs, (self,), {})

    def keys(self) -> Any:
        """What `**` asks for: what the tracer gives."""
        return self.tracer.keys(self)

    def __len__(self) -> int:
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be recorded, please call "
            "norch.fx.wrap('len') at module scope"
        )

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Records the call of a function of norch, or of a method of a tensor, that was given proxies.

        Raises RuntimeError where they are of several tracers.
        """
        kwargs = kwargs or {}
        tracers = list({id(proxy.tracer): proxy.tracer for proxy in find_proxies(args, kwargs)}.values())
        if len(tracers) > 1:
            raise RuntimeError(f"Found multiple different tracers {tracers} while trying to trace operations {func}")
        if overrides.is_tensor_method_or_property(func) and not is_public_function(func):
            return tracers[0].create_proxy("call_method", func.__name__, args, kwargs)
        if isinstance(func, MethodType):
            return tracers[0].create_proxy("call_method", func.__name__, (func.__self__, *args), kwargs)
        return tracers[0].create_proxy("call_function", func, args, kwargs)


class Attribute(Proxy):
    """An attribute of a Proxy: a node where it is used as a value, none where it is called as a method."""

    def __init__(self, root: Proxy, attr: str) -> None:
        """root: whose attribute. attr: its name."""
        self.root = root
        self.attr = attr
        self.tracer = root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        """The node of the value, added when it is first asked for."""
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        _refuse_inside()
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """The Proxy of a parameter whose shape is known: `shape`, `size()`, `dim()`, `ndim` and `numel()` give values."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: norch.Tensor) -> None:
        """tracer, node: as of Proxy. name: the path of the parameter. param: it."""
        super().__init__(node, tracer)
        self.name = name
        self.param = param

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> norch.Size:
        """The shape of the parameter."""
        return self.param.shape

    @property
    def ndim(self) -> int:
        """The number of its dims."""
        return self.param.ndim

    def size(self, *dim: int) -> Any:
        """Its shape, or the size of the dim."""
        return self.param.size(*dim)

    def dim(self) -> int:
        """The number of its dims."""
        return self.param.ndim

    def numel(self) -> int:
        """The number of its elements."""
        return self.param.numel()

    nelement = numel


_OPERATORS = (
    "eq ne lt gt le ge pos neg invert add sub mul floordiv truediv mod pow lshift rshift and or xor matmul getitem"
)
_REFLECTED = "add sub mul floordiv truediv mod pow lshift rshift and or xor matmul"


def _operator(function: Callable[..., Any], reflected: bool = False) -> Callable[..., Proxy]:
    def call(self: Proxy, *other: Any) -> Proxy:
        _refuse_inside()
        args = (*other, self) if reflected else (self, *other)
        return self.tracer.create_proxy("call_function", function, args, {})

    return call


for _name in _OPERATORS.split():
    _function = getattr(operator, f"{_name}_" if _name in ("and", "or") else _name)
    setattr(Proxy, f"__{_name}__", _operator(_function))
    if _name in _REFLECTED.split():
        setattr(Proxy, f"__r{_name}__", _operator(_function, reflected=True))
