"""Interpreter and Transformer: they go through a graph node by node, to compute it or to make another of it."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any

from norch import nn

from ._symbolic_trace import Tracer
from .codegen import last_uses
from .graph import Graph
from .graph_module import GraphModule
from .immutable_collections import immutable_dict, immutable_list
from .node import Argument, Node, Target, map_aggregate, map_arg
from .proxy import Proxy


class Interpreter:
    """Computes what a graph says, a node at a time: a subclass that overrides `run_node`, or the method of an op, sees
    and changes what is computed."""

    def __init__(self, module: nn.Module, garbage_collect_values: bool = True, graph: Graph | None = None) -> None:
        """module: a GraphModule, or with `graph` what its nodes name. garbage_collect_values: whether results are
        forgotten where they have been used for the last time."""
        self.module = module
        self.submodules = dict(module.named_modules())
        self.graph: Graph = module.graph if graph is None else graph
        self.env: dict[Node, Any] = {}
        self.name = "Interpreter"
        self.garbage_collect_values = garbage_collect_values
        self.user_to_last_uses = last_uses(self.graph.nodes) if garbage_collect_values else {}

    def run(self, *args: Any, initial_env: dict[Node, Any] | None = None, enable_io_processing: bool = True) -> Any:
        """What the graph gives for the arguments.

        initial_env: results of nodes, which are not computed. enable_io_processing: whether `Graph.process_inputs` and
        `process_outputs` are called. Raises RuntimeError where arguments are missing, and what a node raises, with a
        note of the node.
        """
        self.env = {} if initial_env is None else initial_env
        self.args_iter: Iterator[Any] = iter(self.graph.process_inputs(*args) if enable_io_processing else args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                self.env[node] = self.run_node(node)
            except Exception as error:
                error.add_note(f"While executing {node.format_node()}")
                raise
            for used in self.user_to_last_uses.get(node, ()):
                self.env.pop(used, None)
            if node.op == "output":
                result = self.env[node]
                return self.graph.process_outputs(result) if enable_io_processing else result
        return None

    def boxed_run(self, args_list: list[Any]) -> Any:
        """`run` of the arguments in `args_list`, which is emptied."""
        args = list(args_list)
        args_list.clear()
        return self.run(*args)

    def run_node(self, n: Node) -> Any:
        """What the node `n` gives: what the method of its op gives for its target and arguments."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The next argument, the others for a target with `*`, or the default in `args`. RuntimeError for none.

        kwargs: empty.
        """
        if isinstance(target, str) and target.startswith("*"):
            return {} if target.startswith("**") else list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise RuntimeError(
                f"Expected positional argument for parameter {target}, but one was not passed in!"
            ) from None

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """What the module has at the path `target`. Raises RuntimeError where there is nothing. args, kwargs: empty."""
        return self.fetch_attr(str(target))

    def call_function(self, target: Any, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """`target(*args, **kwargs)`."""
        return target(*args, **kwargs)

    def call_method(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """What the method `target` of `args[0]` gives for the others and `kwargs`."""
        owner, *others = args
        return getattr(owner, str(target))(*others, **kwargs)

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """What the module at the path `target` gives for `args` and `kwargs`."""
        return self.fetch_attr(str(target))(*args, **kwargs)

    def output(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """What the graph gives: `args[0]`. kwargs: empty."""
        return args[0]

    def fetch_attr(self, target: str) -> Any:
        """What the module has at a dotted path. Raises RuntimeError where there is nothing."""
        try:
            return attrgetter(target)(self.module)
        except AttributeError as error:
            raise RuntimeError(f"Node referenced nonexistent target {target}: {error}") from None

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of the node `n`, with results in the place of nodes."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args: Argument, n: Node) -> Any:
        """`args` of the node `n` with results in the place of nodes. RuntimeError for nodes that have none yet."""

        def value(node: Node) -> Any:
            if node not in self.env:
                raise RuntimeError(f"Node {n} referenced nonexistent value {node}! Run Graph.lint() to diagnose")
            return self.env[node]

        return _plain(map_arg(args, value))


def _plain(args: Any) -> Any:
    """Lists and dicts that functions may change, for those of nodes."""
    if isinstance(args, tuple) and not hasattr(args, "_fields"):
        return tuple([_plain(arg) for arg in args])
    if isinstance(args, immutable_list):
        return [_plain(arg) for arg in args]
    if isinstance(args, immutable_dict):
        return {key: _plain(value) for key, value in args.items()}
    return args


class _TransformerTracer(Tracer):
    """Adds to a new graph; each module is a step of it."""

    def __init__(self, graph: Graph, root: nn.Module) -> None:
        super().__init__()
        self.graph, self.root = graph, root
        self.tensor_attrs: dict[Any, str] = {}
        self.submodule_paths = {module: name for name, module in root.named_modules()}

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True


class Transformer(Interpreter):
    """An Interpreter that runs on proxies, so that `transform` gives the GraphModule of what its methods do."""

    def __init__(self, module: GraphModule) -> None:
        """module: which is transformed, and stays as it is."""
        super().__init__(module)
        self.new_graph = Graph(tracer_cls=module.graph._tracer_cls)
        self.new_graph.set_codegen(module.graph._codegen)
        self.tracer = _TransformerTracer(self.new_graph, module)

    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Proxy:
        """The Proxy of the argument of the name `target`. args: its default, if any. kwargs: empty."""
        default = args[0] if args else ...
        return Proxy(self.new_graph.placeholder(str(target), default_value=default), self.tracer)

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Proxy:
        """A Proxy of what the module has at the path `target`. args, kwargs: empty."""
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """A Proxy of what the module at the path `target` gives for `args` and `kwargs`."""
        module = self.fetch_attr(str(target))
        return self.tracer.call_module(module, module.forward, args, kwargs)

    def call_function(self, target: Any, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """A Proxy of what the function gives."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The GraphModule of what was recorded, with the modules and parameters of the old one."""
        result = super().run(enable_io_processing=False)
        if result is not None:
            old = self.graph.output_node()
            new = map_aggregate(result, lambda leaf: leaf.node if isinstance(leaf, Proxy) else leaf)
            copied = self.new_graph.output(new, old.type)
            copied.meta = dict(old.meta)
        return GraphModule(self.module, self.new_graph, type(self.module).__name__)
