"""Running sums and products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dispatch import run_one
from ..dtype import DType, int64
from ..op import Inferred
from ..spec import Spec, wrap_dim
from .families import accepts_axis, primitive
from .joining import cat
from .reduction import asked

if TYPE_CHECKING:
    from ..tensor import Tensor


def _infer_cumsum(x: Spec, dim: int, dtype: DType | None) -> Inferred:
    at = wrap_dim(dim, x.ndim, "cumsum")
    compute = dtype or (int64 if not x.dtype.is_floating_point else x.dtype)
    return Inferred((x.like(dtype=compute),), ((compute, x.shape),), {"dim": at})


def _cumsum_vjp(g: Tensor, dim: int) -> Tensor:
    return cumsum(g.flip(dim), dim).flip(dim)


_CUMSUM = primitive("cumsum", "x dim dtype", 1, _infer_cumsum, (_cumsum_vjp,))


@accepts_axis
def cumsum(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """The running sum along `dim`. Integers and bools are summed in int64 unless `dtype`."""
    if not input.spec.ndim:
        wrap_dim(dim, 0, "cumsum")
        return cumsum(input.unsqueeze(0), 0, dtype=dtype).reshape(())
    out: Tensor = run_one(_CUMSUM, input, dim, asked(dtype, "cumsum"))
    return out


@accepts_axis
def cumprod(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """The running product along `dim`. Integers and bools are multiplied in int64 unless `dtype`.

    By doubling (Hillis and Steele, 1986): log2(n) products of whole tensors. Zeros have their true gradient.
    """
    at = wrap_dim(dim, input.spec.ndim, "cumprod")
    chosen = asked(dtype, "cumprod") or (input.dtype if input.dtype.is_floating_point else int64)
    out = input.to(chosen)
    if not input.spec.ndim:
        return out.clone()
    size, reach = input.spec.shape[at], 1
    while reach < size:
        moved = out.narrow(at, reach, size - reach) * out.narrow(at, 0, size - reach)
        out = cat([out.narrow(at, 0, reach), moved], at)
        reach *= 2
    return out.clone() if out is input else out
