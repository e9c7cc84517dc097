"""Functions of tensors with derivatives in closed form."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..autograd.function import Function
from ..autograd.graph import is_recording
from ..errors import AutogradError

if TYPE_CHECKING:
    from ..tensor import Tensor


def differentiable(name: str, function: Callable[..., Tensor], *derivatives: Callable[..., Tensor] | None) -> Any:
    """`function`, elementwise of operands of one shape, whose derivative by each is another function of them all.

    Where that is None, the backward pass raises AutogradError if the gradient is wanted.
    """

    def forward(ctx: Any, *operands: Tensor) -> Tensor:
        ctx.save_for_backward(*operands)
        return function(*operands)

    def backward(ctx: Any, grad: Tensor) -> Any:
        operands = ctx.saved_tensors
        found: list[Tensor | None] = [None] * len(operands)
        for i, derivative in enumerate(derivatives):
            if ctx.needs_input_grad[i]:
                if derivative is None:
                    raise AutogradError(f"{name}(): there is no derivative by operand {i}; detach() it")
                found[i] = grad * derivative(*operands)
        return tuple(found) if len(found) > 1 else found[0]

    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward), "over_batches": True}
    apply: Callable[..., Any] = type(name, (Function,), methods).apply  # type: ignore[attr-defined]

    def call(*operands: Tensor) -> Any:
        for x in operands:
            if x.apply_function is not None or (x.requires_grad and is_recording()):
                return apply(*operands)
        return function(*operands)

    return call
