"""Python code of a Graph: a line a node."""

from __future__ import annotations

import builtins
import enum
import math
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import norch

from .naming import Namespace, path_of, qualified_name, root, shown_path
from .node import Argument, Node, code_of_nested, type_repr

if TYPE_CHECKING:
    from .graph import Graph


class PythonCode(NamedTuple):
    """The code of a graph: `src`, which defines `forward`, and the `globals` that it names."""

    src: str
    globals: dict[str, Any]


_BINARY = {
    "add": "+", "sub": "-", "mul": "*", "floordiv": "//", "truediv": "/", "mod": "%", "pow": "**", "lshift": "<<",
    "rshift": ">>", "and_": "&", "or_": "|", "xor": "^", "matmul": "@", "eq": "==", "ne": "!=", "lt": "<", "gt": ">",
    "le": "<=", "ge": ">=",
}  # fmt: skip
OPERATORS = {name: f"{{}} {symbol} {{}}" for name, symbol in _BINARY.items()}
OPERATORS |= {"pos": "+{}", "neg": "-{}", "invert": "~{}", "getitem": "{}[{}]"}
"""By name of a function of `operator`: the expression that it is."""

_IN_PLACE = {f"i{name.strip('_')}": f"{{}} {symbol}= {{}}" for name, symbol in _BINARY.items() if symbol[-1] != "="}


class CodeGen:
    """Writes the code of a graph. A subclass that overrides these, in `Graph.set_codegen`, writes another."""

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """The line that defines `forward`, with the arguments `free_vars` and ` -> ...`, maybe_return_annotation."""
        if not free_vars or free_vars[0] != "self":
            free_vars.insert(0, "self")
        return f"def forward({', '.join(free_vars)}){maybe_return_annotation}:"

    def generate_output(self, output_args: Argument) -> str:
        """The line that returns. output_args: what, whose repr is its code."""
        return f"return {output_args!r}"

    def process_inputs(self, *args: Any) -> Any:
        """The arguments of the graph of those of `forward`."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """What `forward` returns, of the graph's `outputs`."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        """Names that the code has besides."""
        return []

    def write(self, graph: Graph, root_module: str) -> PythonCode:
        """The code of a graph, whose owning module it names `root_module`."""
        return _Writer(self, root_module).write(graph)


class _Code(str):
    """A piece of code, whose repr is it: `generate_output` shows arguments by theirs."""

    def __repr__(self) -> str:
        return str(self)


class _Writer:
    def __init__(self, codegen: CodeGen, root_module: str) -> None:
        self.codegen, self.root_module = codegen, root_module
        self.globals: dict[str, Any] = {root(): norch, **dict(codegen.additional_globals())}
        self.names = Namespace()
        self.wrapped: list[str] = []

    def write(self, graph: Graph) -> PythonCode:
        for node in graph.nodes:
            self.names.associate_name_with_obj(node.name, node)
        freed_at = last_uses(graph.nodes)
        arguments: list[str] = []
        lines: list[str] = []
        returned = ""
        for node in graph.nodes:
            if node.op == "placeholder":
                arguments.append(self._argument(node))
                variable = node.target.replace("*", "")
                if variable != node.name:
                    lines.append(f"{node.name} = {variable}")
                if not node.users and variable != node.name:
                    lines[-1] += f";  {node.name} = None"
            elif node.op == "output":
                if node.type is not None:
                    returned = f" -> {self._annotation(node.type)}"
                lines.append(self.codegen.generate_output(_Code(self.argument(node.args[0]))))
            else:
                freed = "".join([f"{each.name} = " for each in freed_at[node]])
                lines.append(self._statement(node) + (f";  {freed}None" if freed else ""))
        head = self.codegen.gen_fn_def(arguments, returned)
        body = "\n".join([f"    {line}" for line in "\n".join(lines or ["pass"]).split("\n")])
        wraps = "\n".join([f'{root()}.fx._symbolic_trace.wrap("{name}")' for name in self.wrapped])
        return PythonCode(f"\n{wraps}\n\n{head}\n{body}\n", self.globals)

    def _argument(self, node: Node) -> str:
        annotation = f" : {self._annotation(node.type)}" if node.type is not None else ""
        default = f" = {self.argument(node.args[0])}" if node.args else ""
        return f"{node.target}{annotation}{default}"

    def _statement(self, node: Node) -> str:
        annotation = f" : {self._annotation(node.type)}" if node.type is not None else ""
        args = [self.argument(arg) for arg in node.args]
        if node.op == "call_function" and node.target.__module__ == "_operator" and not node.kwargs:
            if node.target.__name__ in _IN_PLACE:
                return f"{_IN_PLACE[node.target.__name__].format(*args)};  {node.name}{annotation} = {args[0]}"
            if node.target.__name__ in OPERATORS:
                return f"{node.name}{annotation} = {OPERATORS[node.target.__name__].format(*args)}"
        return f"{node.name}{annotation} = {self._call(node, args)}"

    def _call(self, node: Node, args: list[str]) -> str:
        if node.op == "get_attr":
            return attribute(self.root_module, node.target)
        if node.op == "call_function" and node.target is getattr and len(args) == 2 and _is_name(node.args[1]):
            return attribute(args[0], node.args[1])
        if node.op == "call_method":
            called = attribute(args.pop(0), node.target)
        else:
            called = (
                attribute(self.root_module, node.target) if node.op == "call_module" else self.of_object(node.target)
            )
            if node.meta.get("is_wrapped") and called not in self.wrapped:
                self.wrapped.append(called)
        given = [*args, *[f"{key} = {self.argument(value)}" for key, value in node.kwargs.items()]]
        return f"{called}({', '.join(given)})"

    def argument(self, arg: Argument) -> str:
        """The code of an argument."""
        if isinstance(arg, Node):
            return arg.name
        if isinstance(arg, tuple) and hasattr(arg, "_fields"):
            return f"{self.of_object(type(arg))}({', '.join(map(self.argument, arg))})"
        nested = code_of_nested(arg, self.argument)
        if nested is not None:
            return nested
        if isinstance(arg, slice):
            return f"slice({', '.join(map(self.argument, (arg.start, arg.stop, arg.step)))})"
        if isinstance(arg, float) and not math.isfinite(arg):
            return f"float('{arg}')"
        if arg is None or (
            isinstance(arg, bool | int | float | complex | str | bytes) and not isinstance(arg, enum.Enum)
        ):
            return repr(arg)
        if isinstance(arg, norch.dtype | norch.layout | norch.memory_format):
            return shown_path(f"norch.{str(arg).partition('.')[2]}")
        if isinstance(arg, norch.device):
            return f"{root()}.{arg!r}"
        return "..." if arg is ... else self.of_object(arg)

    def of_object(self, value: Any) -> str:
        """The name of a function, class or other object, which becomes a global unless it is norch's or Python's."""
        name = getattr(value, "__name__", "")
        if getattr(builtins, name or "?", None) is value:
            return str(name)
        path = path_of(value) if name else None
        if path is not None:
            return shown_path(path)
        hint = qualified_name(value) if name else f"{type(value).__module__}.{type(value).__qualname__}"
        found = self.names.create_name(hint, value)
        self.globals[found] = value
        return found

    def _annotation(self, annotation: Any) -> str:
        if isinstance(annotation, str):
            return repr(annotation)
        if annotation is None or isinstance(annotation, type):
            return "None" if annotation is None else self.of_object(annotation)
        found = self.names.create_name(type_repr(annotation), annotation)
        self.globals[found] = annotation
        return found


def attribute(base: str, path: str) -> str:
    """The code of an attribute at a dotted path, whose parts may be numbers."""
    for part in path.split("."):
        base = f"{base}.{part}" if _is_name(part) else f'getattr({base}, "{part}")'
    return base


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value.isidentifier()


def last_uses(nodes: Iterable[Node]) -> dict[Node, list[Node]]:
    """By node, the nodes whose results are used there for the last time, or never."""
    last: dict[Node, list[Node]] = defaultdict(list)
    seen: set[Node] = set()
    for user in reversed(list(nodes)):
        if user.op == "output":
            seen.update(user.all_input_nodes)
            continue
        for node in user.all_input_nodes:
            if node not in seen:
                seen.add(node)
                last[user].append(node)
        if user not in seen and user.op != "placeholder":
            last[user].append(user)
    return last
