"""Node: a step of a Graph, and the arguments it has."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import norch

from .immutable_collections import immutable_dict, immutable_list
from .naming import qualified_name

if TYPE_CHECKING:
    from .graph import Graph

Argument = Any
Target = str | Callable[..., Any]
F = TypeVar("F", bound=Callable[..., Any])

OPS = ("placeholder", "get_attr", "call_function", "call_method", "call_module", "output")

base_types = (
    str, int, float, bool, complex, bytes, type(None), type(...),
    norch.Tensor, norch.dtype, norch.device, norch.layout, norch.memory_format,
)  # fmt: skip
"""Of what an argument may be, besides nodes and containers of arguments."""

_side_effectful_functions: set[Callable[..., Any]] = {operator.setitem}


def has_side_effect(fn: F) -> F:
    """Keeps calls of `fn` where `Graph.eliminate_dead_code` removes what nobody uses. Returns `fn`; a decorator too."""
    _side_effectful_functions.add(fn)
    return fn


def map_aggregate(a: Argument, fn: Callable[[Any], Any]) -> Argument:
    """The argument with `fn` applied to each leaf of its tuples, lists, dicts and slices, in immutable containers."""
    if isinstance(a, tuple):
        parts = [map_aggregate(part, fn) for part in a]
        return type(a)(*parts) if hasattr(a, "_fields") else tuple(parts)
    if isinstance(a, list):
        return immutable_list([map_aggregate(part, fn) for part in a])
    if isinstance(a, dict):
        return immutable_dict({key: map_aggregate(value, fn) for key, value in a.items()})
    if isinstance(a, slice):
        return slice(map_aggregate(a.start, fn), map_aggregate(a.stop, fn), map_aggregate(a.step, fn))
    return fn(a)


def map_arg(a: Argument, fn: Callable[[Node], Any]) -> Argument:
    """The argument `a` with `fn(node)` in the place of each Node in it. AssertionError where `fn` is no function."""
    if not callable(fn):
        raise AssertionError("map_arg(): fn must be callable")
    return map_aggregate(a, lambda leaf: fn(leaf) if isinstance(leaf, Node) else leaf)


class Node:
    """One step of a Graph, which makes it: see `Graph.placeholder` and the methods beside it.

    op: one of

    - "placeholder": an argument of the graph, named by `target`, its default in `args`;
    - "get_attr": the parameter, buffer or other attribute of the owning module at the dotted path `target`;
    - "call_function": `target(*args, **kwargs)`;
    - "call_method": the method `target` of `args[0]`, with the other arguments;
    - "call_module": the module at the path `target` of the owning module, called with the arguments;
    - "output": what the graph returns, which is `args[0]`.

    name: the variable of its result, of which there is one in the graph. args, kwargs: the arguments, in which nodes
    stand for their results. users: the nodes whose arguments it is among. meta: a dict for notes of one's own.
    """

    def __init__(
        self,
        graph: Graph,
        name: str,
        op: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        return_type: Any = None,
    ) -> None:
        """Raises ValueError for an op that is none of those, or a target that is no callable or string as it asks.

        return_type: the annotation of its result.
        """
        if op not in OPS:
            raise ValueError(f"Node [graph = {graph}, name = '{name}']: op must be one of {OPS}, got {op!r}")
        if op == "call_function":
            if not callable(target):
                raise ValueError(f"Node [graph = {graph}, name = '{name}']: target {target!r} must be callable")
        elif not isinstance(target, str):
            raise ValueError(f"Node [graph = {graph}, name = '{name}']: target {target!r} must be a string")
        self.graph = graph
        self.name = name
        self.op = op
        self.target: Any = target
        self.type = return_type
        self.users: dict[Node, None] = {}
        self.meta: dict[str, Any] = {}
        self._input_nodes: dict[Node, None] = {}
        self._erased = False
        self._prev = self._next = self
        self._args: tuple[Argument, ...] = ()
        self._kwargs: dict[str, Argument] = {}
        self._update(args, kwargs)

    def _update(self, args: Any, kwargs: Any) -> None:
        found: dict[Node, None] = {}

        def note(node: Node) -> Node:
            found[node] = None
            return node

        self._args = map_arg(tuple(args), note)
        self._kwargs = map_arg(dict(kwargs), note)
        for node in self._input_nodes:
            node.users.pop(self, None)
        self._input_nodes = found
        for node in found:
            node.users[self] = None

    @property
    def args(self) -> tuple[Argument, ...]:
        """The arguments by position, which can be assigned; `users` of the nodes among them follow."""
        return self._args

    @args.setter
    def args(self, value: tuple[Argument, ...]) -> None:
        self._update(value, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Argument]:
        """The arguments by name, which can be assigned."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, value: dict[str, Argument]) -> None:
        self._update(self._args, value)

    def update_arg(self, idx: int, arg: Argument) -> None:
        """Sets the argument at the position `idx` to `arg`. Raises IndexError where there is none."""
        args = list(self._args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Argument) -> None:
        """Puts `arg` before the argument at the position `idx`. Raises IndexError unless 0 <= idx <= len(args)."""
        if not 0 <= idx <= len(self._args):
            raise IndexError(f"insert_arg(): idx must be in 0..{len(self._args)}, got {idx}")
        self.args = (*self._args[:idx], arg, *self._args[idx:])

    def update_kwarg(self, key: str, arg: Argument) -> None:
        """Sets the argument of the name `key` to `arg`."""
        self.kwargs = {**self._kwargs, key: arg}

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among the arguments, each once, in order."""
        return list(self._input_nodes)

    @property
    def stack_trace(self) -> str | None:
        """Where it was traced, if the tracer noted it: `meta["stack_trace"]`."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    # --- Its place in the graph -------------------------------------------------------------------------------------

    @property
    def next(self) -> Node:
        """The node after this one; after the last comes the root of the graph's ring, of the op "root"."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before this one."""
        return self._prev

    def prepend(self, x: Node) -> None:
        """Moves `x` before this node. Raises AssertionError where it is of another graph."""
        if self.graph is not x.graph:
            raise AssertionError("prepend(): the nodes are of different graphs")
        if x is self:
            return
        x._remove_from_list()
        before = self._prev
        before._next = x
        x._prev, x._next, self._prev = before, self, x

    def append(self, x: Node) -> None:
        """Moves `x` behind this node. Raises AssertionError where it is of another graph."""
        self._next.prepend(x)

    def _remove_from_list(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev

    # --- Its users --------------------------------------------------------------------------------------------------

    def replace_all_uses_with(
        self,
        replace_with: Node,
        delete_user_cb: Callable[[Node], bool] = lambda user: True,
        *,
        propagate_meta: bool = False,
    ) -> list[Node]:
        """Puts `replace_with` among the arguments of all users in the place of this node. Returns those that changed.

        delete_user_cb: says of a user whether it is to change. propagate_meta: whether `replace_with`, whose own `meta`
        must be empty, takes this node's. Raises AssertionError where it is not.
        """
        if propagate_meta:
            if replace_with.meta:
                raise AssertionError("replace_all_uses_with(): propagate_meta asks for a node whose meta is empty")
            replace_with.meta.update(self.meta)
        changed = [user for user in self.users if delete_user_cb(user)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Puts `new_input` wherever `old_input` is among the arguments."""

        def replaced(node: Node) -> Node:
            return new_input if node is old_input else node

        self._update(map_arg(self._args, replaced), map_arg(self._kwargs, replaced))

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether it does more than give its result, so that it is kept where nobody uses that: placeholders, outputs,
        functions of `has_side_effect`, methods and functions that write in place, and those that draw random numbers.

        impure_random: whether those that draw are among them. Raises AssertionError for a call of a module where the
        graph is of none.
        """
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            name = getattr(self.target, "__name__", "").partition(".")[0]  # of add_.Tensor, "add_"
            known = self.target in _side_effectful_functions or name in _CHECKS or (impure_random and name in _RANDOM)
            return known or _is_in_place(name, self.kwargs)
        if self.op == "call_method":
            return _is_in_place(self.target, self.kwargs)
        if self.op == "call_module":
            module = self.graph.owning_module
            if module is None:
                raise AssertionError("is_impure(): the graph has no owning module, which has the module that is called")
            return getattr(module.get_submodule(self.target), "_is_impure", False)
        return False

    # --- Showing it -------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return self.name

    def _shown_target(self) -> str:
        return self.target if isinstance(self.target, str) else qualified_name(self.target)

    def format_node(
        self,
        placeholder_names: list[str] | None = None,
        maybe_return_typename: list[str] | None = None,
        *,
        include_tensor_metadata: bool = False,
    ) -> str | None:
        """A line that says what it does: `%relu : [num_users=1] = call_function[target=norch.relu](args = (%x,), ...)`.

        placeholder_names, maybe_return_typename: lists that placeholders and the output add theirs to; those then give
        None, and what is returned. include_tensor_metadata: taken for PyTorch's sake.
        """
        annotation = f"{type_repr(self.type)} " if self.type is not None else ""
        line = f"%{self.name} : {annotation}[num_users={len(self.users)}] = {self.op}[target={self._shown_target()}]"
        if self.op == "placeholder":
            default = f"(default={_format_arg(self.args[0])})" if self.args else ""
            if placeholder_names is None:
                return line + default
            placeholder_names.append(self.target + (f": {annotation.strip()}" if annotation else "") + default)
            return None
        if self.op == "get_attr":
            return line
        if self.op == "output":
            if annotation and maybe_return_typename is not None:
                maybe_return_typename[:] = [f" -> {annotation.strip()}"]
            return f"return {self.args[0]}"
        return f"{line}(args = {_format_arg(self.args)}, kwargs = {_format_arg(self.kwargs)})"


_CHECKS = frozenset({"_assert", "_assert_async"})
_RANDOM = frozenset(
    "rand randn randint randperm normal bernoulli multinomial dropout rand_like randn_like randint_like".split()
)


def _is_in_place(name: str, kwargs: dict[str, Any]) -> bool:
    return (name.endswith("_") and not name.startswith("_")) or name == "__setitem__" or "out" in kwargs


def _format_arg(arg: Argument) -> str:
    if isinstance(arg, Node):
        return f"%{arg.name}"
    if isinstance(arg, tuple) and hasattr(arg, "_fields"):
        parts = zip(arg._fields, arg, strict=True)
        return f"{type(arg).__name__}({', '.join(f'{name}={_format_arg(part)}' for name, part in parts)})"
    code = code_of_nested(arg, _format_arg)
    return str(arg) if code is None else code


def code_of_nested(arg: Argument, part: Callable[[Any], str]) -> str | None:
    """The code of a tuple, list or dict, of whose parts it is `part`; None for what is none of them."""
    if isinstance(arg, tuple):
        return f"({', '.join(map(part, arg))}{',' * (len(arg) == 1)})"
    if isinstance(arg, list):
        return f"[{', '.join(map(part, arg))}]"
    if isinstance(arg, dict):
        return f"{{{', '.join(f'{part(key)}: {part(value)}' for key, value in arg.items())}}}"
    return None


def type_repr(annotation: Any) -> str:
    """An annotation as it is written in code."""
    if isinstance(annotation, str):
        return annotation
    if isinstance(annotation, type) and not hasattr(annotation, "__args__"):
        return annotation.__qualname__ if annotation.__module__ == "builtins" else qualified_name(annotation)
    return repr(annotation).replace("NoneType", "None")
