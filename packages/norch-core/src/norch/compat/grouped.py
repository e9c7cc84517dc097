"""Matrix products of groups of different sizes, as mixtures of experts have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..amp import autocast
from ..autograd.function import Function
from ..dispatch.arguments import check_functions
from ..dtype import int32
from ..errors import DTypeError, ShapeError
from ..ops import cat, matmul, stack

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..dtype import DType
    from ..tensor import Tensor


class GroupedProduct(Function):
    """The products of the groups that end at `ends`; its gradients are such products too."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, ends: tuple[int, ...]) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.ends = ends
        sizes = [end - start for start, end in zip((0, *ends), ends, strict=False)]
        if a.ndim == b.ndim:
            rest = a.shape[1] - ends[-1]
            return stack(_products(_parts(a, sizes, rest, 1), _parts(b, sizes, rest, 0)))
        dim = 0 if a.ndim == 2 else 1
        rest = (a if a.ndim == 2 else b).shape[dim] - ends[-1]
        rows = _parts(a, sizes, rest, 0) if a.ndim == 2 else a.unbind()
        columns = b.unbind() if a.ndim == 2 else _parts(b, sizes, rest, 1)
        products = _products(rows, columns)
        if rest:
            products.append(a.new_zeros((rest, b.shape[2]) if a.ndim == 2 else (a.shape[1], rest)))
        return cat(products, dim)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        a, b = ctx.saved_tensors
        of_a = GroupedProduct.apply(grad, b.mT, ctx.ends) if ctx.needs_input_grad[0] else None
        of_b = GroupedProduct.apply(a.mT, grad, ctx.ends) if ctx.needs_input_grad[1] else None
        return of_a, of_b, None


def grouped_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    *,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: DType | None = None,
) -> Tensor:
    """mat_a @ mat_b for each of G groups: from (S, k) and (G, k, n) to (S, n), of which each group has some rows; from
    (G, m, k) and (k, S) to (m, S), of which it has some columns; from (m, S) and (S, n) to (G, m, n); from (G, m, k)
    and (G, k, n) to (G, m, n).

    offs: where each group ends along S, of shape (G) and int32; not for two 3-D matrices. It is read on the host. What
    comes after the last group is 0 in a result. bias: added to the result, to which it broadcasts. out_dtype: what the
    product is computed in, by default the dtype of both. Raises ShapeError for shapes or offs that do not fit,
    DTypeError for offs of another dtype.
    """
    given = f"grouped_mm(): mat_a {tuple(mat_a.shape)} and mat_b {tuple(mat_b.shape)}"
    dims = (mat_a.ndim, mat_b.ndim)
    if not {2, 3}.issuperset(dims):
        raise ShapeError(f"{given} must have 2 or 3 dims")
    if (offs is None) != (dims == (3, 3)):
        raise ShapeError(f"{given} need offs" if offs is None else f"{given} are groups already: they take no offs")
    if mat_a.shape[-1] != mat_b.shape[-2]:
        raise ShapeError(f"{given} do not fit")
    if out_dtype is not None:
        mat_a, mat_b = mat_a.to(out_dtype), mat_b.to(out_dtype)
    if offs is None:
        if mat_a.shape[0] != mat_b.shape[0]:
            raise ShapeError(f"{given} have different numbers of groups")
        result: Tensor = matmul(mat_a, mat_b)
    else:
        size = mat_b.shape[1] if dims == (3, 2) else mat_a.shape[0] if dims == (2, 3) else mat_a.shape[1]
        groups = {(2, 3): mat_b.shape[0], (3, 2): mat_a.shape[0]}.get(dims)
        ends = _ends(offs, size, groups, given)
        with autocast(mat_a.device.type, enabled=False):  # as PyTorch has it: the product is in the dtype given
            result = GroupedProduct.apply(mat_a, mat_b, ends)
    return result if bias is None else result + bias


def _parts(x: Tensor, sizes: list[int], rest: int, dim: int) -> tuple[Tensor, ...]:
    return x.split([*sizes, rest], dim)[: len(sizes)]


def _products(left: Iterable[Tensor], right: Iterable[Tensor]) -> list[Tensor]:
    return [x @ y for x, y in zip(left, right, strict=True)]


def _ends(offs: Tensor, size: int, groups: int | None, given: str) -> tuple[int, ...]:
    if offs.dtype is not int32:
        raise DTypeError(f"grouped_mm(): offs must be int32, got {offs.dtype}")
    if offs.ndim != 1 or not offs.numel() or groups not in (None, offs.numel()):
        raise ShapeError(f"{given} do not fit offs of shape {tuple(offs.shape)}")
    ends = tuple(offs.tolist())
    if any(start > end for start, end in zip((0, *ends), (*ends, size), strict=True)):
        raise ShapeError(f"{given} have no groups that end at {list(ends)}: offs must rise, to {size} at most")
    return ends


check_functions(globals())
