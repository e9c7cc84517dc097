"""Errors that a device which does not wait reports later, when the host does: an index out of range.

They name the op. Which lines called it, living nodes of the graph tell.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..autograd.graph import Node
from ..living import kinds_of, living
from ..source_lines import Line, table

if TYPE_CHECKING:
    from ..device import Device


def located(error: IndexError, device: Device) -> IndexError:
    """An error that begins with the name of an op, with a note of the lines that have called it lately."""
    name = re.match(r"\w*", str(error))[0]  # type: ignore[index]
    lines = _lines_of(name, device)
    if lines:
        error.add_note(table(*[(f"{name} was called", line) for line in lines])[1:])
    return error


def _lines_of(name: str, device: Device) -> list[Line]:
    """Some lines that recorded the op or kernel of this name, the latest first."""
    nodes: list[Any] = []
    for node in living(kinds_of(Node)):
        plan = getattr(node, "plan", None)
        if plan is not None and name in (plan.op.name, plan.op.kernel) and plan.out.device is device:
            nodes.append(node)
    nodes.sort(key=lambda node: node.sequence_number, reverse=True)
    return list(dict.fromkeys([node.line for node in nodes if node.line is not None]))[:3]
