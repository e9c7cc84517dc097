"""Graph: what a function or module computes, as a list of nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self

from .codegen import CodeGen as CodeGen
from .codegen import PythonCode as PythonCode
from .naming import Namespace, find, path_of, snake_case
from .node import Argument, Node, Target, map_aggregate
from .node import map_arg as map_arg

if TYPE_CHECKING:
    from norch import nn

    from .graph_module import GraphModule

_Namespace = Namespace


class _NodeList:
    """The nodes of a graph in order; nodes may be added and erased while they are gone through."""

    def __init__(self, graph: Graph, backwards: bool = False) -> None:
        self._graph, self._backwards = graph, backwards

    def __len__(self) -> int:
        return self._graph._len

    def __iter__(self) -> Iterator[Node]:
        root = self._graph._root
        node = root._prev if self._backwards else root._next
        while node is not root:
            if not node._erased:
                yield node
            node = node._prev if self._backwards else node._next

    def __reversed__(self) -> _NodeList:
        return _NodeList(self._graph, not self._backwards)


class _InsertPoint:
    """Where new nodes go; within `with` of it."""

    def __init__(self, graph: Graph, insert: Callable[[Node], None]) -> None:
        self._graph, self._before = graph, graph._insert
        graph._insert = insert

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._graph._insert = self._before


class Graph:
    """Steps (`Node`) that compute something, each after those whose results it takes.

        graph = fx.Graph()
        x = graph.placeholder("x")
        y = graph.call_function(norch.relu, (x,))
        graph.output(y)
        module = fx.GraphModule({}, graph)

    `symbolic_trace` makes one of a module or function; a GraphModule computes what one says.
    """

    def __init__(self, owning_module: GraphModule | None = None, tracer_cls: type | None = None) -> None:
        """owning_module: whose parameters and modules nodes name. tracer_cls: the class of the tracer that makes it."""
        self._root = Node.__new__(Node)
        self._root.__dict__.update(
            graph=self, name="", op="root", target="", type=None, users={}, meta={}, _input_nodes={}, _erased=False
        )
        self._root.__dict__.update(_args=(), _kwargs={}, _prev=self._root, _next=self._root)
        self._len = 0
        self._insert: Callable[[Node], None] = self._root.prepend
        self._graph_namespace = Namespace()
        self._codegen = CodeGen()
        self._owning_module = owning_module
        self._tracer_cls = tracer_cls

    @property
    def owning_module(self) -> GraphModule | None:
        """The module whose graph it is; None where it is the graph of none."""
        return self._owning_module

    @owning_module.setter
    def owning_module(self, module: GraphModule | None) -> None:
        self._owning_module = module

    @property
    def nodes(self) -> _NodeList:
        """The nodes in order: iterated, reversed, and counted by len."""
        return _NodeList(self)

    def find_nodes(self, *, op: str, target: Target | None = None, sort: bool = True) -> list[Node]:
        """The nodes of an op, and of a target if there is one, in order. sort: taken for PyTorch's sake."""
        return [node for node in self.nodes if node.op == op and (target is None or node.target == target)]

    def output_node(self) -> Node:
        """The output. Raises AssertionError where there is none yet."""
        last = self._root._prev
        if last.op != "output":
            raise AssertionError("output_node(): the graph has no output yet")
        return last

    # --- Adding nodes -----------------------------------------------------------------------------------------------

    def create_node(
        self,
        op: str,
        target: Target,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Adds a node where nodes are added: at the end, or where `inserting_before` and `inserting_after` say.

        op, target, args, kwargs: see `Node`. name: of its result, with a number behind it where it is taken; by default
        it is the target's. type_expr: the annotation of its result. Raises ValueError as Node does.
        """
        name = self._graph_namespace.create_name(self._target_to_str(target) if name is None else name)
        node = Node(self, name, op, target, args or (), kwargs or {}, type_expr)
        self._graph_namespace.associate_name_with_obj(name, node)
        self._insert(node)
        self._len += 1
        return node

    def placeholder(self, name: str, type_expr: Any = None, default_value: Argument = ...) -> Node:
        """Adds an argument: `name` with one or two `*` before it takes the others. Arguments come before all else.

        type_expr: its annotation. default_value: what it is where it is not given; with `...` it must be.
        """
        args = () if default_value is ... else (default_value,)
        return self.create_node("placeholder", name, args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """Adds a node of the attribute of the owning module at the dotted path `qualified_name`."""
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(
        self,
        module_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Adds a call of the module of the owning module at the dotted path `module_name`."""
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(
        self,
        method_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Adds a call of the method of `args[0]` that `method_name` names."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self,
        the_function: Callable[..., Any],
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any = None,
        name: str | None = None,
    ) -> Node:
        """Adds a call of `the_function`. name: as of `create_node`."""
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def output(self, result: Argument, type_expr: Any = None) -> Node:
        """Adds what is returned: a node, or tuples, lists and dicts of them. It is the last node of a graph."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Argument] = lambda node: node) -> Node:
        """Adds a copy of a node of another graph. arg_transform: gives the nodes of this graph for its arguments."""
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        copied = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        copied.meta = dict(node.meta)
        return copied

    def graph_copy(self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False) -> Any:
        """Adds copies of all nodes of `g` that `val_map`, to which they are added, does not have.

        Returns what the output of `g` has as its argument, of this graph; None where it has no output. With
        `return_output_node` a tuple of that and the output node of `g`.
        """
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                found = map_arg(node.args[0], val_map.__getitem__)
                return (found, node) if return_output_node else found
            val_map[node] = self.node_copy(node, val_map.__getitem__)
        return None

    def inserting_before(self, n: Node | None = None) -> _InsertPoint:
        """New nodes go before `n`, within `with` or from now on; None is before all. AssertionError for nodes of
        others."""
        return _InsertPoint(self, (self._root._next if n is None else self._own(n)).prepend)

    def inserting_after(self, n: Node | None = None) -> _InsertPoint:
        """New nodes go right behind `n`, a second one before the first, as PyTorch's; None is behind all.
        AssertionError for nodes of others."""
        return _InsertPoint(self, self._root.prepend if n is None else self._own(n).append)

    def _own(self, node: Node) -> Node:
        if node.graph is not self:
            raise AssertionError(f"the node {node.name} is of another graph")
        return node

    # --- Removing nodes ---------------------------------------------------------------------------------------------

    def erase_node(self, to_erase: Node) -> None:
        """Removes the node `to_erase`. Raises RuntimeError where it has users, AssertionError for nodes of others."""
        if to_erase.users:
            raise RuntimeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the graph: "
                f"{to_erase.users}!"
            )
        self._own(to_erase)
        if to_erase._erased:
            return
        to_erase._remove_from_list()
        to_erase._erased = True
        self._len -= 1
        to_erase._update((), {})

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Removes nodes that nobody uses, and returns whether there were any. Those of `Node.is_impure` stay.

        is_impure_node: says it in its place. Raises as `lint`, which is called first.
        """
        self.lint()
        before = len(self.nodes)
        for node in reversed(self.nodes):
            if not node.users and not (is_impure_node(node) if is_impure_node else self._is_impure(node)):
                self.erase_node(node)
        return len(self.nodes) < before

    @staticmethod
    def _is_impure(node: Node) -> bool:
        return node.is_impure() if node.op != "call_module" or node.graph.owning_module is not None else True

    # --- Copies -----------------------------------------------------------------------------------------------------

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Graph:
        copied = Graph(tracer_cls=self._tracer_cls)
        memo = {} if memo is None else memo
        memo[id(self)] = copied
        nodes: dict[Node, Node] = {}
        for node in self.nodes:
            nodes[node] = copied.node_copy(node, nodes.__getitem__)
        copied._codegen = self._codegen
        return copied

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: nodes refer to others by their number, functions of norch by their path."""
        number = {node: i for i, node in enumerate(self.nodes)}

        def kept(arg: Argument) -> Argument:
            return map_arg(arg, lambda node: _Reference(number[node]))

        nodes = [
            (n.op, _Function.of(n.target), kept(n.args), kept(n.kwargs), n.name, n.type, n.meta.get("is_wrapped"))
            for n in self.nodes
        ]
        return {"nodes": nodes, "codegen": self._codegen, "tracer_cls": self._tracer_cls}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Graph.__init__(self, tracer_cls=state["tracer_cls"])
        self._codegen = state["codegen"]
        nodes: list[Node] = []
        for op, target, args, kwargs, name, annotation, is_wrapped in state["nodes"]:
            found = target.found() if isinstance(target, _Function) else target
            nodes.append(
                self.create_node(op, found, _restored(args, nodes), _restored(kwargs, nodes), name, annotation)
            )
            if is_wrapped:
                nodes[-1].meta["is_wrapped"] = True

    # --- Showing and checking it ------------------------------------------------------------------------------------

    def _target_to_str(self, target: Target) -> str:
        name = target.lstrip("*") if isinstance(target, str) else getattr(target, "__name__", type(target).__name__)
        if name.startswith("__") and name.endswith("__"):
            name = name.strip("_")
        return snake_case(name)

    def python_code(self, root_module: str, **options: Any) -> PythonCode:
        """Python code of what it does. root_module: what the code calls the owning module. options: are PyTorch's, of
        how its code is coloured and commented, and change nothing here."""
        return self._codegen.write(self, root_module)

    def set_codegen(self, codegen: CodeGen) -> None:
        """Has `codegen` write the code."""
        self._codegen = codegen

    def process_inputs(self, *args: Any) -> Any:
        """`CodeGen.process_inputs` of the arguments `args`."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        """`CodeGen.process_outputs` of the result `out`."""
        return self._codegen.process_outputs(out)

    def __str__(self) -> str:
        return "\n    ".join(["graph():", *[str(node.format_node()) for node in self.nodes]])

    def print_tabular(self) -> None:
        """Prints a table of the nodes: op, name, target, args and kwargs."""
        rows = [[n.op, n.name, n._shown_target(), str(n.args), str(n.kwargs)] for n in self.nodes]
        rows.insert(0, ["opcode", "name", "target", "args", "kwargs"])
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        rows.insert(1, ["-" * width for width in widths])
        for row in rows:
            print("  ".join([cell.ljust(width) for cell, width in zip(row, widths)]).rstrip())

    def lint(self) -> None:
        """Checks that arguments come from nodes before, that names are there once, and that attributes and modules are.

        Raises RuntimeError where they do not.
        """
        seen: set[Node] = set()
        names: set[str] = set()
        for node in self.nodes:
            for argument in node.all_input_nodes:
                if argument.graph is not self:
                    raise RuntimeError(f"Argument '{argument}' of Node '{node}' does not belong to this Graph")
                if argument not in seen:
                    raise RuntimeError(
                        f"Argument '{argument}' of Node '{node}' was used before it has been defined! Please check "
                        f"that Nodes in the graph are topologically ordered\n{self}"
                    )
            if node.name in names:
                raise RuntimeError(f"Node redefined name {node.name}!")
            seen.add(node)
            names.add(node.name)
            if node.op in ("get_attr", "call_module") and self.owning_module is not None:
                _check_target(self.owning_module, node)


class _Reference(int):
    """The number of a node, in a pickle."""


class _Function(str):
    """The path of a function of norch, in a pickle."""

    @classmethod
    def of(cls, target: Any) -> Any:
        path = None if isinstance(target, str) else path_of(target)
        return target if path is None else cls(path)

    def found(self) -> Any:
        return find(self)


def _restored(arg: Any, nodes: list[Node]) -> Any:
    return map_aggregate(arg, lambda leaf: nodes[leaf] if isinstance(leaf, _Reference) else leaf)


def _check_target(module: nn.Module, node: Node) -> None:
    found: Any = module
    for part in node.target.split("."):
        if not hasattr(found, part):
            raise RuntimeError(
                f"Node {node} target {node.target} references nonexistent attribute {part} of {type(found).__name__}"
            )
        found = getattr(found, part)
    if node.op == "call_module" and not callable(found):
        raise RuntimeError(f"Node {node} target {node.target} is no module that can be called")
