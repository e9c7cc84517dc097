"""split_module: a graph in parts, each a module of its own."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ... import nn
from ..graph import Graph
from ..graph_module import GraphModule
from ..node import Node, map_arg

_WHOLE = ("placeholder", "get_attr", "output")
"""Kinds of nodes that stay with the whole."""


class Partition:
    """A part: its nodes in their order, what it takes of others, and what others take of it."""

    def __init__(self, name: str) -> None:
        self.name = self.submod_name = name
        self.nodes: list[Node] = []
        self.inputs: dict[Node, None] = {}
        self.outputs: dict[Node, None] = {}
        self.needs: set[str] = set()


def split_module(
    m: GraphModule,
    root_m: nn.Module,
    split_callback: Callable[[Node], Any],
    qualname_map: dict[str, str] | None = None,
    keep_original_order: bool | None = False,
    keep_original_node_name: bool | None = False,
    keep_original_input_name: bool = True,
    *,
    partition_affix: str | None = None,
) -> GraphModule:
    """A module that calls the parts of `m` one after another: `submod_0`, `submod_1`, ...

    root_m: has the modules and tensors that nodes name; commonly `m` itself. split_callback: gives the part of a node,
    an int or a string. qualname_map: gets, for each module of a part, the path that it had. partition_affix: stands in
    the names, `submod_AFFIX_0`. keep_original_node_name, keep_original_input_name: whether nodes of the parts, and what
    the parts take, have the names of the nodes in `m`. keep_original_order: changes nothing, parts come in the order of
    their first nodes, where what they need comes before. Raises RuntimeError where two parts need each other.
    """
    found, of = _partitions(m, split_callback, partition_affix)
    attributes: dict[str, Any] = {}
    graph, known = Graph(), dict[Node, Node]()
    for node in m.graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            known[node] = graph.node_copy(node)
            if node.op == "get_attr":
                attributes[str(node.target)] = operator.attrgetter(str(node.target))(root_m)
    for part in _in_order(found):
        made = _part(part, root_m, qualname_map, bool(keep_original_node_name), keep_original_input_name)
        attributes[part.submod_name] = made
        call = graph.call_module(part.submod_name, tuple(known[node] for node in part.inputs))
        if len(part.outputs) == 1:
            known[next(iter(part.outputs))] = call
        else:
            for i, node in enumerate(part.outputs):
                known[node] = graph.call_function(operator.getitem, (call, i))
    graph.output(map_arg(m.graph.output_node().args[0], lambda node: known[node]))
    return GraphModule(attributes, graph)


def _partitions(
    m: GraphModule, split_callback: Callable[[Node], Any], affix: str | None
) -> tuple[dict[str, Partition], dict[Node, str]]:
    """The parts by name, and of each node the name of its part."""
    found, of = dict[str, Partition](), dict[Node, str]()
    for node in m.graph.nodes:
        if node.op not in _WHOLE:
            name = of[node] = str(split_callback(node))
            part = found.setdefault(name, Partition(name))
            part.submod_name = f"submod_{name}" if affix is None else f"submod_{affix}_{name}"
            part.nodes.append(node)
    for node in m.graph.nodes:
        own = of.get(node)
        for source in node.all_input_nodes:
            home = of.get(source)
            if home == own:
                continue
            if own is not None:
                found[own].inputs.setdefault(source)
            if home is not None:
                found[home].outputs.setdefault(source)
                if own is not None:
                    found[own].needs.add(home)
    return found, of


def _in_order(found: dict[str, Partition]) -> list[Partition]:
    """The parts, each after those that it needs."""
    ordered: list[Partition] = []
    waiting = list(found.values())
    done: set[str] = set()
    while waiting:
        ready = next((part for part in waiting if part.needs <= done), None)
        if ready is None:
            raise RuntimeError(f"cycle exists between partitions: {', '.join(part.name for part in waiting)}")
        waiting.remove(ready)
        ordered.append(ready)
        done.add(ready.name)
    return ordered


def _part(
    part: Partition, root_m: nn.Module, qualname_map: dict[str, str] | None, keep_names: bool, keep_input_names: bool
) -> GraphModule:
    graph, known, modules = Graph(), dict[Node, Node](), dict[str, Any]()
    for i, source in enumerate(part.inputs):
        known[source] = graph.placeholder(source.name if keep_input_names else f"arg_{i}", source.type)
        known[source].meta = source.meta.copy()
    for node in part.nodes:
        target = node.target
        if node.op == "call_module":
            target = str(target).replace(".", "_")
            modules[target] = root_m.get_submodule(str(node.target))
            if qualname_map is not None:
                qualname_map[f"{part.submod_name}.{target}"] = str(node.target)
        args = map_arg(node.args, lambda n: known[n])
        kwargs = map_arg(node.kwargs, lambda n: known[n])
        name = node.name if keep_names else None
        known[node] = graph.create_node(node.op, target, args, kwargs, name, node.type)  # type: ignore[arg-type]
        known[node].meta = node.meta.copy()
    outputs = tuple(known[node] for node in part.outputs)
    graph.output(outputs[0] if len(outputs) == 1 else outputs)
    return GraphModule(modules, graph)
