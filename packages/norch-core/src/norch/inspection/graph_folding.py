"""A graph with more nodes than can be shown: modules, long chains and what is oldest become a node each."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from .graph_nodes import GraphNode, counted

if TYPE_CHECKING:
    from .autograd_graph import AutogradGraph

ENDS = 3
"""How many nodes of a chain are shown at each end."""


class Shown(NamedTuple):
    """nodes: oldest first, each with edges to nodes before it. outputs: their numbers. note: what is not shown."""

    nodes: list[GraphNode]
    outputs: list[int]
    note: str


def folded(graph: AutogradGraph, limit: int | None) -> Shown:
    """What to show of a graph in at most about `limit` nodes."""
    nodes = graph.nodes
    if limit is None or len(nodes) <= limit:
        return Shown(nodes, graph.outputs, "")
    group = _by_modules(nodes, limit)
    how = "a module is a node"
    if group is None or _count(nodes, group) > limit:
        group = _chains(nodes, graph.outputs)
        how = "a chain is a node"
    if _count(nodes, group) > limit:
        older = {node.number: "older nodes" for node in nodes[: len(nodes) - limit + 1]}
        for number in graph.outputs:
            older.pop(number, None)
        group, how = older, f"the {limit - 1:,} newest are shown"
    return _merged(graph, group, how)


def _count(nodes: list[GraphNode], group: dict[int, str]) -> int:
    return len(nodes) - len(group) + len(set(group.values()))


def _by_modules(nodes: list[GraphNode], limit: int) -> dict[int, str] | None:
    """For nodes in modules of the depth with which they are just few enough, that module."""
    deepest = max([node.module.count(".") + 1 for node in nodes if node.module], default=0)
    best = None
    for depth in range(1, deepest + 1):
        group = {}
        for node in nodes:
            parts = node.module.split(".")
            if node.module and len(parts) >= depth:
                group[node.number] = ".".join(parts[:depth])
        if best is not None and _count(nodes, group) > limit:
            break
        best = group
    return best


def _chains(nodes: list[GraphNode], outputs: list[int]) -> dict[int, str]:
    """For the inner nodes of a chain, and the leaves that these alone use, its name."""
    users: dict[int, list[int]] = {}
    for node in nodes:
        for number in set(node.edges):
            users.setdefault(number, []).append(node.number)

    def before(node: GraphNode) -> int | None:
        """The only op that it comes from, if that has no other use."""
        ops = [n for n in dict.fromkeys(node.edges) if nodes[n - 1].kind != "leaf"]
        return ops[0] if len(ops) == 1 and len(users[ops[0]]) == 1 and ops[0] not in outputs else None

    group: dict[int, str] = {}
    done: set[int] = set()
    for node in reversed(nodes):
        if node.kind == "leaf" or node.number in done:
            continue
        chain = [node.number]
        at = before(node)
        while at is not None:
            chain.append(at)
            done.add(at)
            at = before(nodes[at - 1])
        inner = chain[ENDS:-ENDS]
        if len(inner) < ENDS:
            continue
        name = _of_chain([nodes[n - 1].op for n in reversed(inner)])
        key = f"{name} (#{inner[-1]} to #{inner[0]})"
        group.update(dict.fromkeys(inner, key))
        within = set(inner)
        for number in inner:
            for edge in nodes[number - 1].edges:
                if nodes[edge - 1].kind == "leaf" and within.issuperset(users[edge]):
                    group[edge] = key
    return group


def _of_chain(ops: list[str]) -> str:
    """What a chain is: "5,000 times mul, add" where it repeats itself."""
    for period in range(1, 65):
        if ops[period:] == ops[:-period] and period * 2 <= len(ops):
            times = len(ops) // period
            return f"{times:,} times {', '.join(ops[:period])}"
    return counted(len(ops), "op")


def _merged(graph: AutogradGraph, group: dict[int, str], how: str) -> Shown:
    members: dict[str, list[GraphNode]] = {}
    for node in graph.nodes:
        if node.number in group:
            members.setdefault(group[node.number], []).append(node)
    members = {key: nodes for key, nodes in members.items() if len(nodes) > 1}
    newest = {key: nodes[-1].number for key, nodes in members.items()}
    stands = {n.number: newest[key] for key, nodes in members.items() for n in nodes}
    made = [n for n in graph.nodes if n.number not in stands]
    made += [_one(key, nodes) for key, nodes in members.items()]
    made.sort(key=lambda node: node.number)
    for i, node in enumerate(made):
        operands, seen = [], set[int]()
        for name, number, position in node.operands:
            to = None if number is None else stands.get(number, number)
            # Two modules may each use what the other made: an edge to what comes later is left out.
            if node.kind == "folded" and (to is None or to >= node.number or to in seen):
                continue
            if to is None or to < node.number:
                operands.append((name, to, position))
                seen.add(to or 0)
        if operands != node.operands:
            made[i] = replace(node, operands=operands)
    shown = sum([len(nodes) for nodes in members.values()])
    note = f"{len(graph.nodes):,} nodes, of which {shown:,} are shown as {len(members):,}: {how}"
    return Shown(made, list(dict.fromkeys([stands.get(n, n) for n in graph.outputs])), note)


def _one(key: str, nodes: list[GraphNode]) -> GraphNode:
    ops = Counter([node.op for node in nodes if node.kind != "leaf"])
    leaves = sum([node.kind == "leaf" for node in nodes])
    last = next((node for node in reversed(nodes) if node.kind != "leaf"), nodes[-1])
    parts = [f"{counted(sum(ops.values()), 'op')}"] if ops else []
    if leaves:
        parts.append(counted(leaves, "leaf", "leaves"))
    return GraphNode(
        last.number if last is nodes[-1] else nodes[-1].number, "folded", key.partition(" (#")[0], last.outputs,
        operands=[operand for node in nodes for operand in node.operands if operand[1] is not None],
        saved=[saved for node in nodes for saved in node.saved], freed=any(node.freed for node in nodes),
        names=[], line=last.line, module=key if " " not in key else "", note=", ".join(parts), folded=nodes,
        grad_note="of several nodes",
    )  # fmt: skip
