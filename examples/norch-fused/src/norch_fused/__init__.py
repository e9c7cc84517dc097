"""norch_fused: `norch.swiglu`, an op that norch does not have. norch finds it by the entry point in pyproject.toml."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import norch
from norch.plugin_ops import Inferred, Spec, floating, hookimpl, infer_elementwise, new_op

from . import cpu, samples

if TYPE_CHECKING:
    from norch import Tensor


def infer(gate: Spec, up: Spec) -> Inferred:
    """The result's shape, dtype and layout, and what the kernel gets: both operands broadcast and promoted."""
    floating("swiglu", gate, up)
    return infer_elementwise("swiglu", (gate, up))


def infer_grad(g: Spec, gate: Spec, up: Spec) -> Inferred:
    found = infer_elementwise("swiglu_grad", (g, gate, up))
    return found._replace(outputs=found.outputs * 2)


@new_op(infer_grad, sample=samples.swiglu_grad, kernels={"cpu": cpu.in_pieces(cpu.swiglu_grad)})
def swiglu_grad(g: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of swiglu's operands, broadcast as the result is. An op, so that it too may have a kernel."""
    s = norch.sigmoid(gate)
    y = gate * s
    return g * up * (s + y * (1 - s)), g * y


@new_op(infer, swiglu_grad, joint=True, sample=samples.swiglu, kernels={"cpu": cpu.in_pieces(cpu.swiglu)})
def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up, the gated unit of Shazeer, 2020; the two broadcast and promote, and must be floating.

    Recorded as one node that keeps `gate` and `up` alone: two thirds of what silu and mul keep. Raises DTypeError, and
    ShapeError for operands that do not broadcast.
    """
    return norch.silu(gate) * up


@hookimpl
def norch_ops() -> list[Any]:
    return [swiglu, swiglu_grad]
