"""The source of derivative rules: what an op's entry or a custom Function's `backward` says."""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ..autograd.function import Function
    from ..dispatch.op import Op


class Rule(NamedTuple):
    """A derivative rule: of which operand (or all of them), its source, and where that is."""

    operand: str
    source: str
    where: str


def rules_of(op: Op) -> list[Rule]:
    """A rule for each operand that has a gradient, or one for all."""
    rules = op.rules or ()
    if op.joint and rules and rules[0] is not None:
        return [_rule("all operands", rules[0].function)]
    return [_rule(op.params[at], rule.function) for at, rule in zip(op.tensors, rules, strict=True) if rule is not None]


def rules_of_function(function: type[Function]) -> list[Rule]:
    """`backward` of a custom Function."""
    return [_rule("all arguments", function.backward)]


def _rule(operand: str, function: Callable[..., Any]) -> Rule:
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    if code is None:
        return Rule(operand, repr(function), "")
    where = f"{function.__module__}, line {code.co_firstlineno}"
    try:
        source = _lambda(code) if function.__name__ == "<lambda>" else inspect.getsource(function)
    except (OSError, TypeError, SyntaxError):
        return Rule(operand, f"def {function.__name__}{inspect.signature(function)}: ...", f"{where}: no source")
    return Rule(operand, textwrap.dedent(source).rstrip(), where)


def _lambda(code: Any) -> str:
    """A lambda alone, of the statement that it is part of."""
    arguments = list(code.co_varnames[: code.co_argcount])
    at = next((p for p in code.co_positions() if p[0] is not None and p[2] is not None and p[2] != p[3]), None)
    found = _lambdas(code.co_filename).get((code.co_firstlineno, *arguments), [])
    for node, text in found:
        if len(found) == 1 or (at is not None and (node.body.lineno, node.body.col_offset) <= (at[0], at[2])):
            if len(found) == 1 or (at[1], at[3]) <= (node.body.end_lineno, node.body.end_col_offset):  # type: ignore[index]
                return text
    raise OSError("no such lambda")


@lru_cache(64)
def _lambdas(filename: str) -> dict[Any, list[tuple[Any, str]]]:
    source = "".join(linecache.getlines(filename))
    if not source:
        raise OSError(filename)
    found: dict[Any, list[tuple[Any, str]]] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Lambda):
            text = ast.get_source_segment(source, node) or ""
            found.setdefault((node.lineno, *[a.arg for a in node.args.args]), []).append((node, text))
    return found
