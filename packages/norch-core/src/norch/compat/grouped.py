"""Matrix products of groups of different sizes, as mixtures of experts have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..autograd.function import Function
from ..dispatch.arguments import check_functions
from ..dtype import int32
from ..errors import DTypeError, ShapeError
from ..ops import cat, matmul, stack

if TYPE_CHECKING:
    from ..dtype import DType
    from ..tensor import Tensor


class GroupedProduct(Function):
    """The products of the groups that end at `ends`; its gradients are such products too."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, ends: tuple[int, ...]) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.ends = ends
        pieces = list(zip((0, *ends), ends, strict=False))
        if a.ndim == b.ndim:
            return stack([a[:, start:end] @ b[start:end] for start, end in pieces])
        if a.ndim == 2:
            products = [a[start:end] @ b[i] for i, (start, end) in enumerate(pieces)]
            products.append(a.new_zeros((a.shape[0] - ends[-1], b.shape[2])))
            return cat(products)
        products = [a[i] @ b[:, start:end] for i, (start, end) in enumerate(pieces)]
        products.append(a.new_zeros((a.shape[1], b.shape[1] - ends[-1])))
        return cat(products, 1)

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
        result = GroupedProduct.apply(mat_a, mat_b, _ends(offs, size, groups, given))
    return result if bias is None else result + bias


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
