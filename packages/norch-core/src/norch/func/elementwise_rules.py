"""Batching rules of elementwise ops, reductions and ops along a dim."""

from __future__ import annotations

from typing import Any

from ..dispatch.op import Op
from ..dtype import result_dtype
from ..ops.creation import fill_spec
from ..ops.families import by_name
from ..ops.shape.joining import stack
from ..spec import Spec, wrap_dim, wrap_dims
from ..tensor import Tensor
from .batched import Level, lift, repeated
from .randomness import draw_batched, refuse
from .rules import RULES, front, fronts, is_at, rule


def _promoted(op: Op, args: tuple[Any, ...]) -> list[Any]:
    """Operands in the dtype that they have in common as samples: a 0-d one widens none, but as a batch it would."""
    given = list(args)
    at = [i for i in op.tensors if i or op.name != "where"]
    tensors = [i for i in at if isinstance(args[i], Tensor)]
    if len({args[i].spec.dtype for i in tensors}) < 2 or len({args[i].spec.ndim > 0 for i in tensors}) < 2:
        return given
    scalars = [type(args[i]) for i in at if not isinstance(args[i], Tensor)]
    common = result_dtype([(args[i].spec.dtype, args[i].spec.ndim) for i in tensors], scalars)
    for i in tensors:
        given[i] = args[i].to(common)
    return given


def elementwise(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    """Operands aligned behind the samples; they broadcast as they do without."""
    given = _promoted(op, args) if len(op.tensors) > 1 else list(args)
    n = max(given[i].spec.ndim for i in op.tensors if isinstance(given[i], Tensor))
    for i in op.tensors:
        x = given[i]
        if is_at(x, level):
            lead = n - x.spec.ndim
            given[i] = x.value
            if lead:
                shape = x.value.spec.shape
                given[i] = x.value.reshape((shape[0], *(1,) * lead, *shape[1:]))
    return op.call(*given)


def alike(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    """The same where kernels want all operands in one shape."""
    n = max(args[i].spec.ndim for i in op.tensors if isinstance(args[i], Tensor))
    given = fronts(op, level, tuple(_promoted(op, args)))
    for i in op.tensors:
        x = given[i]
        if isinstance(x, Tensor) and x.spec.ndim <= n:
            given[i] = x.reshape((x.spec.shape[0], *(1,) * (n + 1 - x.spec.ndim), *x.spec.shape[1:]))
    return op.call(*given)


for _op in by_name().values():
    if _op.kind == "primitive" and _op.infer.__qualname__.startswith(("unary.", "binary.")):
        RULES[_op.name] = elementwise
rule(
    "where copy clamp relu gelu silu mish elu leaky_relu hardtanh hardswish hardsigmoid softplus softsign logsigmoid "
    "erfc erfinv lgamma digamma trigamma entr sinc logit rsqrt exp2 frac nan_to_num threshold "
    "hardshrink softshrink"
)(elementwise)
rule(
    "axpy clamp_between copysign nextafter hypot fmod logaddexp logaddexp2 trunc_divide xlogy relu_grad gelu_grad "
    "silu_grad elu_grad leaky_relu_grad hardtanh_grad softplus_grad sigmoid_grad tanh_grad binary_cross_entropy kl_div "
    "atan2_grad binary_cross_entropy_grad binary_cross_entropy_with_logits_grad kl_div_grad sinc_grad gated "
    "hardshrink_grad softshrink_grad logsigmoid_grad softsign_grad"
)(alike)


@rule("dropout")
def _dropout(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    x, p, *key = args
    if level.randomness == "error":
        refuse()
    if level.randomness == "different":
        return op.call(x.value, p, *key)
    return x.value * op.call(fill_spec(x.value.select(0, 0).spec.like(), 1), p, *key)


@rule("exponential_draw log_gamma_draw poisson_draw race_keys")
def _drawn(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    x, *rest = args
    if level.randomness == "error":
        refuse()
    if level.randomness == "different":
        return op.call(x.value, *rest)
    return stack([op.call(sample, *rest) for sample in x.value.unbind(0)])


@rule("fill arange")
def _filled(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    spec = args[0]
    one = op.call(Spec(tuple(spec.shape), None, spec.dtype, spec.device), *args[1:])
    return front(repeated(one, spec.levels), level)


@rule("empty")
def _empty(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    spec = args[0]
    sizes = [at.size for at in spec.levels]
    return front(lift(op.call(Spec((*sizes, *spec.shape), None, spec.dtype, spec.device)), spec.levels), level)


@rule("random")
def _random(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    return front(draw_batched(*args), level)


# --- Along dims -----------------------------------------------------------------------------------------------------


@rule("sum prod amax amin any all argmax argmin sum_of_squares count_nonzero")
def _reduction(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    x, dim, keepdim, *dtype = args
    if not x.spec.ndim:
        return op.call(x.value.reshape(-1, 1), (1,), False, *dtype)
    return op.call(x.value, tuple([d + 1 for d in wrap_dims(dim, x.spec.ndim, op.name)]), keepdim, *dtype)


def _along(x: Any, dim: Any, op: Op) -> tuple[Tensor, int]:
    """What a sample's dim is in memory; a 0-d sample has one of size 1."""
    value: Tensor = x.value if x.spec.ndim else x.value.reshape(-1, 1)
    return value, wrap_dim(dim, x.spec.ndim, op.name) + 1


@rule("cumsum softmax log_softmax")
def _scan(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    value, dim = _along(args[0], args[1], op)
    return op.call(value, dim, *args[2:]).reshape(args[0].value.spec.shape)


@rule("sort")
def _sort(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    value, dim = _along(args[0], args[1], op)
    return tuple([part.reshape(args[0].value.spec.shape) for part in op.call(value, dim, args[2])])


@rule("softmax_grad log_softmax_grad")
def _softmax_grad(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    g, y, dim = args
    if not g.spec.ndim:
        return front(g * 0, level)
    return op.call(front(g, level), front(y, level), wrap_dim(dim, g.spec.ndim, op.name) + 1)


@rule("layer_norm rms_norm group_norm")
def _normalised(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    """By samples where their weights are the same, else normalised first and multiplied with the weights then."""
    x, form, *weights, eps = args
    if is_at(x, level) and not any(is_at(w, level) for w in weights):
        value = x.value
        if op.name == "group_norm":
            folded = value.reshape(-1, *value.spec.shape[2:])
            return op.call(folded, form, *weights, eps).reshape(value.spec.shape)
        return op.call(value, form, *weights, eps)
    plain = op.call(x, form, *[None for _ in weights], eps)
    for w, combine in zip(weights, ("__mul__", "__add__"), strict=False):
        if w is not None:
            shown = w.reshape(-1, *(1,) * (x.spec.ndim - 2)) if op.name == "group_norm" else w
            plain = getattr(plain, combine)(shown)
    return front(plain, level)
