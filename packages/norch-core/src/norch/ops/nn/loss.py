"""Losses between an input and a target of the same shape. Those by class are in `classification.py`.

Shapes that would only match by broadcasting are an error unless `strict=False`: (3) against (3, 1) is 9 differences
where 3 were meant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import DTypeError, ShapeError, differing, drawn
from ...spec import Shape, Spec, broadcast_shapes, elementwise_layout
from ..elementwise.arithmetic import abs as absolute
from ..elementwise.arithmetic import eq, exp, log, log1p, lt, maximum, minimum, sigmoid, sign, where
from ..families import composite, floating
from ..gradients import elementwise_gradient
from ..registry import public
from ..shape.views import expand
from ..upcast import upcast

if TYPE_CHECKING:
    from ...tensor import Tensor

Both = tuple["Tensor | None", "Tensor | None"]


def check_reduction(reduction: str, op: str) -> None:
    """Raises ValueError for a reduction that is none of the three."""
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{op}(): reduction must be 'none', 'mean' or 'sum', got {reduction!r}")


def reduce_loss(loss: Tensor, reduction: str, op: str) -> Tensor:
    """`loss` as it is ("none"), its "mean" or its "sum", which are 0-d. Raises ValueError for another reduction."""
    check_reduction(reduction, op)
    if reduction == "none":
        return loss
    # A float16 sum overflows long before its mean does.
    total = upcast(loss).sum()
    return (total / float(loss.spec.numel) if reduction == "mean" else total).to(loss.dtype)


def _drawn_pair(a: Shape, b: Shape) -> str:
    marks = differing(a, b)
    try:
        why = f"broadcast, they would give {broadcast_shapes(a, b)}"
    except ShapeError:
        why = ""
    return drawn(("input", a, marks), ("target", b, marks), why=why)


def match_shapes(op: str, strict: bool, input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The two in one shape. Raises ShapeError if `strict` and the shapes differ, DTypeError for what is no Tensor."""
    try:
        a, b = input.spec.shape, target.spec.shape
    except AttributeError:
        name, wrong = ("target", target) if hasattr(input, "spec") else ("input", input)
        raise DTypeError(f"{op}(): expected a Tensor for {name}, got {type(wrong).__name__} {wrong!r:.60}") from None
    if a == b:
        return input, target
    if strict:
        raise ShapeError(
            f"{op}(): input {tuple(a)} and target {tuple(b)} differ in shape; reshape one, or pass strict=False to let "
            "them broadcast" + _drawn_pair(a, b)
        )
    shape = broadcast_shapes(a, b, op=op)
    return expand(input, shape), expand(target, shape)


def _matched(op: str, strict: bool, input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The two in one shape, the integers of one in the floating dtype of the other. Raises as match_shapes does."""
    input, target = match_shapes(op, strict, input, target)
    a, b = input.spec.dtype, target.spec.dtype
    if a.is_floating_point is b.is_floating_point:
        return input, target
    return (input, target.to(a)) if a.is_floating_point else (input.to(b), target)


def _infer(name: str, reduced: bool = True) -> Any:
    """The loss of each pair, or of all together where the composite has a reduction, which is its first attribute."""

    def infer(input: Spec, target: Spec, reduction: Any = "none", *attrs: Any) -> Spec:
        dtype = floating(name, input, target)
        if reduced:
            check_reduction(reduction, name)
        if reduced and reduction != "none":
            return input.like((), None, dtype)
        return input.like(input.shape, elementwise_layout(input.shape, (input, target)), dtype)

    return infer


def _unreduce(g: Tensor, reduction: str, spec: Spec) -> Tensor:
    """The gradient of each pair's loss, from that of the reduced one."""
    return g / float(max(spec.numel, 1)) if reduction == "mean" else g


def _of_difference(gradient: Tensor, needs: tuple[bool, ...]) -> Both:
    """Gradients of input and target of a function of their difference."""
    return gradient if needs[0] else None, -gradient if needs[1] else None


# --- Of the difference ----------------------------------------------------------------------------------------------


@elementwise_gradient
def mse_loss_grad(grad: Tensor, input: Tensor, target: Tensor, reduction: str) -> Tensor:
    return (input - target) * (_unreduce(grad, reduction, input.spec) * 2)


@composite(
    _infer("mse_loss"),
    {
        "input": mse_loss_grad,
        "target": lambda g, input, target, reduction: mse_loss_grad(g, target, input, reduction),
    },
    name="mse_loss",
    elementwise=True,
)
def _mse_loss(input: Tensor, target: Tensor, reduction: str) -> Tensor:
    if reduction != "none":
        return reduce_loss(_mse_loss(input, target, "none"), reduction, "mse_loss")
    difference = input - target
    return difference * difference


@public(method=False)
def mse_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None, *, strict: bool = True
) -> Tensor:
    """(input - target) ** 2 of tensors of one shape: as its "mean", its "sum" (0-d), or elementwise ("none").

    Integers or bools beside floats are converted to their dtype. weight: a factor for each element, in input's shape;
    the mean is over their sum. Raises ShapeError where the shapes differ (strict), DTypeError unless input or target is
    a floating Tensor and the other a Tensor, ValueError for another reduction.
    """
    given = _matched("mse_loss", strict, input, target)
    if weight is None:
        return _mse_loss(*given, reduction)
    return _weighted_mean("mse_loss", _mse_loss(*given, "none"), weight, reduction)


def _by_element(op: str, loss: Tensor, weight: Tensor) -> Tensor:
    """`loss` times a factor for each element. Raises ShapeError for another shape, DTypeError unless it is floating."""
    floating(op, weight.spec)
    if weight.spec.shape != loss.spec.shape:
        raise ShapeError(f"{op}(): weight {tuple(weight.spec.shape)} must have input's shape {tuple(loss.spec.shape)}")
    return loss * weight


def _weighted_mean(op: str, loss: Tensor, weight: Tensor, reduction: str) -> Tensor:
    loss = _by_element(op, loss, weight)
    return loss.sum() / weight.sum() if reduction == "mean" else reduce_loss(loss, reduction, op)


@elementwise_gradient
def l1_loss_grad(grad: Tensor, input: Tensor, target: Tensor) -> Tensor:
    return sign(input - target) * grad


def _l1_rule(g: Tensor, input: Tensor, target: Tensor, reduction: str, needs: tuple[bool, ...]) -> Both:
    return _of_difference(l1_loss_grad(_unreduce(g, reduction, input.spec), input, target), needs)


@composite(_infer("l1_loss"), _l1_rule, name="l1_loss", joint=True, elementwise=True)
def _l1_loss(input: Tensor, target: Tensor, reduction: str) -> Tensor:
    if reduction != "none":
        return reduce_loss(_l1_loss(input, target, "none"), reduction, "l1_loss")
    return absolute(input - target)


@public(method=False)
def l1_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None, *, strict: bool = True
) -> Tensor:
    """|input - target|, as its "mean", its "sum", or elementwise ("none"). `weight` and errors as those of mse_loss.

    Both may hold integers, of which there is no mean.
    """
    given = _matched("l1_loss", strict, input, target)
    if weight is None and reduction != "mean" and not given[0].spec.dtype.is_floating_point:
        check_reduction(reduction, "l1_loss")
        size = absolute(given[0] - given[1])
        return size.sum() if reduction == "sum" else size
    if weight is None:
        return _l1_loss(*given, reduction)
    return _weighted_mean("l1_loss", _l1_loss(*given, "none"), weight, reduction)


@elementwise_gradient
def clipped_difference_grad(grad: Tensor, input: Tensor, target: Tensor, limit: float) -> Tensor:
    """The gradient of the input of a loss that is linear from a difference of `limit` on."""
    return minimum(maximum(input - target, -limit), limit) * grad


def _huber_rule(
    g: Tensor, input: Tensor, target: Tensor, reduction: str, delta: float, needs: tuple[bool, ...]
) -> Both:
    return _of_difference(clipped_difference_grad(_unreduce(g, reduction, input.spec), input, target, delta), needs)


@composite(_infer("huber_loss"), _huber_rule, name="huber_loss", joint=True, elementwise=True)
def _huber_loss(input: Tensor, target: Tensor, reduction: str, delta: float) -> Tensor:
    if reduction != "none":
        return reduce_loss(_huber_loss(input, target, "none", delta), reduction, "huber_loss")
    size = absolute(input - target)
    near = minimum(size, delta)
    return (size - near * 0.5) * near


@public(method=False)
def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
    *,
    strict: bool = True,
) -> Tensor:
    """d ** 2 / 2 where d = |input - target| is below `delta`, delta * (d - delta / 2) elsewhere (Huber, 1964).

    As its "mean", its "sum", or elementwise ("none"). weight: a factor for each element, in input's shape; the mean is
    over the number of elements, as PyTorch's. Raises as mse_loss does, and ValueError unless `delta` > 0.
    """
    if not delta > 0:
        raise ValueError(f"huber_loss(): delta must be positive, got {delta}")
    given = _matched("huber_loss", strict, input, target)
    if weight is None:
        return _huber_loss(*given, reduction, delta)
    return reduce_loss(_by_element("huber_loss", _huber_loss(*given, "none", delta), weight), reduction, "huber_loss")


def _smooth_l1_rule(
    g: Tensor, input: Tensor, target: Tensor, reduction: str, beta: float, needs: tuple[bool, ...]
) -> Both:
    grad = _unreduce(g, reduction, input.spec) / beta
    return _of_difference(clipped_difference_grad(grad, input, target, beta), needs)


@composite(_infer("smooth_l1_loss"), _smooth_l1_rule, name="smooth_l1_loss", joint=True, elementwise=True)
def _smooth_l1_loss(input: Tensor, target: Tensor, reduction: str, beta: float) -> Tensor:
    if reduction != "none":
        return reduce_loss(_smooth_l1_loss(input, target, "none", beta), reduction, "smooth_l1_loss")
    size = absolute(input - target)
    return where(lt(size, beta), size * size * (0.5 / beta), size - 0.5 * beta)


@public(method=False)
def smooth_l1_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0, *, strict: bool = True
) -> Tensor:
    """`huber_loss` over its delta: d ** 2 / (2 beta) where d = |input - target| is below `beta`, else d - beta / 2.

    As its "mean", its "sum", or elementwise ("none"). With beta 0 it is l1_loss. Raises as mse_loss does, and
    ValueError for a negative `beta`.
    """
    if beta < 0:
        raise ValueError(f"smooth_l1_loss(): beta must not be negative, got {beta}")
    if beta == 0:
        return l1_loss(input, target, reduction=reduction, strict=strict)
    return _smooth_l1_loss(*_matched("smooth_l1_loss", strict, input, target), reduction, beta)


# --- Of probabilities -----------------------------------------------------------------------------------------------

_MIN_LOG = -100.0


def _bounded_log(x: Tensor) -> Tensor:
    return maximum(log(x), _MIN_LOG)


@elementwise_gradient
def binary_cross_entropy_grad(grad: Tensor, input: Tensor, target: Tensor) -> Tensor:
    return grad * (input - target) / maximum(input * (1 - input), 1e-12)


def _probabilities_target(g: Tensor, input: Tensor) -> Tensor:
    return g * (_bounded_log(1 - input) - _bounded_log(input))


@composite(
    _infer("binary_cross_entropy", reduced=False),
    {"input": binary_cross_entropy_grad, "target": _probabilities_target},
    name="binary_cross_entropy",
    elementwise=True,
)
def _binary_cross_entropy(input: Tensor, target: Tensor) -> Tensor:
    return (target - 1) * _bounded_log(1 - input) - target * _bounded_log(input)


@public(method=False)
def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean", *, strict: bool = True
) -> Tensor:
    """-(target * log(input) + (1 - target) * log(1 - input)) * weight: input and target are probabilities.

    The logarithms are clamped to at least -100. `weight` broadcasts. As its "mean", its "sum", or elementwise ("none").
    Input outside [0, 1] gives NaN: to raise for it would wait for the device. Raises as mse_loss does.
    """
    loss = _binary_cross_entropy(*match_shapes("binary_cross_entropy", strict, input, target))
    return reduce_loss(_weighted(loss, weight, "binary_cross_entropy"), reduction, "binary_cross_entropy")


def _weighted(loss: Tensor, weight: Tensor | None, op: str) -> Tensor:
    if weight is None:
        return loss
    out = loss * weight
    if out.spec.shape != loss.spec.shape:
        raise ShapeError(f"{op}(): weight {tuple(weight.spec.shape)} does not broadcast to {tuple(loss.spec.shape)}")
    return out


def _log1p_exp_neg(x: Tensor) -> Tensor:
    """log(1 + exp(-x)) without overflow."""
    return log1p(exp(-absolute(x))) - minimum(x, 0)


def _infer_logits(input: Spec, target: Spec, pos_weight: Spec | None) -> Spec:
    op = "binary_cross_entropy_with_logits"
    dtype = floating(op, input, target, pos_weight)
    if pos_weight is not None and broadcast_shapes(input.shape, pos_weight.shape, op=op) != tuple(input.shape):
        raise ShapeError(
            f"{op}(): pos_weight {tuple(pos_weight.shape)} does not broadcast to input {tuple(input.shape)}"
        )
    return input.like(dtype=dtype)


@elementwise_gradient
def binary_cross_entropy_with_logits_grad(grad: Tensor, input: Tensor, target: Tensor) -> Tensor:
    return grad * (sigmoid(input) - target)


def _logits_input(g: Tensor, input: Tensor, target: Tensor, pos_weight: Tensor | None) -> Tensor:
    if pos_weight is None:
        return binary_cross_entropy_with_logits_grad(g, input, target)
    return g * ((1 - target) - ((pos_weight - 1) * target + 1) * sigmoid(-input))


def _logits_target(g: Tensor, input: Tensor, pos_weight: Tensor | None) -> Tensor:
    return g * (-input if pos_weight is None else (pos_weight - 1) * _log1p_exp_neg(input) - input)


@composite(
    _infer_logits,
    {
        "input": _logits_input,
        "target": _logits_target,
        "pos_weight": lambda g, input, target: g * target * _log1p_exp_neg(input),
    },
    name="binary_cross_entropy_with_logits",
    elementwise=True,
)
def _with_logits(input: Tensor, target: Tensor, pos_weight: Tensor | None) -> Tensor:
    softplus = _log1p_exp_neg(input)
    return (1 - target) * input + (softplus if pos_weight is None else softplus * ((pos_weight - 1) * target + 1))


@public(method=False)
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
    *,
    strict: bool = True,
) -> Tensor:
    """binary_cross_entropy(sigmoid(input), target), computed without overflow or underflow.

    pos_weight: what the losses of positive targets are multiplied by; it and `weight` broadcast to input. As its
    "mean", its "sum", or elementwise ("none"), in target's dtype, as PyTorch's. Raises as mse_loss does.
    """
    op = "binary_cross_entropy_with_logits"
    loss = _weighted(_with_logits(*match_shapes(op, strict, input, target), pos_weight), weight, op)
    dtype = target.spec.dtype
    if loss.spec.dtype is not dtype and dtype.is_floating_point:
        loss = loss.to(dtype)
    return reduce_loss(loss, reduction, op)


_infer_kl = _infer("kl_div", reduced=False)


@elementwise_gradient
def kl_div_grad(grad: Tensor, target: Tensor, log_target: bool) -> Tensor:
    return -grad * (exp(target) if log_target else target)


def _kl_target(g: Tensor, input: Tensor, target: Tensor, log_target: bool) -> Tensor:
    return g * (exp(target) * (target - input + 1) if log_target else log(target) + 1 - input)


@composite(_infer_kl, {"input": kl_div_grad, "target": _kl_target}, name="kl_div", elementwise=True)
def _kl_div(input: Tensor, target: Tensor, log_target: bool) -> Tensor:
    if log_target:
        return exp(target) * (target - input)
    # 0 log 0 is 0.
    return target * log(where(eq(target, 0), 1.0, target)) - target * input


@public(method=False)
def kl_div(
    input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False, *, strict: bool = True
) -> Tensor:
    """The Kullback-Leibler divergence target * (log(target) - input): input holds logarithms of probabilities.

    log_target: target does too. reduction: "batchmean" (the sum over the size of dim 0, which is the divergence), or
    "mean", "sum", or elementwise ("none"). Raises as mse_loss does.
    """
    loss = _kl_div(*match_shapes("kl_div", strict, input, target), bool(log_target))
    if reduction == "batchmean":
        total = reduce_loss(loss, "sum", "kl_div")
        return total / float(loss.spec.shape[0]) if loss.spec.ndim else total
    return reduce_loss(loss, reduction, "kl_div")
