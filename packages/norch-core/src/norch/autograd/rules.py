"""Derivative rules: what their parameters ask for, and how a node gives it to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..op import Op
    from .graph import Node

Bound = Callable[["Node", Any], Any]
"""A rule ready to be called: with a node and the gradient of its result."""


class Rule:
    """A derivative rule and where its arguments come from, read off its parameter names.

    `g` is the gradient of the result, `y` the result, `needs` a tuple of bools (which inputs need a gradient, for
    rules of all inputs at once). `NAME` is the op's operand or attribute of that name, `NAME_spec` the spec alone of
    that operand, which keeps no memory alive.
    """

    __slots__ = ("fetch", "function", "keeps", "keeps_result")

    G, Y, NEEDS = -1, -2, -3
    SPECS = -10

    def __init__(self, op: Op, function: Callable[..., Any]) -> None:
        code = function.__code__
        special = {"g": self.G, "y": self.Y, "needs": self.NEEDS}
        fetch = []
        for name in code.co_varnames[: code.co_argcount]:
            if name in op.params:
                fetch.append(op.params.index(name))
            elif name in special:
                fetch.append(special[name])
            elif name.endswith("_spec") and name[:-5] in op.params:
                fetch.append(self.SPECS - op.params.index(name[:-5]))
            else:
                raise TypeError(f"{op.name}: the rule's parameter {name!r} is none of g, y, needs, {op.params}")
        self.function = function
        self.fetch = tuple(fetch)
        self.keeps = frozenset(i for i in fetch if i >= 0)
        self.keeps_result = self.Y in fetch


def bind_rule(op: Op, rule: Rule) -> Bound:
    """`rule` as a function of a node and a gradient.

    The commonest shapes are written out: a loop over the arguments takes twice as long.
    """
    function = rule.function
    getters = [_getter(op, rule, at) for at in rule.fetch]
    if rule.fetch == (rule.G,):
        return lambda node, grad: function(grad)
    if len(getters) == 1:
        (only,) = getters
        return lambda node, grad: function(only(node, grad))
    if len(getters) == 2:
        first, second = getters
        if rule.fetch[0] == rule.G:
            return lambda node, grad: function(grad, second(node, grad))
        return lambda node, grad: function(first(node, grad), second(node, grad))
    if len(getters) == 3 and rule.fetch[0] == rule.G:
        _, second, third = getters
        return lambda node, grad: function(grad, second(node, grad), third(node, grad))
    return lambda node, grad: function(*[get(node, grad) for get in getters])


def _getter(op: Op, rule: Rule, at: int) -> Bound:
    """How a node gives one argument of a rule."""
    if at == rule.G:
        return lambda node, grad: grad
    if at == rule.NEEDS:
        return lambda node, grad: tuple([e is not None for e in node.edges])
    if at == rule.Y:
        return lambda node, grad: node.saved_result()
    if at <= rule.SPECS:
        place = rule.SPECS - at
        return lambda node, grad: node.plan.inputs[place]

    def attribute(node: Node, grad: Any) -> Any:
        if node.values is None:
            raise node.freed()
        return node.values[at]

    def operand(node: Node, grad: Any) -> Any:
        if node.values is None:
            raise node.freed()
        value = node.values[at]
        buffer = getattr(value, "buffer", None)  # a scalar has none
        if buffer is not None:
            modified = buffer.modified
            if modified is not None and modified[0] > node.order:
                node.check_unchanged(value, "its input")
        return value

    return operand if at in op.tensors else attribute
