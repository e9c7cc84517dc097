"""Batching rules of matrix products, convolution and pooling: samples become batches of a product, images, groups."""

from __future__ import annotations

from typing import Any

from ..dispatch.op import Op
from ..tensor import Tensor
from .batched import Level
from .rules import front, fronts, is_at, rule


@rule("matmul")
def _matmul(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    a, b = args
    n, m = a.spec.ndim, b.spec.ndim
    if not n or not m:
        return op.call(a.value if is_at(a, level) else a, b.value if is_at(b, level) else b)  # raises
    if not is_at(b, level) and m <= 2:
        return op.call(a.value, b)
    if not is_at(a, level) and n == 2 and m == 1:
        return op.call(b.value, a.mT)
    left = _matrices(a if n > 1 else a.unsqueeze(0), level, max(n, m, 2))
    right = _matrices(b if m > 1 else b.unsqueeze(-1), level, max(n, m, 2))
    out = op.call(left, right)
    if n == 1:
        out = out.squeeze(-2)
    return out.squeeze(-1) if m == 1 else out


@rule(
    "linalg_inv linalg_solve linalg_solve_triangular linalg_det linalg_slogdet linalg_lu_factor linalg_permutation "
    "linalg_cholesky linalg_qr linalg_qr_r linalg_eigh linalg_eigvalsh linalg_svd linalg_svdvals"
)
def _linalg(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    return op.call(*fronts(op, level, args))


def _matrices(x: Any, level: Level, ndim: int) -> Tensor:
    """Matrices of all samples, with as many dims behind the samples as the other operand has."""
    if not is_at(x, level):
        return x  # type: ignore[no-any-return]
    value = x.value
    return value.reshape(level.size, *(1,) * (ndim - x.spec.ndim), *x.spec.shape)  # type: ignore[no-any-return]


@rule("linear")
def _linear(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    x, weight, bias = args
    if not is_at(weight, level) and not is_at(bias, level):
        return op.call(x.value, weight, bias)
    if not is_at(weight, level):
        return front(op.call(x, weight, None) + bias, level)
    out = x @ weight.mT
    return front(out if bias is None else out + bias, level)


@rule("linear_activation")
def _linear_activation(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    x, weight, bias, activation = args
    if is_at(weight, level) or is_at(bias, level):
        return front(op.decompose(*args), level)  # type: ignore[misc]
    return op.call(x.value, weight, bias, activation)


@rule("dft")
def _dft(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    x, window, *rest = args
    if is_at(window, level):
        return front(op.decompose(*args), level)  # type: ignore[misc]
    return op.call(x.value, window, *rest)


@rule("dft2")
def _dft2(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    return op.call(args[0].value, *args[1:])


# --- Images ---------------------------------------------------------------------------------------------------------


def _folded(x: Any, level: Level) -> Tensor:
    """All samples of (n, ...) as (samples * n, ...)."""
    value = front(x, level)
    return value.reshape(-1, *value.spec.shape[2:])


def _unfolded(x: Tensor, level: Level) -> Tensor:
    return x.reshape(level.size, -1, *x.spec.shape[1:])


@rule("conv2d")
def _conv2d(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    x, weight, bias, stride, pads, dilation, groups = args
    if not is_at(weight, level):
        here = None if is_at(bias, level) else bias
        if not is_at(x, level):
            return front(op.call(x, weight, None, *args[3:]) + bias.reshape(-1, 1, 1), level)
        out = _unfolded(op.call(_folded(x, level), weight, here, *args[3:]), level)
        return out if here is bias else out + bias.value.reshape(level.size, 1, -1, 1, 1)
    filters = weight.value.reshape(-1, *weight.spec.shape[1:])
    if is_at(x, level):  # each sample's channels are a group of their own
        n, c, h, w = x.spec.shape
        images = x.value.movedim(0, 1).reshape(n, level.size * c, h, w)
        out = op.call(images, filters, None, stride, pads, dilation, groups * level.size)
    elif groups == 1:
        out = op.call(x, filters, None, stride, pads, dilation, 1)
    else:
        images = x.repeat(1, level.size, 1, 1)
        out = op.call(images, filters, None, stride, pads, dilation, groups * level.size)
    out = out.reshape(out.spec.shape[0], level.size, -1, *out.spec.shape[2:]).movedim(1, 0)
    if bias is None:
        return out
    shown = bias.value.reshape(level.size, 1, -1, 1, 1) if is_at(bias, level) else bias.reshape(-1, 1, 1)
    return out + shown


@rule("conv2d_input_grad")
def _conv2d_input_grad(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    grad, weight, shape, *rest = args
    if is_at(weight, level):
        return front(op.decompose(*args), level)  # type: ignore[misc]
    return _unfolded(op.call(_folded(grad, level), weight, (level.size * shape[0], *shape[1:]), *rest), level)


@rule("max_pool2d sum_pool2d max_pool2d_indices")
def _pool(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    return _unfolded(op.call(_folded(args[0], level), *args[1:]), level)


@rule("max_pool2d_grad")
def _max_pool_grad(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    grad, x, *rest = args
    return _unfolded(op.call(_folded(grad, level), _folded(x, level), *rest), level)


@rule("sum_pool2d_grad")
def _sum_pool_grad(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    grad, shape, *rest = args
    return _unfolded(op.call(_folded(grad, level), (level.size * shape[0], *shape[1:]), *rest), level)
