"""The variance and the standard deviation, in two passes."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from ...spec import wrap_dims
from ..elementwise.arithmetic import sqrt, where
from ..families import accepts_axis, composite, infer_elementwise
from ..registry import public
from ..upcast import in_float32
from .reductions import _SUM, _count, _infer_sum, _none_if_empty, _unsqueezed, mean, sum_of_squares

if TYPE_CHECKING:
    from ...dispatch.plan import Inferred
    from ...spec import Spec
    from ...tensor import Tensor

P = ParamSpec("P")
R = TypeVar("R")


def centred(input: Tensor, dim: Any) -> Tensor:
    """`input` less its mean over `dim`. A large mean is rounded by more than small deviations are: what is left of it
    goes as well (its derivative is 0)."""
    if input.spec.dtype.itemsize < 4 or not input.spec.dtype.is_floating_point:
        off = input + -mean(input, dim, True)
        return off - mean(off.detach(), dim, True)
    over, count = _none_if_empty(dim), -_count(input, dim)
    off = input + _SUM.call(input, over, True, None) / count  # of a sum the gradient is passed on as it is
    return off + _SUM.call(off.detach(), over, True, None) / count


def _unbiased_first(function: Callable[P, R]) -> Callable[P, R]:
    """Lets `unbiased` stand in the place of `dim`, as in PyTorch: var(x, False)."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if len(args) == 2 and isinstance(args[1], bool):
            return function(args[0], unbiased=args[1], **kwargs)  # type: ignore[arg-type]
        return function(*args, **kwargs)

    return call


@public()
@_unbiased_first
@accepts_axis
@in_float32
def var(
    input: Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: float | None = None
) -> Tensor:
    """The variance over `dim` (None for all): squared distances from the mean, over n - `correction` (1, or 0 where not
    `unbiased`).

    In two passes, in float32 for 16-bit floats. Raises as mean does.
    """
    return _var(input, dim, unbiased, keepdim, correction)


def _var(input: Tensor, dim: Any, unbiased: bool, keepdim: bool, correction: float | None) -> Tensor:
    if correction is None:
        correction = 1 if unbiased else 0
    return _variance(input, _none_if_empty(dim), keepdim, max(_count(input, dim) - correction, 0.0))


def _infer_variance(x: Spec, dim: Any, keepdim: bool, degrees: float) -> Inferred:
    found: Inferred = _infer_sum(x, dim, keepdim, None)
    return found._replace(attrs={**found.attrs, "degrees": degrees})


def _infer_variance_grad(grad: Spec, x: Spec, dims: tuple[int, ...], degrees: float) -> Inferred:
    return infer_elementwise("variance_grad", (grad, x))._replace(attrs={"dims": dims, "degrees": degrees})


@composite(_infer_variance_grad)
def variance_grad(grad: Tensor, x: Tensor, dims: tuple[int, ...], degrees: float) -> Tensor:
    """The gradient of the variance over `dims`, which `grad` has with a size of 1."""
    return centred(x, dims) * (grad * 2 / degrees)


def _variance_vjp(g: Tensor, x: Tensor, dim: Any, keepdim: bool, degrees: float) -> Tensor:
    return variance_grad(_unsqueezed(g, x.spec, dim, keepdim), x, wrap_dims(dim, x.spec.ndim, "var"), degrees)


@composite(_infer_variance, _variance_vjp, name="variance")
def _variance(x: Tensor, dim: Any, keepdim: bool, degrees: float) -> Tensor:
    """The sum of the squared distances from the mean, over `degrees`."""
    return sum_of_squares(centred(x, dim), dim, keepdim) / degrees


@public()
@_unbiased_first
@accepts_axis
@in_float32
def std(
    input: Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: float | None = None
) -> Tensor:
    """The standard deviation over `dim` (None for all): the square root of `var`, `unbiased` as there. Raises as mean
    does.
    """
    return _root(_var(input, dim, unbiased, keepdim, correction))


@public(method=False)
@_unbiased_first
@accepts_axis
@in_float32
def var_mean(
    input: Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: float | None = None
) -> tuple[Tensor, Tensor]:
    """`var` and `mean` together, a tuple; `unbiased`, `correction` as there. Raises as mean does."""
    return _var(input, dim, unbiased, keepdim, correction), mean(input, dim, keepdim)


def _root(square: Tensor) -> Tensor:
    """A square root whose derivative at 0 is 0, the subgradient that PyTorch takes for norms."""
    if not square.requires_grad:
        return sqrt(square)
    zero = square == 0
    return where(zero, 0.0, sqrt(where(zero, 1.0, square)))
