"""Checks of operands that several families share."""

from __future__ import annotations

from ..dtype import INTEGER
from ..errors import DTypeError
from ..spec import Spec


def require_integers(op: str, name: str, spec: Spec) -> None:
    """Raises DTypeError unless the operand `name` holds integers."""
    if spec.dtype.category != INTEGER:
        raise DTypeError(f"{op}(): {name} must hold integers, got {spec.dtype}")
