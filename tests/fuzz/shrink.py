"""Makes a failing program small: fewer lines, then smaller expressions, for as long as it fails in the same way."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Callable, Iterator

Lines = tuple[str, ...]
Check = Callable[[Lines], str | None]


def shrunk(lines: Lines, check: Check, failure: str, tries: int = 400, seconds: float = 60) -> tuple[Lines, str]:
    """A smaller program that fails in the same way, and what it fails with."""
    wanted, left, until = kind_of(failure), tries, time.monotonic() + seconds

    def fails(candidate: Lines) -> str | None:
        nonlocal left
        left -= 1 if time.monotonic() < until else left
        found = check(candidate) if left > 0 else None
        return found if found is not None and kind_of(found) == wanted else None

    smaller = True
    while smaller and left > 0:
        smaller = False
        for candidate in smaller_programs(lines):
            found = fails(candidate)
            if found is not None:
                lines, failure, smaller = candidate, found, True
                break
    return lines, failure


def kind_of(failure: str) -> str:
    """A failure without its numbers and names: two of one kind are taken for the same bug."""
    head = re.split(r"\s{4}|\n", failure)[0]
    head = re.sub(r"^(\w+)(\[[^]]*\])*: ", "", head)
    head = re.sub(r"\[.*?\]|'[^']*'|\(.*?\)", "", head)
    return re.sub(r"-?\d[\d.e+-]*|nan|inf", "", head)[:60]


def smaller_programs(lines: Lines) -> Iterator[Lines]:
    """Candidates, the boldest first."""
    count = len(lines)
    size = count // 2
    while size:
        for start in range(0, count, size):
            if size < count:
                yield lines[:start] + lines[start + size :]
        size //= 2
    for i, line in enumerate(lines):
        for text in smaller_lines(line):
            yield (*lines[:i], text, *lines[i + 1 :])


def smaller_lines(line: str) -> Iterator[str]:
    """The line with one of its statements, arguments, elements or literals simpler."""
    try:
        tree = ast.parse(line)
    except SyntaxError:
        return
    if len(tree.body) > 1:
        for i in range(len(tree.body)):
            yield "; ".join(ast.unparse(s) for j, s in enumerate(tree.body) if j != i)
    for node in list(ast.walk(tree)):
        for text in simpler(tree, node):
            if len(text) < len(line) or (len(text) == len(line) and text < line):
                yield text


def simpler(tree: ast.Module, node: ast.AST) -> Iterator[str]:
    """The tree with something left out of one node, which is then put back."""

    def rendered() -> str:
        return "; ".join(ast.unparse(s) for s in tree.body)

    if isinstance(node, ast.Call):
        for i in range(len(node.keywords)):
            removed = node.keywords.pop(i)
            yield rendered()
            node.keywords.insert(i, removed)
    if isinstance(node, ast.List | ast.Tuple) and len(node.elts) > 1 and isinstance(node.ctx, ast.Load):
        whole = node.elts
        for some in (whole[: len(whole) // 2], whole[len(whole) // 2 :]):
            node.elts = some
            yield rendered()
        for i in range(len(whole) if len(whole) <= 8 else 0):
            node.elts = whole[:i] + whole[i + 1 :]
            yield rendered()
        node.elts = whole
    if isinstance(node, ast.Constant) and isinstance(node.value, float | int) and not isinstance(node.value, bool):
        value = node.value
        for other in (0, 1, 2, round(value) if abs(value) < 1e9 and value == value else 0):
            if type(value)(other) != value:
                node.value = type(value)(other)
                yield rendered()
        node.value = value
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        yield from replaced(tree, node, node.value)
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and not isinstance(node.func.value, ast.Name)
    ):
        yield from replaced(tree, node, node.func.value)


def replaced(tree: ast.Module, node: ast.AST, by: ast.AST) -> Iterator[str]:
    """The tree with one node replaced by a part of it, then put back."""
    for parent in ast.walk(tree):
        for field, value in ast.iter_fields(parent):
            if value is node:
                setattr(parent, field, by)
                yield "; ".join(ast.unparse(s) for s in tree.body)
                setattr(parent, field, node)
            elif isinstance(value, list) and any(v is node for v in value):
                i = next(i for i, v in enumerate(value) if v is node)
                value[i] = by
                yield "; ".join(ast.unparse(s) for s in tree.body)
                value[i] = node
