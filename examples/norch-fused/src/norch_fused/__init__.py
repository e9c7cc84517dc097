"""norch_fused: `norch.swiglu`, an op that norch does not have. norch finds it by the entry point in pyproject.toml."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import norch
from norch.plugin_ops import Inferred, Spec, floating, hookimpl, infer_elementwise, new_op

from .cpu import swiglu_on_cpu

if TYPE_CHECKING:
    from norch import Tensor
    from norch.testing.samples import Sample


def infer(gate: Spec, up: Spec) -> Inferred:
    """The result's shape, dtype and layout, and what the kernel gets: both operands broadcast and promoted."""
    floating("swiglu", gate, up)
    return infer_elementwise("swiglu", (gate, up))


def gate_rule(g: Tensor, gate: Tensor, up: Tensor) -> Tensor:
    s = norch.sigmoid(gate)
    return g * up * (s + gate * s * (1 - s))


def up_rule(g: Tensor, gate: Tensor) -> Tensor:
    return g * norch.silu(gate)


def sample() -> Sample:
    """What the op is tried with on every device, and what should come out."""
    import numpy as np

    from norch.testing.samples import Sample
    from norch.testing.samples.record import case, x

    def oracle(gate: Any, up: Any) -> Any:
        return gate / (1 + np.exp(-gate)) * up

    cases = (case(x(3, 4), x(3, 4)), case(x(2, 3, 4), x(4)), case(x(), x()), case(x(0, 2), x(0, 2)), case(x(70), x(1)))
    return Sample("swiglu", oracle, cases, "float", method=None, loose=4)


@new_op(infer, {"gate": gate_rule, "up": up_rule}, kernels={"cpu": swiglu_on_cpu}, sample=sample)
def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up, the gated unit of Shazeer, 2020; the two broadcast and promote, and must be floating.

    Recorded as one node that keeps `gate` and `up` alone: two thirds of what silu and mul keep. Raises DTypeError, and
    ShapeError for operands that do not broadcast.
    """
    return norch.silu(gate) * up


@hookimpl
def norch_ops() -> list[Any]:
    return [swiglu]
