"""The text of the composites "fused" and "fused_rows": an elementwise program, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

ROW_REDUCTIONS = frozenset({"sum", "prod", "amax", "amin"})
"""May be steps of "fused_rows"."""

FUSED_COMPOSITES = frozenset(
    {
        "addcdiv", "addcmul", "axpy", "clamp", "elu", "elu_grad", "gelu", "gelu_grad", "hardsigmoid",
        "hardsigmoid_grad", "hardswish", "hardswish_grad", "hardtanh", "hardtanh_grad", "leaky_relu", "leaky_relu_grad",
        "lerp", "lerp_by_tensor", "relu", "relu_grad", "sigmoid_grad", "silu", "silu_grad", "softplus", "softplus_grad",
        "tanh_grad",
    }
)  # fmt: skip
"""Elementwise composites, asked for as steps where the backend had a kernel of their own."""

MAX_STEPS, MAX_OPERANDS = 32, 24
"""Of a program."""


class Step(NamedTuple):
    """A step of a program.

    op: an elementwise op, in "fused_rows" also a reduction. dtype: the name of its result's. reads: "o2" is operand 2,
    "s0" the result of step 0. attrs: the op's attributes.
    """

    op: str
    dtype: str
    reads: tuple[str, ...]
    attrs: Mapping[str, str | int | float] = {}

    def __str__(self) -> str:
        return " ".join((self.op, self.dtype, *self.reads, *[f"{name}={v}" for name, v in self.attrs.items()]))


def parse_steps(text: str) -> list[Step]:
    """The steps of the attribute `steps`, `text`. Raises ValueError where it is no program."""
    steps: list[Step] = []
    for line in text.split(";"):
        op, dtype, *words = line.split(" ")
        reads = tuple([w for w in words if "=" not in w])
        if not all(w[:1] in ("o", "s") and w[1:].isdecimal() for w in reads):
            raise ValueError(f"a step of a fused program reads o<number> and s<number>, got {line!r}")
        if any(w[0] == "s" and int(w[1:]) >= len(steps) for w in reads):
            raise ValueError(f"a step of a fused program reads the results of earlier ones, got {line!r}")
        attrs = dict([w.split("=", 1) for w in words if "=" in w])
        steps.append(Step(op, dtype, reads, {name: _value(value) for name, value in attrs.items()}))
    return steps


def _value(text: str) -> str | int | float:
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
