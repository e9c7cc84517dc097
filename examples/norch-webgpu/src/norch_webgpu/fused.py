"""The composite "fused": a chain of elementwise steps as one kernel."""

from norch.backend import Kernel, parse_steps

from .devices import Runtime
from .dtypes import KINDS, Attrs, Operands, as_computed, as_stored, kind
from .elementwise import cast, each, rule

GELU = {"tanh": "0.5f * a * (1 + tanh_f32(0.797884561f * (a + 0.044715f * a * a * a)))"}


def fused(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    """None where a step has no expression: then core calls the steps one by one."""
    results, kinds = attrs["results"], [kind(o) for o in operands]
    steps = parse_steps(attrs["steps"])

    def compute(given: list[str]) -> tuple[str, list[str]]:
        return "", []

    return None
