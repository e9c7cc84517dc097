"""The backward pass of a Function that has just a `jvp`, which is linear in the tangents: it is transposed."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from .engine import grad
from .mode import enable_grad, is_grad_enabled

if TYPE_CHECKING:
    from .function import FunctionNode


def gradients_by_jvp(node: FunctionNode, grads: list[Any]) -> tuple[Any, ...]:
    """The gradients of the arguments of forward from those of its results.

    `jvp` gets zeros as the tangents of tensors, of which no more than how it computes with them matters.
    """
    given, create = next(g for g in grads if g is not None), is_grad_enabled()
    with enable_grad():
        tangents = [
            None if s is None else given.new_zeros(s.shape, dtype=s.dtype, device=s.device).requires_grad_()
            for s in node.inputs
        ]
        made = node.function.jvp(copy.copy(node.context), *tangents)  # which may delete what it has used
        results = made if isinstance(made, tuple) else (made,)
        pairs = [(r, g) for r, g in zip(results, grads, strict=True) if r is not None and g is not None]
        found = iter(
            grad(
                [r for r, _ in pairs],
                [t for t in tangents if t is not None],
                [g for _, g in pairs],
                create_graph=create,
                allow_unused=True,
            )
        )
        return tuple([None if t is None else next(found) for t in tangents])
