"""Losses by class: nll_loss and cross_entropy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...autograd.spent import is_spent
from ...dispatch.plan import Inferred
from ...errors import IndexError, ShapeError, drawn
from ...spec import Spec
from ...tensor_base import make_tensor
from ..checks import require_integers
from ..elementwise.arithmetic import exp, lt, ne, where
from ..families import composite, floating, has_kernel, op_of
from ..indexing import chosen_grad, gather, scatter_add
from ..reduction.reductions import logsumexp
from ..registry import public
from ..upcast import upcast, upcast_dtype
from .loss import check_reduction, reduce_loss
from .softmax import log_softmax, log_softmax_grad

if TYPE_CHECKING:
    from ...tensor import Tensor


def _check(op: str, input: Spec, target: Spec, weight: Spec | None, reduction: str) -> Spec:
    """Checks operands of a loss by class index, and returns the spec of the result."""
    floating(op, input, weight)
    require_integers(op, "target, of class indices,", target)
    check_reduction(reduction, op)
    at = _class_dim(input)
    if not input.ndim or tuple(target.shape) != (*input.shape[:at], *input.shape[at + 1 :]):
        raise ShapeError(
            f"{op}(): target {tuple(target.shape)} does not fit input {tuple(input.shape)}: expected (n, ...) for "
            "(n, classes, ...), or () for (classes)" + _drawn_target(input, target, at)
        )
    _check_weight(op, input, weight)
    return input.like(target.shape if reduction == "none" else ())


def _drawn_target(input: Spec, target: Spec, classes: int) -> str:
    """Both, with the target's dims below those of input that they belong to, where their numbers are right."""
    if target.ndim != input.ndim - 1:
        return drawn(("input", input.shape, ()), ("target", target.shape, ()))
    wrong = [i for i in range(input.ndim) if i != classes and input.shape[i] != target.shape[i - (i > classes)]]
    return drawn(("input", input.shape, wrong), ("target", target.shape, [i - (i > classes) for i in wrong]))


def _check_weight(op: str, input: Spec, weight: Spec | None) -> None:
    classes = input.shape[_class_dim(input)]
    if weight is not None and tuple(weight.shape) != (classes,):
        raise ShapeError(
            f"{op}(): weight {tuple(weight.shape)} does not fit the {classes} classes of input {tuple(input.shape)}"
        )


def _class_dim(spec: Spec) -> int:
    return min(spec.ndim - 1, 1)


class _Targets:
    """Class indices that `gather` takes, their weights, and which of them are valid: not ignored."""

    def __init__(self, input: Spec, target: Tensor, weight: Tensor | None, ignore_index: int) -> None:
        self.dim, self.dtype = _class_dim(input), input.dtype
        self.classes = input.shape[self.dim]
        index = target.long()  # ignore_index may be no number of target's dtype
        self.valid = ne(index, ignore_index)
        # gather counts negative indices from the end; here they are errors, as in PyTorch.
        index = where(self.valid, where(lt(index, 0), self.classes, index), 0)
        self.index = index.unsqueeze(self.dim)
        self.weight: Any = None
        if weight is not None:
            self.weight = where(self.valid, gather(weight, 0, index.reshape(-1)).reshape(target.spec.shape), 0.0)

    def total(self, like: Tensor) -> Tensor:
        """What the mean divides by: the weights of all targets, or how many are not ignored."""
        return upcast(self.weight).sum() if self.weight is not None else self.valid.sum().to(upcast(like).dtype)

    def scales(self, g: Tensor, reduction: str) -> Tensor:
        """The gradient of minus the logarithm of each target's probability, from that of the loss."""
        if reduction == "mean":
            g = g / self.total(g)
        return where(self.valid, g if self.weight is None else g * self.weight, 0.0).to(self.dtype)

    def losses(self, logs: Tensor) -> Tensor:
        """Minus each target's element of `logs`, times its weight; 0 where it is ignored."""
        picked = gather(logs, self.dim, self.index).squeeze(self.dim)
        return where(self.valid, -picked if self.weight is None else -picked * self.weight, 0.0)

    def reduce(self, losses: Tensor, reduction: str, op: str) -> Tensor:
        if reduction != "mean":
            return reduce_loss(losses, reduction, op)
        return (upcast(losses).sum() / self.total(losses)).to(losses.dtype)


def _out_of_range(op: str, input: Spec) -> IndexError:
    classes = input.shape[_class_dim(input)]
    return IndexError(f"{op}(): a target is outside [0, {classes}), the classes of input {tuple(input.shape)}")


# --- nll_loss -------------------------------------------------------------------------------------------------------


def _infer_nll(input: Spec, target: Spec, weight: Spec | None, ignore_index: int, reduction: str) -> Spec:
    return _check("nll_loss", input, target, weight, reduction)


@composite(lambda grad, target, weight, shape, ignore_index, reduction: grad.like(shape))
def nll_loss_grad(
    grad: Tensor, target: Tensor, weight: Tensor | None, shape: tuple[int, ...], ignore_index: int, reduction: str
) -> Tensor:
    targets = _Targets(grad.spec.like(shape), target, weight, ignore_index)
    scales = -targets.scales(grad, reduction)
    return chosen_grad(scales.unsqueeze(targets.dim), targets.index, targets.dim, shape)


def _nll_rule(
    g: Tensor, input_spec: Spec, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str
) -> Tensor:
    return nll_loss_grad(g, target, weight, tuple(input_spec.shape), ignore_index, reduction)


@composite(_infer_nll, {"input": _nll_rule}, name="nll_loss")
def _nll_loss(input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str) -> Tensor:
    targets = _Targets(input.spec, target, weight, ignore_index)
    return targets.reduce(targets.losses(input), reduction, "nll_loss").to(input.dtype)


@public(method=False)
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Minus the element of input, which holds logarithms of probabilities, that each class index in target names.

    input: (n, classes, ...) or (classes). target: integers, (n, ...) or (). weight: (classes), a factor for each class;
    it gets no gradient. Targets equal to `ignore_index` are ignored. reduction: "mean" (over the sum of the targets'
    weights), "sum" or "none". Raises ShapeError for shapes that do not fit, DTypeError for a target without integers,
    IndexError for one outside [0, classes).
    """
    try:
        return _nll_loss(input, target, weight, ignore_index, reduction)
    except IndexError:
        raise _out_of_range("nll_loss", input.spec) from None


# --- cross_entropy --------------------------------------------------------------------------------------------------


def _infer_cross_entropy(input: Spec, target: Spec, ignore_index: int, reduction: str) -> tuple[Spec, Spec]:
    return _check("cross_entropy", input, target, None, reduction), input.like()


def _infer_cross_entropy_grad(grad: Spec, logs: Spec, target: Spec, ignore_index: int, reduction: str) -> Inferred:
    attrs = {"ignore_index": ignore_index, "reduction": reduction}
    return Inferred((logs.like(),), ((logs.dtype, grad.shape), (logs.dtype, logs.shape), target), attrs)


@composite(_infer_cross_entropy_grad)
def cross_entropy_grad(grad: Tensor, logs: Tensor, target: Tensor, ignore_index: int, reduction: str) -> Tensor:
    targets = _Targets(logs.spec, target, None, ignore_index)
    scales = targets.scales(grad, reduction).unsqueeze(targets.dim)
    return scatter_add(exp(logs) * scales, targets.dim, targets.index, -scales)


def _cross_entropy_rule(
    g: tuple[Tensor | None, Tensor | None],
    y1: Tensor,
    target: Tensor,
    ignore_index: int,
    reduction: str,
) -> Tensor:
    (g_loss, g_logs), logs = g, y1
    parts = []
    if g_loss is not None:
        parts.append(cross_entropy_grad(g_loss, logs, target, ignore_index, reduction))
    if g_logs is not None:
        parts.append(log_softmax_grad(g_logs, logs, _class_dim(logs.spec)))
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]


@composite(_infer_cross_entropy, {"input": _cross_entropy_rule}, name="cross_entropy")
def _cross_entropy(input: Tensor, target: Tensor, ignore_index: int, reduction: str) -> tuple[Tensor, Tensor]:
    """The loss, and the log-softmax that its gradient needs."""
    logs = log_softmax(input, _class_dim(input.spec))
    targets = _Targets(input.spec, target, None, ignore_index)
    return targets.reduce(targets.losses(logs), reduction, "cross_entropy"), logs


# --- cross_entropy of many classes ----------------------------------------------------------------------------------

# Where a backend has kernels for it: what it keeps is a number for each row, not the log-softmax of all classes, and it
# computes 16-bit floats in float32 without a copy of them.


def _infer_rows(input: Spec, target: Spec, ignore_index: int, reduction: str, upcast: bool) -> tuple[Spec, Spec]:
    loss = _check("cross_entropy", input, target, None, reduction)
    wide = upcast_dtype(input.dtype)
    return loss.like(dtype=wide) if upcast else loss, input.like(target.shape, dtype=wide)


@composite(lambda grad, input, sums, target, ignore_index, reduction: input.like())
def cross_entropy_rows_grad(
    grad: Tensor, input: Tensor, sums: Tensor, target: Tensor, ignore_index: int, reduction: str
) -> Tensor:
    """The gradient of cross_entropy's input, from the logarithm of the sum of exponentials of each of its rows."""
    wide, dim = upcast(input), _class_dim(input.spec)
    targets = _Targets(wide.spec, target, None, ignore_index)
    scales = targets.scales(upcast(grad), reduction).unsqueeze(dim)
    return scatter_add(exp(wide - sums.unsqueeze(dim)) * scales, dim, targets.index, -scales).to(input.dtype)


def _rows_rule(
    g: tuple[Tensor | None, Tensor | None],
    input: Tensor,
    y1: Tensor,
    target: Tensor,
    ignore_index: int,
    reduction: str,
) -> Tensor:
    (g_loss, g_sums), parts = g, []
    if g_loss is not None:
        if g_sums is None and is_spent(input):
            op, key = op_of(cross_entropy_rows_grad), (g_loss.spec, input.spec, y1.spec, target.spec)
            if op.into_plans[input.spec, *key, ignore_index, reduction].in_place:
                op.into(input, g_loss, input, y1, target, ignore_index, reduction)
                return make_tensor(input.spec, input.buffer, input.offset)
        parts.append(cross_entropy_rows_grad(g_loss, input, y1, target, ignore_index, reduction))
    if g_sums is not None:
        dim = _class_dim(input.spec)
        parts.append((exp(upcast(input) - y1.unsqueeze(dim)) * g_sums.unsqueeze(dim)).to(input.dtype))
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]


@composite(_infer_rows, {"input": _rows_rule}, name="cross_entropy_rows")
def _cross_entropy_rows(
    input: Tensor, target: Tensor, ignore_index: int, reduction: str, upcast: bool
) -> tuple[Tensor, Tensor]:
    """The loss, in float32 where 16 bits are `upcast`, and the logarithm of the sum of exponentials of each row."""
    wide = input.to(upcast_dtype(input.spec.dtype))
    sums = logsumexp(wide, _class_dim(input.spec))
    targets = _Targets(wide.spec, target, None, ignore_index)
    losses = targets.losses(wide) + where(targets.valid, sums, 0.0)
    loss = targets.reduce(losses, reduction, "cross_entropy")
    return loss if upcast else loss.to(input.dtype), sums


_ROWS = op_of(_cross_entropy_rows)


def cross_entropy_upcast(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    **more: Any,
) -> Tensor | None:
    """cross_entropy of 16-bit floats in float32, without a copy of them; None where there is no kernel for that."""
    if weight is not None or label_smoothing or more or input.spec.dtype.itemsize != 2:
        return None
    if target.spec.dtype.is_floating_point or not has_kernel(
        _ROWS, input.spec, target.spec, ignore_index, reduction, True
    ):
        return None
    return _cross_entropy_rows(input, target, ignore_index, reduction, True)[0]


@public(method=False)
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Minus the log_softmax of input at the class that target names: `nll_loss` of `log_softmax`.

    input: (n, classes, ...) or (classes), any real numbers. target: integers, (n, ...) or (); or probabilities, in
    input's shape. weight: (classes), a factor for each class. Targets equal to `ignore_index` are ignored.
    label_smoothing: the part of each target that is spread over all classes (Szegedy et al., 2015). reduction: "mean"
    (over the sum of the targets' weights; for probabilities over the number of targets), "sum" or "none".
    Raises ShapeError for shapes that do not fit, DTypeError for a target of another dtype, IndexError for a class index
    outside [0, classes), ValueError for a label_smoothing outside [0, 1] and an ignore_index >= 0 for probabilities.
    """
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"cross_entropy(): label_smoothing must be from 0 to 1, got {label_smoothing}")
    if target.spec.dtype.is_floating_point:
        if ignore_index >= 0:
            raise ValueError(
                f"cross_entropy(): ignore_index={ignore_index} is for class indices, and target holds probabilities "
                f"({target.spec.dtype})"
            )
        return _of_probabilities(input, target, weight, reduction, label_smoothing)
    try:
        if weight is None and not label_smoothing:
            if has_kernel(_ROWS, input.spec, target.spec, ignore_index, reduction, False):
                return _cross_entropy_rows(input, target, ignore_index, reduction, False)[0]
            return _cross_entropy(input, target, ignore_index, reduction)[0]
        return _weighted(input, target, weight, ignore_index, reduction, label_smoothing)
    except IndexError:
        raise _out_of_range("cross_entropy", input.spec) from None


def _weighted(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
) -> Tensor:
    """cross_entropy with what its fused form lacks."""
    _check("cross_entropy", input.spec, target.spec, None if weight is None else weight.spec, reduction)
    logs, dim = log_softmax(input, _class_dim(input.spec)), _class_dim(input.spec)
    targets = _Targets(input.spec, target, weight, ignore_index)
    losses = targets.losses(logs)
    if label_smoothing:
        uniform = -(logs if weight is None else logs * _per_class(weight, logs.spec)).sum(dim)
        uniform = where(targets.valid, uniform, 0.0) * (label_smoothing / targets.classes)
        losses = losses * (1 - label_smoothing) + uniform
    return targets.reduce(losses, reduction, "cross_entropy").to(input.dtype)


def _per_class(weight: Tensor, spec: Spec) -> Tensor:
    return weight.reshape((weight.spec.numel, *(1,) * (spec.ndim - _class_dim(spec) - 1)))


def _of_probabilities(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, label_smoothing: float
) -> Tensor:
    spec = input.spec
    floating("cross_entropy", spec, target.spec, None if weight is None else weight.spec)
    if not spec.ndim or spec.shape != target.spec.shape:
        raise ShapeError(
            f"cross_entropy(): a target of probabilities must have input's shape, (n, classes, ...) or (classes); got "
            f"input {tuple(spec.shape)} and target {tuple(target.spec.shape)}"
        )
    dim = _class_dim(spec)
    _check_weight("cross_entropy", spec, weight.spec if weight is not None else None)
    if label_smoothing:
        target = target * (1 - label_smoothing) + label_smoothing / spec.shape[dim]
    logs = log_softmax(input, dim)
    products = -logs * target
    if weight is not None:
        products = products * _per_class(weight, spec)
    return reduce_loss(products.sum(dim), reduction, "cross_entropy")
