"""How many floating point operations a program's products take.

The rule is that of PyTorch's FlopCounterMode: two for each multiplication with its addition, in matrix products,
convolutions, attention (causal or not) and recurrent layers; nothing for all other ops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from threading import get_ident
from typing import Any

from ..observing import INTO, OP, Observed, Observer
from ..spec import Spec
from ..tensor_base import TensorBase


def _product(out: Spec, a: Spec, *_: Spec | None) -> int:
    return 2 * out.numel * a.shape[-1]


def _linear(out: Spec, input: Spec, weight: Spec, *_: Spec | None) -> int:
    return 2 * out.numel * weight.shape[1]


def _convolution(out: Spec, input: Spec, weight: Spec, *_: Spec | None) -> int:
    return 2 * out.numel * prod(weight.shape[1:])


def _transposed(out: Spec, grad: Spec, weight: Spec, *_: Spec | None) -> int:
    return 2 * grad.numel * prod(weight.shape[1:])


def _weight_grad(out: Spec, grad: Spec, *_: Spec | None) -> int:
    """Each element of the gradient of a result meets each of the weights that made it: `out` is of the weights."""
    return 2 * grad.numel * (out.numel // max(out.shape[0], 1))


def _attention(out: Spec, query: Spec, key: Spec, value: Spec, *_: Spec | None) -> int:
    queries = query.numel // max(query.shape[-1], 1)
    return 2 * queries * key.shape[-2] * (query.shape[-1] + value.shape[-1])


def _attention_grad(out: Spec, grad: Spec, query: Spec, key: Spec, value: Spec, *_: Spec | None) -> int:
    """Five products: the scores again, and two for the gradient of each of the others."""
    queries = query.numel // max(query.shape[-1], 1)
    return 2 * queries * key.shape[-2] * (3 * query.shape[-1] + 2 * value.shape[-1])


def _recurrence(out: Spec, input: Spec, *others: Spec | None) -> int:
    weights = (others[2], others[3], others[6])  # of the input, of the state, of the projection
    return 2 * input.numel // max(input.shape[-1], 1) * sum([w.numel for w in weights if w is not None])


def _recurrence_grad(
    out: Spec, g_states: Spec | None, g_h: Spec | None, g_c: Spec | None, input: Spec, hx: Spec, cx: Spec | None,
    weight_ih: Spec, weight_hh: Spec, weight_hr: Spec | None, *_: Any,
) -> int:  # fmt: skip
    """Twice the layer's products: for what goes in, and for the weights."""
    return 2 * _recurrence(hx, input, hx, cx, weight_ih, weight_hh, None, None, weight_hr)


RULES: dict[str, Callable[..., int]] = {
    "matmul": _product,
    "linear": _linear,
    "linear_activation": _linear,
    "conv2d": _convolution,
    "conv3d": _convolution,
    "linear_input_grad": _product,
    "linear_weight_grad": _weight_grad,
    "conv2d_input_grad": _transposed,
    "conv2d_weight_grad": _weight_grad,
    "conv3d_weight_grad": _weight_grad,
    "scaled_dot_product_attention_grad": _attention_grad,
    "scaled_dot_product_attention_mask_grad": _attention_grad,
    "scaled_dot_product_attention_sums_grad": _attention_grad,
    "conv3d_input_grad": _transposed,
    "scaled_dot_product_attention": _attention,
    "scaled_dot_product_attention_sums": _attention,
    "recurrence": _recurrence,
    "recurrence_grad": _recurrence_grad,
}
"""By op, from the specs of its first result and of its operands: what a call of it takes."""


class FlopCounter(Observer):
    """Calls `count(flops, op)` for each op of this thread that has a rule. What such an op is computed from, on a
    backend that does not have it, is not counted again."""

    def __init__(self, count: Callable[[int, str], None]) -> None:
        self.count, self.thread, self.inside = count, get_ident(), 0

    def entered(self, what: Observed, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if what.kind not in (OP, INTO) or get_ident() != self.thread:
            return None
        if what.name not in RULES or self.inside:
            return None
        given = [*args, *[kwargs[name] for name in sorted(kwargs, key=lambda name: name != "input")]]
        out = given.pop(0).spec if what.kind == INTO else None
        specs = [x.spec if isinstance(x, TensorBase) else None for x in given]
        if any(spec is not None and type(spec) is not Spec for spec in specs):
            return None  # inside vmap: the op on all samples comes next
        self.inside += 1
        return what.name, out, specs

    def left(self, token: Any, result: Any, error: BaseException | None) -> None:
        if token is None:
            return
        self.inside -= 1
        op, out, specs = token
        if error is None:
            if out is None:
                out = (result[0] if isinstance(result, tuple) else result).spec
            self.count(RULES[op](out, *specs), op)
