"""Derivative rules: what their parameters ask for, and how a node gives it to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..tensor_base import TensorBase

if TYPE_CHECKING:
    from ..dispatch.op import Op
    from .graph import Node

Bound = Callable[..., Any]
"""A rule ready to be called: with a node, the gradient of its result and, of a rule of all inputs at once, the nodes
that lead to what the pass is asked for (None for all)."""


NONE, SECOND, ALL = range(3)
"""Which of an op's results a rule needs; the larger includes the smaller."""


class Rule:
    """A derivative rule and where its arguments come from, read off its parameter names.

    `g` or `grad` is the gradient of the result, `y` the result (a tuple of several, of which `y1` is the second alone),
    `needs` a tuple of bools (which inputs the pass wants a gradient of, for rules of all inputs at once). `NAME` is the
    op's operand or attribute of that name, `NAME_spec` the spec alone of that operand, which keeps no memory alive.
    """

    __slots__ = ("fetch", "function", "saved_inputs", "saved_outputs")

    G, Y, NEEDS, Y1 = -1, -2, -3, -4
    SPECS = -10

    def __init__(self, op: Op, function: Callable[..., Any]) -> None:
        code = getattr(function, "__wrapped__", function).__code__  # a composite is written when it is first called
        special = {"g": self.G, "grad": self.G, "y": self.Y, "y1": self.Y1, "needs": self.NEEDS}
        fetch = []
        for name in code.co_varnames[: code.co_argcount]:
            if name in op.params:
                fetch.append(op.params.index(name))
            elif name in special:
                fetch.append(special[name])
            elif name.endswith("_spec") and name[:-5] in op.params:
                fetch.append(self.SPECS - op.params.index(name[:-5]))
            else:
                known = ", ".join([*special, *op.params])
                raise TypeError(f"{op.name}: the rule's parameter {name!r} is none of {known}")
        self.function = function
        self.fetch = tuple(fetch)
        self.saved_inputs = frozenset(i for i in fetch if i >= 0)
        self.saved_outputs = ALL if self.Y in fetch else SECOND if self.Y1 in fetch else NONE


def bind_rule(op: Op, rule: Rule, at: int) -> Bound:
    """`rule`, which is that of operand `at`, as a function of a node and a gradient.

    It is written for the rule's parameters when it is first called: a loop over them takes three times as long.
    """

    def first(node: Node, grad: Any, *needed: Any) -> Any:
        scope: dict[str, Any] = {"_function": rule.function, "_Tensor": TensorBase}
        exec(compile(_source(op, rule), f"<norch rule {op.name}>", "exec"), scope)
        op.bound[at] = bound = scope["_bound"]
        return bound(node, grad, *needed)

    return first


def _source(op: Op, rule: Rule) -> str:
    lines = [f"def _bound(node, grad{', needed' if op.joint else ''}):"]
    if rule.saved_inputs:
        lines += ["    values = node.saved_inputs", "    if values is None:", "        raise node.freed()"]
    for at in sorted(rule.saved_inputs & set(op.tensors)):
        lines += [
            f"    value = values[{at}]",
            "    if isinstance(value, _Tensor):",
            "        modified = value.buffer.modified",
            "        if modified is not None and modified[0] > node.sequence_number:",
            "            node.check_unchanged(value, 'its input')",
        ]
    special = {
        rule.G: "grad",
        rule.Y: "node.saved_result()",
        rule.Y1: "node.saved_result(1)",
        rule.NEEDS: "tuple([e is not None and (needed is None or e in needed) for e in node.edges])",
    }
    arguments = [
        special.get(at) or (f"values[{at}]" if at >= 0 else f"node.plan.inputs[{rule.SPECS - at}]") for at in rule.fetch
    ]
    return "\n".join([*lines, f"    return _function({', '.join(arguments)})"])
