"""Whether a derivative rule may write over a tensor that its node has saved: nothing will see it again."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ..observing import unobserved
from .graph import Node

if TYPE_CHECKING:
    from ..tensor import Tensor


def is_spent(tensor: Tensor) -> bool:
    """Of an operand of a rule, asked in the rule itself: whether its node, which is about to free it, is all that holds
    it and its memory."""
    # The calls between are those of `_of_a_rule`.
    if sys.getrefcount(tensor) > HELD_BY_NODE:
        return False
    base = tensor.base is not None
    if base and sys.getrefcount(tensor.base) > HELD_ONCE:
        return False
    if sys.getrefcount(tensor.buffer) > HELD_ONCE + base or tensor.spec.overlaps:
        return False
    frame: Any = sys._getframe(2)
    of_a_node = unobserved(Node.run_backward).__code__
    for _ in range(3):
        if frame is None or frame.f_code is of_a_node:
            break
        frame = frame.f_back
    else:
        return False
    if frame is None:
        return False
    backward = frame.f_locals["backward"]
    return not (backward.retain or backward.create or frame.f_locals["self"].packs)


HELD_ONCE = 2
"""What `sys.getrefcount` says of an attribute that one object alone has."""


def _of_an_operand(operand: object) -> int:
    return sys.getrefcount(operand)


def _of_a_rule(operand: object) -> int:
    return _of_an_operand(operand)


def _of_a_node(saved: tuple[object, ...]) -> int:
    return _of_a_rule(saved[0])


HELD_BY_NODE = _of_a_node((object(),))
"""What it says in a function that a rule calls with an operand that its node alone has. Versions of Python differ."""
