"""Statements of a step that is taken apart: what they read, assign and change, and whether they can be parts."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

_REPLAYED = frozenset({"backward", "step", "zero_grad"})
"""Methods whose calls, as statements, are replayed: others (append, log, write) may be for what they do in Python."""

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_LEFT = (
    *_SCOPES, ast.Try, ast.Import, ast.ImportFrom, ast.Delete, ast.Match, ast.Raise, ast.Return, ast.Yield,
    ast.YieldFrom, ast.Await,
)  # fmt: skip
"""Statements that have one of these in them run as they are."""


class Statement:
    """A statement: which names it reads and assigns, which of these in any case, and whether it is no part.

    blocks: the statements within it, if it is taken apart too.
    """

    def __init__(self, node: ast.stmt, names: frozenset[str]) -> None:
        self.node, self.names = node, names
        self.first, self.last = node.lineno, node.end_lineno or node.lineno
        self.reads = _reads(node) & names
        self.writes = {n.id for n in _names(node) if isinstance(n.ctx, ast.Store)} & names
        self.surely = _surely(node) & names
        self.eager = self.is_left = _left_as_it_is(node)
        self.blocks: list[list[Statement]] = []
        if self.eager and self.can_be_opened and not isinstance(node, ast.If):
            self.open()
            self.close()

    @property
    def can_be_opened(self) -> bool:
        loop = isinstance(self.node, ast.For | ast.While)
        return isinstance(self.node, ast.With | ast.If) or (loop and not self.node.orelse)  # type: ignore[attr-defined]

    def open(self) -> None:
        """Takes it apart: what stands before its first block runs as it is."""
        self.eager = True
        node: Any = self.node
        bodies = [node.body, node.orelse] if isinstance(node, ast.If) else [node.body]
        self.blocks = [[Statement(inner, self.names) for inner in body] for body in bodies]

    def close(self) -> None:
        """Leaves it whole where nothing in it can be a part."""
        if all(s.eager for s in self.leaves()):
            self.blocks = []

    def leave(self, changed: set[str]) -> None:
        """Has what reads one of these names run as it is."""
        if changed.isdisjoint(_read(self.node)):
            return
        if not self.eager and self.can_be_opened and not isinstance(self.node, ast.If):
            self.open()
        for statement in within(self.blocks):
            statement.leave(changed)
        self.eager = True
        self.close()

    def leaves(self) -> Iterator[Statement]:
        """Itself, or the statements within it that are not taken apart."""
        if not self.blocks:
            yield self
        for statement in within(self.blocks):
            yield from statement.leaves()

    def every(self) -> Iterator[Statement]:
        """Itself and all statements within it."""
        yield self
        for statement in within(self.blocks):
            yield from statement.every()

    @property
    def head(self) -> list[ast.AST]:
        """What of it is no part by what it is."""
        if not self.blocks:
            return [self.node] if self.is_left else []
        node: Any = self.node
        if isinstance(node, ast.With):
            return [*node.items]
        return [node.iter, node.target] if isinstance(node, ast.For) else [node.test]

    def refuse(self, line: int) -> None:
        """Has what is at that line run as it is."""
        if not self.blocks and self.can_be_opened:
            is_within = any(body.lineno <= line for body in self.node.body)  # type: ignore[attr-defined]
            if is_within or not isinstance(self.node, ast.If):
                self.open()
        for statement in within(self.blocks):
            if statement.first <= line <= statement.last:
                statement.refuse(line)
        self.eager = True


def within(blocks: list[list[Statement]]) -> list[Statement]:
    return [statement for block in blocks for statement in block]


def _left_as_it_is(node: ast.stmt) -> bool:
    """Whether a statement does something that a part could not, or that a replay would leave out."""
    last = isinstance(node, ast.Return)
    if _jumps(node):
        return True
    for inner in ast.walk(node):
        if isinstance(inner, _LEFT) and not (last and inner is node):
            return True
        if isinstance(inner, ast.Attribute | ast.Subscript) and isinstance(inner.ctx, ast.Store):
            return True
        if isinstance(inner, ast.Name) and inner.id in ("super", "__class__", "print"):
            return True
        if isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Call):
            function = inner.value.func
            name = getattr(function, "attr", getattr(function, "id", ""))
            if name not in _REPLAYED and not (name.endswith("_") and not name.endswith("__")):
                return True
    return False


def _jumps(node: ast.AST) -> bool:
    """Whether it leaves a loop that it stands in, or begins its next turn."""
    if isinstance(node, ast.For | ast.While):
        return any(map(_jumps, node.orelse))
    return isinstance(node, ast.Break | ast.Continue) or any(map(_jumps, ast.iter_child_nodes(node)))


def changed_by(node: ast.AST) -> set[str]:
    """The names and attributes of what a statement stores into, or calls a method of for what that does."""
    targets: list[ast.AST] = []
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
            targets.append(inner)
        elif isinstance(inner, ast.Subscript) and isinstance(inner.ctx, ast.Store):
            targets.append(inner.value)
        elif isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Call):
            if isinstance(inner.value.func, ast.Attribute):
                targets.append(inner.value.func.value)
    return {getattr(t, "attr", getattr(t, "id", "")) for t in targets}


def _read(node: ast.AST) -> set[str]:
    """The names and attributes that a statement reads."""
    return {getattr(n, "attr", getattr(n, "id", "")) for n in ast.walk(node) if isinstance(n, ast.Attribute | ast.Name)}


def _names(node: ast.AST) -> list[ast.Name]:
    """The names in it but for comprehensions' own."""
    own = {id(g) for n in ast.walk(node) for g in _own_of_comprehension(n)}
    return [n for n in ast.walk(node) if isinstance(n, ast.Name) and id(n) not in own]


def _reads(node: ast.AST) -> set[str]:
    """The names that it reads before it has surely assigned them itself."""
    if not isinstance(node, ast.With | ast.If | ast.For | ast.While):
        found = {n.id for n in _names(node) if isinstance(n.ctx, ast.Load)}
        return found | (set(targets(node.target)) if isinstance(node, ast.AugAssign) else set())
    heads: list[Any] = [*node.items] if isinstance(node, ast.With) else [getattr(node, "iter", None) or node.test]  # type: ignore[union-attr]
    found = {n.id for head in heads for n in _names(head) if isinstance(n.ctx, ast.Load)}
    first = _surely(ast.With(heads, [])) if isinstance(node, ast.With) else targets(getattr(node, "target", None))
    for block in (node.body, getattr(node, "orelse", [])):
        assigned = set(first)
        for inner in block:
            found |= _reads(inner) - assigned
            assigned |= _surely(inner)
    return found


def _own_of_comprehension(node: ast.AST) -> list[ast.AST]:
    """The names in a comprehension that are its own variables."""
    if not isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        return []
    own = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
    return [n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in own]


def _surely(node: ast.AST) -> frozenset[str]:
    """The names that a statement assigns whenever it does not raise."""
    if isinstance(node, ast.If):
        one, other = (frozenset().union(*map(_surely, body)) for body in (node.body, node.orelse))
        return one & other if node.orelse else frozenset()
    if isinstance(node, ast.With):
        return frozenset().union(*map(_surely, node.body), *(targets(i.optional_vars) for i in node.items))
    if isinstance(node, ast.Assign):
        return frozenset().union(*map(targets, node.targets))
    if isinstance(node, ast.AnnAssign):
        return targets(node.target) if node.value is not None else frozenset()
    if isinstance(node, ast.AugAssign):
        return targets(node.target)
    return frozenset()


def targets(node: ast.AST | None) -> frozenset[str]:
    if node is None:
        return frozenset()
    return frozenset(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
