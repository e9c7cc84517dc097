"""Floating-point operations of products and convolutions, from the shapes of their operands."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from ..spec import Spec

Shape = tuple[int, ...]


def flops_of(op: str, specs: tuple[Any, ...], out: Spec | None) -> int:
    """Two for each multiplication with its addition, as PyTorch counts; 0 for other ops."""
    formula = FORMULAS.get(op)
    given = [tuple(s.shape) for s in specs[:2] if isinstance(s, Spec)]
    if formula is None or len(given) < 2 or out is None:
        return 0
    return 2 * formula(given[0], given[1], tuple(out.shape))


def _product(a: Shape, b: Shape, out: Shape) -> int:
    return prod(out) * (a[-1] if a else 1)


def _attention(query: Shape, key: Shape, out: Shape) -> int:
    return prod(query[:-1]) * key[-2] * (query[-1] + out[-1])


FORMULAS: dict[str, Callable[[Shape, Shape, Shape], int]] = {
    "matmul": _product,
    "linear": _product,
    "linear_activation": _product,
    "linear_input_grad": lambda grad, weight, out: prod(grad) * weight[1],
    "linear_weight_grad": lambda grad, x, out: prod(grad) * x[-1],
    "scaled_dot_product_attention": _attention,
    "scaled_dot_product_attention_sums": _attention,
}
"""Multiplications, from the shapes of the first two operands and of the result."""
for _conv in ("conv1d", "conv2d", "conv3d"):
    FORMULAS[_conv] = lambda x, weight, out: prod(out) * prod(weight[1:])
    FORMULAS[f"{_conv}_input_grad"] = lambda grad, weight, out: prod(grad) * prod(weight[1:])
    FORMULAS[f"{_conv}_weight_grad"] = lambda grad, x, out: prod(grad) * prod(out[1:])
