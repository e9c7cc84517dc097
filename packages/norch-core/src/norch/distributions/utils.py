"""What distributions share: broadcasting, probabilities and logits, late properties."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Number
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from ..autograd.mode import enable_grad
from ..dtype import finfo
from ..ops import as_tensor, broadcast_tensors, log, logit, randn, sigmoid, softmax, tril_indices
from ..ops.creation import zeros

if TYPE_CHECKING:
    from ..tensor import Tensor

T = TypeVar("T")


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Tensors, and numbers as tensors of their dtype and device, broadcast against each other to one shape. Raises
    ValueError for what is neither.
    """
    if not all(hasattr(v, "spec") or isinstance(v, Number) for v in values):
        given = ", ".join(type(v).__name__ for v in values)
        raise ValueError(f"broadcast_all(): the values must be tensors or numbers, got {given}")
    like = next((v for v in values if hasattr(v, "spec")), None)
    return broadcast_tensors(*[v if hasattr(v, "spec") else _number(v, like) for v in values])


def _number(value: Any, like: Tensor | None) -> Tensor:
    return as_tensor(float(value)) if like is None else like.new_full((), value)


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities, elementwise, no closer to 0 and 1 than the dtype's epsilon: their logarithms are finite."""
    eps = finfo(probs.dtype).eps
    return probs.clamp(eps, 1 - eps)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """The probabilities of logits, in their shape: their softmax over the last dim, or, where `is_binary`, their
    sigmoid.
    """
    return sigmoid(logits) if is_binary else softmax(logits, -1)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """The logits of probabilities, elementwise: their logarithm, or, where `is_binary`, the logarithm of their odds.
    What is within the dtype's epsilon of 0 or 1 counts as that far away.
    """
    if is_binary:
        return logit(probs, finfo(probs.dtype).eps)
    return log(clamp_probs(probs))


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Lower triangular matrices (..., n, n) of vectors of their elements, row by row. `diag` as of `tril`."""
    count = vec.shape[-1]
    size = int((-(1 + 2 * diag) + ((1 + 2 * diag) ** 2 + 8 * count + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2 + 0.5)
    rows, columns = tril_indices(size, size, diag, device=vec.device)
    made = zeros((*vec.shape[:-1], size, size), dtype=vec.dtype, device=vec.device)
    made[..., rows, columns] = vec
    return made


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The elements of the lower triangles of matrices (..., n, n), row by row, in one dim. `diag` as of `tril`. Raises
    ValueError where no such diagonal is.
    """
    size = mat.shape[-1]
    if not -size <= diag < size:
        raise ValueError(f"tril_matrix_to_vec(): diag must be from {-size} to {size - 1}, got {diag}")
    rows, columns = tril_indices(size, size, diag, device=mat.device)
    return mat[..., rows, columns]


class lazy_property(Generic[T]):
    """A property that is computed when first read, with gradients, and kept by its object. wrapped: the function."""

    def __init__(self, wrapped: Callable[[Any], T]) -> None:
        self.wrapped = wrapped
        self.__doc__ = wrapped.__doc__

    @overload
    def __get__(self, instance: None, owner: Any = None) -> lazy_property[T]: ...
    @overload
    def __get__(self, instance: Any, owner: Any = None) -> T: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        with enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


def sum_rightmost(value: Tensor, dims: int) -> Tensor:
    """The sum over the last `dims` dims."""
    return value if dims == 0 else value.reshape((*value.shape[: value.ndim - dims], -1)).sum(-1)


def _standard_normal(shape: Any, dtype: Any, device: Any) -> Tensor:
    """Draws of Normal(0, 1), for distributions of one's own."""
    return randn(tuple(shape), dtype=dtype, device=device)


_sum_rightmost = sum_rightmost  # PyTorch's name
