"""Finds the places of a graph that compute what a pattern does, and puts something else there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from norch import nn

from ._symbolic_trace import symbolic_trace
from .graph import Graph
from .graph_module import GraphModule, _copy_attr
from .node import Node, map_aggregate

Pattern = Callable[..., Any] | nn.Module | GraphModule | Graph


class Match(NamedTuple):
    """A place that was replaced: the node of the pattern's output there, and by node of the pattern the graph's."""

    anchor: Node
    nodes_map: dict[Node, Any]


def replace_pattern(gm: GraphModule, pattern: Pattern, replacement: Pattern) -> list[Match]:
    """Replaces, in place, each part of `gm` that computes what `pattern` does by what `replacement` does.

    pattern, replacement: functions or modules with the same arguments, in the same order, which are traced, or graphs.
    A part matches where the same functions, methods and modules are called with the same constants, and where nobody
    outside of it uses what it computes on the way; arguments of the pattern match anything. Parts that share nodes with
    one before are left. Returns the matches, from the first on. Raises RuntimeError where the arguments of the two
    differ in number, and what tracing raises.
    """
    wanted, instead = _graph_of(pattern), _graph_of(replacement)
    if len(wanted.find_nodes(op="placeholder")) != len(instead.find_nodes(op="placeholder")):
        raise RuntimeError("replace_pattern(): pattern and replacement must have the same arguments")
    output = wanted.output_node().args[0]
    if not isinstance(output, Node):
        output = output[0] if len(output) == 1 else None
    if output is None or output.op == "placeholder":
        raise RuntimeError("replace_pattern(): the pattern must return one value, that it computes")
    matches: list[Match] = []
    taken: set[Node] = set()
    replaced: dict[Node, Node] = {}
    for node in list(gm.graph.nodes):
        found = _Matching(gm, pattern, wanted).match(output, node)
        if found is None:
            continue
        inner = {n for p, n in found.items() if p.op not in ("placeholder", "get_attr") and isinstance(n, Node)}
        if inner & taken:
            continue
        taken |= inner
        matches.append(Match(node, found))
        _replace(gm, wanted, instead, found, node, replaced)
    if not isinstance(replacement, Graph) and isinstance(replacement, nn.Module):
        for copied in instead.nodes:
            if copied.op in ("call_module", "get_attr") and matches:
                _copy_attr(replacement, gm, copied.target)
    gm.recompile()
    return matches


def _graph_of(given: Pattern) -> Graph:
    if isinstance(given, Graph):
        return given
    return given.graph if isinstance(given, GraphModule) else symbolic_trace(given).graph


class _Matching:
    """Whether a node of a module's graph computes what a node of the pattern does."""

    def __init__(self, gm: GraphModule, pattern: Pattern, graph: Graph) -> None:
        self.gm, self.pattern, self.graph = gm, pattern, graph
        self.found: dict[Node, Any] = {}

    def match(self, wanted: Node, node: Node) -> dict[Node, Any] | None:
        if not self._same(wanted, node):
            return None
        for part, found in self.found.items():  # of what it computes on the way nobody else may know
            if part is not wanted and part.op not in ("placeholder", "get_attr"):
                if any(user not in self.found.values() for user in found.users):
                    return None
        return self.found

    def _same(self, wanted: Any, given: Any) -> bool:
        if isinstance(wanted, Node):
            if wanted in self.found:
                return bool(self.found[wanted] is given or (wanted.op == "placeholder" and self.found[wanted] == given))
            if wanted.op == "placeholder":
                self.found[wanted] = given
                return True
            if not isinstance(given, Node) or wanted.op != given.op or not self._same_target(wanted, given):
                return False
            self.found[wanted] = given
            return self._same(wanted.args, given.args) and self._same(wanted.kwargs, given.kwargs)
        if isinstance(wanted, tuple | list):
            kind = tuple if isinstance(wanted, tuple) else list
            return isinstance(given, kind) and len(given) == len(wanted) and all(map(self._same, wanted, given))
        if isinstance(wanted, dict):
            return (
                isinstance(given, dict)
                and given.keys() == wanted.keys()
                and all(self._same(value, given[key]) for key, value in wanted.items())
            )
        if isinstance(wanted, slice):
            parts = (wanted.start, wanted.stop, wanted.step)
            return isinstance(given, slice) and self._same(parts, (given.start, given.stop, given.step))
        return bool(type(wanted) is type(given) and wanted == given)

    def _same_target(self, wanted: Node, given: Node) -> bool:
        if wanted.op == "call_module" and isinstance(self.pattern, nn.Module):
            return type(self.pattern.get_submodule(wanted.target)) is type(self.gm.get_submodule(given.target))
        return bool(wanted.target == given.target)


def _replace(
    gm: GraphModule, wanted: Graph, instead: Graph, found: dict[Node, Any], anchor: Node, replaced: dict[Node, Node]
) -> None:
    """Puts the nodes of `instead` before the anchor, and removes those of `found` that nobody uses any more."""
    values = [found.get(node) for node in wanted.find_nodes(op="placeholder")]
    values = [replaced.get(value, value) if isinstance(value, Node) else value for value in values]
    copies: dict[Node, Any] = dict(zip(instead.find_nodes(op="placeholder"), values))

    def of_copy(leaf: Any) -> Any:
        return copies[leaf] if isinstance(leaf, Node) else leaf

    with gm.graph.inserting_before(anchor):
        for node in instead.nodes:
            if node.op == "output":
                result = map_aggregate(node.args[0], of_copy)
            elif node.op != "placeholder":
                args, kwargs = map_aggregate(node.args, of_copy), map_aggregate(node.kwargs, of_copy)
                copies[node] = gm.graph.create_node(node.op, node.target, args, kwargs, node.name, node.type)
    if isinstance(result, tuple | list) and len(result) == 1:
        result = result[0]
    anchor.replace_all_uses_with(result)
    replaced[anchor] = result
    matched = [node for part, node in found.items() if part.op != "placeholder"]
    for node in sorted(matched, key=list(gm.graph.nodes).index, reverse=True):
        if not node.users:
            gm.graph.erase_node(node)
